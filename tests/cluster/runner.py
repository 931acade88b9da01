"""Runs scenarios one after the other and reports what was seen, never better than it was."""

from __future__ import annotations

import json
import statistics
import time
import traceback
from typing import Any

from tests.cluster import paths
from tests.cluster.api import ApiError
from tests.cluster.command import CommandFailed
from tests.cluster.lab import Lab, Verdict
from tests.cluster.observer import audit, figures
from tests.cluster.scenarios.catalog import SCENARIOS, Scenario

_EXPECTED = (TimeoutError, CommandFailed, ApiError, OSError, LookupError, AssertionError)
"""What a broken product or cluster raises; anything else is a fault of the harness, reported with its trace."""


def run(numbers: list[int], loops: int) -> bool:
    """Whether every scenario passed; the table is printed, `build/e2e/report.json` written."""
    chosen = [scenario for scenario in SCENARIOS if not numbers or scenario.number in numbers]
    results: list[dict[str, Any]] = []
    with Lab() as lab:
        for scenario in chosen:
            results.append(_run_one(lab, scenario, loops))
            _write(results, loops)
    _print(results)
    return bool(results) and all(result["passed"] for result in results)


def _run_one(lab: Lab, scenario: Scenario, loops: int) -> dict[str, Any]:
    print(f"[{time.strftime('%H:%M:%S')}] {scenario.number}. {scenario.title}", flush=True)
    verdict, began = Verdict(), time.monotonic()
    mark, counted = audit.position(), figures.agents(lab.nodes)
    try:
        scenario.act(lab, verdict, loops)
    except _EXPECTED as error:
        verdict.check(False, f"{type(error).__name__}: {error}")
    except Exception:  # a scenario that cannot be judged has failed, and the others still run
        verdict.check(False, traceback.format_exc())
    for stage, seconds in figures.stage_seconds(mark).items():
        verdict.facts[f"stage {stage}: s"] = seconds
    for name, value in figures.agents(lab.nodes).items():
        verdict.facts[f"as the agents count: {name}"] = [round(max(value - counted[name], 0.0), 2)]
    verdict.check(lab.probe.alive, "the observer's probe of CRI has died: outages went unseen")
    left = _come_to_rest(lab)
    verdict.check(not left, f"after the scenario: {left}")
    return {
        "scenario": scenario.number,
        "title": scenario.title,
        "passed": verdict.passed,
        "checks": verdict.checked,
        "failures": verdict.failures,
        "seconds": round(time.monotonic() - began, 1),
        "facts": {name: _summary(value) for name, value in verdict.facts.items()},
    }


def _come_to_rest(lab: Lab) -> list[str]:
    """What the product leaves after each scenario; cleaned by hand so that the next one starts from clean nodes."""
    try:
        left = lab.reset()
        if left:
            lab.force_clean()
    except _EXPECTED as error:
        return [f"{type(error).__name__}: {error}"]
    return left


def _summary(value: Any) -> Any:
    if not isinstance(value, list) or not value or not all(isinstance(item, int | float) for item in value):
        return value
    return {"min": min(value), "median": round(statistics.median(value), 2), "max": max(value), "all": value}


def _write(results: list[dict[str, Any]], loops: int) -> None:
    paths.REPORTS.mkdir(parents=True, exist_ok=True)
    report = {"loops": loops, "passed": all(result["passed"] for result in results), "scenarios": results}
    (paths.REPORTS / "report.json").write_text(json.dumps(report, indent=2) + "\n")


def _print(results: list[dict[str, Any]]) -> None:
    print()
    for result in results:
        verdict = "passed" if result["passed"] else "FAILED"
        head = f"{result['scenario']:>3}  {verdict}  {result['seconds']:>6.1f} s  {result['checks']:>4} checks"
        print(f"{head}  {result['title']}")
        for name, value in result["facts"].items():
            if isinstance(value, dict) and "median" in value:
                print(f"       {name}: min {value['min']}, median {value['median']}, max {value['max']}")
        for failure in result["failures"]:
            print(f"       - {failure[:700]}")

"""Runs scenarios one after the other and reports what was seen, never better than it was."""

from __future__ import annotations

import json
import statistics
import time
import traceback
from collections.abc import Callable
from typing import Any

from tests.cluster import paths
from tests.cluster.api import ApiError
from tests.cluster.command import CommandFailed
from tests.cluster.lab import Lab, Verdict
from tests.cluster.observer import audit, figures
from tests.cluster.scenarios.catalog import SCENARIOS, Scenario

_EXPECTED = (TimeoutError, CommandFailed, ApiError, OSError, LookupError, AssertionError)
"""What a broken product or cluster raises; anything else is a fault of the harness, reported with its trace."""
_REST = 60.0
"""Seconds of rest that the agents' CPU is counted over."""


def run(numbers: list[int], loops: int) -> bool:
    """Whether every scenario passed; the table is printed, `build/e2e/report.json` written."""
    chosen = [scenario for scenario in SCENARIOS if not numbers or scenario.number in numbers]
    results: list[dict[str, Any]] = []
    with Lab() as lab:
        at_first = {} if numbers else _figures("resident MB at first", lambda: figures.resident(lab.nodes))
        for scenario in chosen:
            results.append(_run_one(lab, scenario, loops))
            _write(results, loops)
        at_rest = {} if numbers else at_first | _at_rest(lab)
        _write(results, loops, at_rest)
    _print(results, at_rest)
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


def _at_rest(lab: Lab) -> dict[str, Any]:
    """What the agents cost while nothing changes: a figure of each full run, and no test."""
    used = _figures(f"CPU in {_REST:.0f} s, % of a core", lambda: figures.cpu(lab.nodes, _REST))
    return used | _figures("resident MB in the end", lambda: figures.resident(lab.nodes))


def _figures(name: str, ask: Callable[[], dict[str, float]]) -> dict[str, Any]:
    """By node; what cannot be asked is said, and no scenario fails of it."""
    try:
        return {name: ask()}
    except _EXPECTED as error:
        return {name: f"{type(error).__name__}: {error}"}


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


def _write(results: list[dict[str, Any]], loops: int, at_rest: dict[str, Any] | None = None) -> None:
    paths.REPORTS.mkdir(parents=True, exist_ok=True)
    passed = all(result["passed"] for result in results)
    report = {"loops": loops, "passed": passed, "agents at rest": at_rest or {}, "scenarios": results}
    (paths.REPORTS / "report.json").write_text(json.dumps(report, indent=2) + "\n")


def _print(results: list[dict[str, Any]], at_rest: dict[str, Any]) -> None:
    print()
    for name, value in at_rest.items():
        print(f"  agents: {name}: {value}")
    for result in results:
        verdict = "passed" if result["passed"] else "FAILED"
        head = f"{result['scenario']:>3}  {verdict}  {result['seconds']:>6.1f} s  {result['checks']:>4} checks"
        print(f"{head}  {result['title']}")
        for name, value in result["facts"].items():
            if isinstance(value, dict) and "median" in value:
                print(f"       {name}: min {value['min']}, median {value['median']}, max {value['max']}")
            elif isinstance(value, str):
                print(f"       {name}: {value}")
        for failure in result["failures"]:
            print(f"       - {failure[:700]}")

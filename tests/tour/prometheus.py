"""A real Prometheus that scrapes the tour: its configuration, its process, its answers."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from metrics import rules
from metrics.dashboards.model import Variable
from tests.tour.stage import Target

SCRAPE = 2
EVALUATE = 1
"""Seconds."""
SCALE = 0.1
"""Of the times in the alerts: what holds a minute holds 6 s here."""
INTERVAL = "20s"
"""For $__rate_interval: Grafana takes four scrapes at least."""
START = 20.0


@dataclass(frozen=True)
class Answer:
    """Of one query over the tour; `last` is by labels, of those series that have a number."""

    expr: str
    series: int
    samples: int
    last: dict[str, float]


class Prometheus:
    def __init__(self, web: aiohttp.ClientSession, url: str) -> None:
        self._web = web
        self._url = url

    async def ask(self, path: str, **query: str) -> Any:
        async with self._web.get(f"{self._url}/api/v1/{path}", params=query) as response:
            body = await response.json()
        if body["status"] != "success":
            raise AssertionError(f"{path} {query}: {body}")
        return body["data"]

    async def ready(self) -> bool:
        try:
            async with self._web.get(f"{self._url}/-/ready") as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False

    async def scraped(self, count: int) -> bool:
        """Whether it runs and that many targets have been scraped."""
        if not await self.ready():
            return False
        found = (await self.ask("query", query="sum(up)"))["result"]
        return bool(found) and float(found[0]["value"][1]) == count

    async def every(self, variable: Variable) -> str:
        """What a dashboard's variable is when all of it is chosen. Raises AssertionError where there is nothing."""
        match = f"{variable.family}{variable.within}"
        values = await self.ask(f"label/{variable.label}/values", **{"match[]": match})
        assert values, f"variable {variable.name} has no value"
        return "|".join(values) if variable.every is None else variable.every

    async def states(self) -> dict[tuple[str, str], str]:
        """State of every alert that is pending or firing, by name and labels."""
        alerts = (await self.ask("alerts"))["alerts"]
        return {(a["labels"]["alertname"], _shown(a["labels"])): a["state"] for a in alerts}

    async def annotations(self, alert: str) -> dict[str, str]:
        """Of the first alert of that name."""
        alerts = (await self.ask("alerts"))["alerts"]
        return next((a["annotations"] for a in alerts if a["labels"]["alertname"] == alert), {})

    async def over(self, expr: str, *, start: float, end: float) -> Answer:
        """The query over the whole tour; samples that are no number count nothing."""
        found = await self.ask("query_range", query=expr, start=str(start), end=str(end), step=str(SCRAPE))
        numbers = {_shown(s["metric"]): [float(v) for _, v in s["values"]] for s in found["result"]}
        good = {labels: [v for v in values if math.isfinite(v)] for labels, values in numbers.items()}
        last = {labels: values[-1] for labels, values in good.items() if values}
        return Answer(expr, len(last), sum(map(len, good.values())), last)


def filled(expr: str, chosen: Mapping[str, str]) -> str:
    """A dashboard's query with the values that are chosen of its variables."""
    for name, value in chosen.items():
        expr = expr.replace(f"${name}", value)
    return expr.replace("$__rate_interval", INTERVAL)


@asynccontextmanager
async def scraping(targets: Sequence[Target], folder: Path) -> AsyncIterator[Prometheus]:
    """It runs inside the block, has scraped every target, and has the generated rules, their times scaled.

    Until the first scrapes there is no leader that it knows of: what it says of that is over before the block.
    """
    await asyncio.to_thread(_configure, targets, folder)
    address = f"127.0.0.1:{_free_port()}"
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            "prometheus",
            f"--config.file={folder}/prometheus.yaml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address={address}",
            stdout=log,
            stderr=log,
        )
    try:
        async with aiohttp.ClientSession() as web:
            prometheus = Prometheus(web, f"http://{address}")
            async with asyncio.timeout(START):
                while not await prometheus.scraped(len(targets)) or await prometheus.states():
                    if process.returncode is not None:
                        raise AssertionError(f"prometheus ended with {process.returncode}; see {folder}/prometheus.log")
                    await asyncio.sleep(0.1)
            yield prometheus
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _configure(targets: Iterable[Target], folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "alerts.yaml").write_text(rules.text(SCALE))
    jobs: dict[str, list[dict[str, Any]]] = {}
    for target in targets:
        jobs.setdefault(target.job, []).append({"targets": [target.address], "labels": target.labels})
    document = {
        "global": {
            "scrape_interval": f"{SCRAPE}s",
            "scrape_timeout": f"{SCRAPE}s",
            "evaluation_interval": f"{EVALUATE}s",
        },
        "rule_files": ["alerts.yaml"],
        "scrape_configs": [{"job_name": job, "static_configs": found} for job, found in jobs.items()],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(document, sort_keys=False))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def _shown(labels: dict[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()) if key not in ("__name__", "alertname"))

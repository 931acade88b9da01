"""`python -m tests.tour [FOLDER]`: a node gets stuck, Prometheus tells, the runbook brings it back, everything is kept.

Fails when a panel of a dashboard has no data, when the alert does not go the whole way from pending over firing to
resolved, or when another alert fires.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from metrics.alerts import PREFIX
from metrics.dashboards.catalog import DASHBOARDS
from reconciler.sim.faults import Injector
from reconciler.sim.loops import RUNTIME
from tests.browser.chromium import Page, browsing
from tests.cluster import packages
from tests.tour.commands import Terminal, picture, steps
from tests.tour.prometheus import Answer, Prometheus, filled, scraping
from tests.tour.record import Record
from tests.tour.stage import BAD, NODES, Stage, staged

ROOT = Path(__file__).parents[2]
NEEDED = {"prometheus": "prometheus", "chromium": "chromium"}
STUCK = f"{PREFIX}NodeStuck"
LIMIT = 230.0
"""Seconds for all of it."""
POLL = 0.5
FAULTS = ("outage", "kill-window")
PACE = 6.0
"""Mean seconds between two outages somewhere in the fleet."""


async def main(folder: Path) -> int:
    """Exit status."""
    record = Record(folder)
    with tempfile.TemporaryDirectory(prefix="reconciler-tour-") as scratch:
        async with asyncio.timeout(LIMIT), staged(Path(scratch) / "nodes") as stage:
            await until(lambda: stage.cluster.leader is not None)
            async with scraping(stage.targets, Path(scratch) / "prometheus") as prometheus, browsing() as page:
                began = time.time()
                watching = asyncio.ensure_future(record.watch(prometheus))
                try:
                    await play(stage, prometheus, page, record)
                finally:
                    watching.cancel()
                    await asyncio.wait({watching})
                answers = await panels(prometheus, began, time.time())
    record.panels(answers)
    return record.end(STUCK)


async def play(stage: Stage, prometheus: Prometheus, page: Page, record: Record) -> None:
    """The story, from the first node to the last."""
    terminal = Terminal(stage.cluster.url, record.folder)
    faults = Injector(stage.cluster, FAULTS, random.Random(7), pace=PACE)
    troubling = stage.cluster.spawn(faults.run())
    stage.cluster.spawn(stage.two_outages_in_one_kill())
    await stage.start_rollout()
    record.note(f"a rollout to {NODES} nodes begins; the registry of {BAD} lacks the image")
    await until(lambda: record.state(STUCK) == "firing")
    record.alert = await prometheus.annotations(STUCK)
    await show_page(stage, page, record.folder / "status-page-stuck.png")
    for words in steps(ROOT / f"docs/runbooks/{STUCK}.md", NODE=BAD, RUNTIME=RUNTIME):
        said = await terminal.run(*words)
        record.said("stuck", said)
        await picture(said, page, record.folder / f"{words[0]}-stuck.png")
    await stage.mend()
    record.note(f"step 2 of the runbook: the registry of {BAD} has the image now")
    record.said("mended", await terminal.run("retry", BAD))
    await until(lambda: record.state(STUCK) == "resolved")
    await until(stage.complete)
    troubling.cancel()
    record.note("every node is ready")
    await settled(stage)
    await show_page(stage, page, record.folder / "status-page-end.png")
    said = await terminal.run("status", RUNTIME)
    record.said("end", said)
    await picture(said, page, record.folder / "status-end.png")


async def settled(stage: Stage) -> None:
    """No containerd is down by an outage of ours any more."""
    await until(lambda: all(node.daemon.serving for node in stage.cluster.nodes.values()))
    await asyncio.sleep(POLL)


async def show_page(stage: Stage, page: Page, path: Path) -> None:
    await page.size(1440, 900)
    await page.open(stage.page)
    await page.until("document.body?.dataset.version && document.getElementById('link').dataset.state === 'live'")
    await page.picture(path)


async def panels(prometheus: Prometheus, start: float, end: float) -> dict[str, list[Answer]]:
    """What every panel of every dashboard shows of the tour."""
    found = {}
    for board in DASHBOARDS:
        chosen = {variable.name: await prometheus.every(variable) for variable in board.variables}
        for panel in board.panels:
            found[f"{board.title} / {panel.title}"] = [
                await prometheus.over(filled(query.expr, chosen), start=start, end=end) for query in panel.queries
            ]
    return found


async def until(holds: Callable[[], bool]) -> None:
    """The limit is that of the whole tour."""
    while not holds():  # noqa: ASYNC110  what is waited for tells nobody
        await asyncio.sleep(POLL)


if __name__ == "__main__":
    packages.ensure(NEEDED)
    logging.getLogger("reconciler").setLevel(logging.CRITICAL)  # faults are meant
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/tour")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    sys.exit(asyncio.run(main(target)))

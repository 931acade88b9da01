"""The page beside a whole simulated cluster, in real time: what the browser draws is what is so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reconciler.api import names
from reconciler.api.clock import SystemClock
from reconciler.kube.resources import NODERUNTIMES
from reconciler.sim import kinds
from reconciler.sim.agents import real_agent
from reconciler.sim.cluster import Cluster, Options, running
from reconciler.sim.loops import BINARY, RUNTIME, manifest, phase
from reconciler.sim.session import served
from tests.browser.chromium import Page, browsing

PICTURES = Path(__file__).parents[2] / "build/browser"
DRAWN = (
    "Object.fromEntries([...document.querySelectorAll('.row:not([hidden])')]"
    ".map((row) => [row.dataset.node, row.querySelector('.cell .words').textContent]))"
)
"""By node: the stage that the page shows."""
VERDICTS = "[...document.querySelectorAll('.row:not([hidden]) .cell')].map((cell) => cell.dataset.verdict)"
IMAGE = "registry.example/kata:3.2"
LIMIT = 60.0
"""Seconds for what takes five on a machine that has nothing else to do."""


def stages(cluster: Cluster) -> dict[str, Any]:
    """By node: the label that the controller has written."""
    found = {}
    for (_, name), record in cluster.server.store.all(kinds.NODES):
        found[name] = (record.object["metadata"].get("labels") or {}).get(names.stage_label(RUNTIME))
    return found


async def all_are(page: Page, verdict: str) -> None:
    await page.until(f"{VERDICTS}.length === 4 && {VERDICTS}.every((v) => v === '{verdict}')", LIMIT)


async def test_nodes_get_stuck_and_well_again_before_the_eyes_of_who_looks(tmp_path: Path) -> None:
    options = Options(root=tmp_path, clock=SystemClock(), agent=real_agent, nodes=4)
    install = {**phase("seconds=1", f"drop={BINARY}"), "image": IMAGE, "timeoutSeconds": 5}
    async with running(options) as cluster, served(0, cluster) as address, browsing() as page:
        await page.size(1440, 900)
        await page.open(f"{address}/status")
        await page.until("document.getElementById('link')?.dataset.state === 'live'", LIMIT)
        await page.ask("window.neverReloaded = true")
        assert await page.ask("document.getElementById('nothing').innerText") == (
            "No node is selected by any NodeRuntime."
        )
        body = manifest(unavailable="100%", bake=2, install=install)
        body["spec"]["rollout"]["canary"] = {"count": 0}
        await cluster.admin.create(NODERUNTIMES, body)
        await all_are(page, "stuck")
        assert await page.ask(DRAWN) == stages(cluster) == {f"node-{n}": "install" for n in range(1, 5)}
        told = await page.ask("document.querySelector('.row:not([hidden]) .error').textContent")
        assert told == f'ImagePullFailed failed to pull and unpack image "{IMAGE}": not found'
        assert await page.ask("document.querySelector('.row:not([hidden]) .barrier').dataset.state") == "open"
        await page.ask("document.querySelector('.row:not([hidden])').click()")
        assert "correct the image or its tag" in await page.ask("document.getElementById('details').innerText")
        await page.picture(PICTURES / "living-stuck.png")
        right = {"spec": {"phases": {"install": {"image": "sim/payload:1"}}}}
        await cluster.admin.patch(NODERUNTIMES, RUNTIME, right)
        await all_are(page, "ok")
        assert await page.ask(DRAWN) == stages(cluster) == {f"node-{n}": "ready" for n in range(1, 5)}
        await page.picture(PICTURES / "living-ready.png")
        await cluster.admin.delete(NODERUNTIMES, RUNTIME)
        await page.until("!document.getElementById('nothing').hidden", LIMIT)
        assert await page.ask("document.querySelectorAll('.row:not([hidden])').length") == 0
        assert await page.ask("window.neverReloaded") is True
        assert page.complaints == []

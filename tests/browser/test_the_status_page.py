"""The status page in a real browser: what it shows, that it is live, and that it stays small with 5,000 nodes."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from reconciler.api.overview import Barrier, Stopped
from reconciler.controller import feed
from tests.browser.chromium import Page, browsing
from tests.browser.fleet import MARKUP, MadeUp, served

PICTURES = Path(__file__).parents[2] / "build/browser"
ROWS = "[...document.querySelectorAll('.row:not([hidden])')]"
"""In the order in which they lie on the page."""
SHOWN = f"{ROWS}.map((row) => row.dataset.node)"
COUNT = "document.getElementById('count').textContent"
ELEMENTS_MAX = 1_500
"""On the whole page, whatever the size of the fleet; 30 rows of three runtimes are some 700."""
LARGE = 5_000


def cell(node: str, column: int) -> str:
    """Text of one cell: 0 is the node's name, then the runtimes, the barrier, and the last error."""
    return f"document.querySelector('.row:not([hidden])[data-node={node}]').children[{column}].textContent"


def row(node: str) -> str:
    return f"document.querySelector('.row:not([hidden])[data-node={node}]')"


@asynccontextmanager
async def shown(fleet: MadeUp, *, fragment: str = "") -> AsyncIterator[Page]:
    """A page that is live; at the end nothing may have complained, nor asked another host."""
    async with served(fleet) as url, browsing() as page:
        await page.size(1440, 900)
        await page.open(url + fragment)
        await page.until("document.body?.dataset.version && document.getElementById('link').dataset.state === 'live'")
        yield page
        assert page.complaints == []
        assert {urlsplit(asked).netloc for asked in page.requests} == {urlsplit(url).netloc}


async def test_every_node_is_told_with_stage_time_barrier_and_error() -> None:
    fleet = MadeUp(nodes=20)
    fleet.get_stuck("node-7", "kata")
    fleet.fail("node-12", "gvisor")
    async with shown(fleet) as page:
        assert await page.ask(COUNT) == "20 nodes"
        assert await page.ask("[...document.getElementById('columns').children].map((c) => c.textContent)") == [
            "Node",
            "kata",
            "gvisor",
            "wasmtime",
            "Barrier",
            "Last error",
        ]
        assert (await page.ask(SHOWN))[:2] == ["node-7", "node-12"]  # trouble first
        assert await page.ask(f"/^!install2m \\d\\ds over$/.test({cell('node-7', 1)})")
        assert await page.ask(f"/^✕failed \\(try 3\\)1h 06m$/.test({cell('node-12', 2)})")
        assert await page.ask(cell("node-7", 4)) == "open"
        assert await page.ask(cell("node-12", 4)) == "closed"
        assert await page.ask(cell("node-12", 5)) == (
            "gvisor: VerifyFailed handler kata-qemu is not served after the restart; the change was undone"
        )


async def test_time_in_a_stage_is_told_against_its_deadline_by_the_controllers_clock() -> None:
    fleet = MadeUp(nodes=1, runtimes=("kata",))  # a clock five hours ahead of the browser's
    now = fleet.now()
    since, deadline = now - timedelta(seconds=65), now + timedelta(seconds=235)
    fleet.become("node-1", "kata", stage="install", verdict="working", since=since, deadline=deadline)
    async with shown(fleet) as page:
        text = await page.until(f"{cell('node-1', 1)}")
        assert text.startswith("▶install1m ")
        assert text.endswith(" / 5m")
        clock = await page.until("document.getElementById('clock').textContent")
        assert abs(datetime.fromisoformat(clock) - fleet.now()) < timedelta(seconds=30)
        assert abs(datetime.fromisoformat(clock) - datetime.now(UTC)) > timedelta(hours=4)


async def test_a_node_that_gets_stuck_turns_so_by_itself() -> None:
    fleet = MadeUp(nodes=20)
    async with shown(fleet) as page:
        await page.ask("window.neverReloaded = true")
        assert await page.ask(f"{row('node-9')}.children[1].classList.contains('stuck')") is False
        fleet.get_stuck("node-9", "kata")
        await page.until(f"{row('node-9')}.children[1].classList.contains('stuck')")
        assert (await page.ask(SHOWN))[0] == "node-9"
        assert await page.ask("document.title") == "(1!) runtime-reconciler"
        assert await page.ask("document.querySelector('.runtime[data-runtime=kata]').innerText.includes('1 stuck')")
        assert await page.ask("window.neverReloaded") is True


async def test_a_node_that_goes_is_taken_out() -> None:
    fleet = MadeUp(nodes=3, runtimes=("kata",))
    async with shown(fleet) as page:
        assert await page.ask(COUNT) == "3 nodes"
        del fleet.rows["node-2", "kata"]
        await page.until(f"{COUNT} === '2 nodes'")
        assert sorted(await page.ask(SHOWN)) == ["node-1", "node-3"]


async def test_filters_by_word_verdict_stage_and_runtime() -> None:
    fleet = MadeUp(nodes=30)
    fleet.get_stuck("node-7", "kata")
    fleet.get_stuck("node-8", "gvisor")
    fleet.become("node-9", "wasmtime", stage="post-uninstall")
    async with shown(fleet) as page:
        await page.ask("document.querySelector('[data-verdict=stuck].pick').click()")
        assert await page.ask(SHOWN) == ["node-7", "node-8"]
        assert await page.ask(COUNT) == "2 of 30 nodes"
        await page.ask("document.getElementById('runtime').value = 'gvisor'")
        await page.ask("document.getElementById('runtime').dispatchEvent(new Event('input', {bubbles: true}))")
        assert await page.ask(SHOWN) == ["node-8"]
        assert await page.ask("location.hash") == "#runtime=gvisor&verdict=stuck"
    async with shown(fleet, fragment="#stage=post-uninstall") as page:
        assert await page.ask(SHOWN) == ["node-9"]
    async with shown(fleet) as page:
        await page.press("/")
        await page.type("imagepull node-8")
        assert await page.ask(SHOWN) == ["node-8"]
        await page.type("x")
        assert await page.ask(SHOWN) == []
        assert await page.ask("document.getElementById('nothing').innerText") == "No node matches the filter."


async def test_it_can_be_used_by_keyboard_alone() -> None:
    fleet = MadeUp(nodes=200)
    fleet.get_stuck("node-7", "kata")
    active = "document.getElementById(document.getElementById('grid').getAttribute('aria-activedescendant'))"
    async with shown(fleet) as page:
        await page.press("/")
        assert await page.ask("document.activeElement.id") == "words"
        await page.press("Escape")
        assert await page.ask("document.activeElement.id") == "grid"
        await page.press("Enter")
        details = "document.getElementById('details')"
        assert await page.ask(f"{details}.hidden") is False
        told = await page.ask(f"{details}.innerText")
        for part in ("node-7", "kata: install", "the image of the install pod", "ImagePullBackOff", "pull secret"):
            assert part in told
        await page.press("Escape")
        assert await page.ask(f"{details}.hidden") is True
        await page.press("End")
        last = await page.ask(f"{active}.parentElement.getAttribute('aria-rowindex')")
        assert last == "201"  # the head is the first
        await page.press("Home")
        await page.press("ArrowRight")
        assert await page.ask(f"{active}.getAttribute('aria-label')") != ""
        assert await page.ask(f"{active}.parentElement.dataset.node") == "node-7"


async def test_a_message_that_is_marked_stays_marked_while_time_goes_on() -> None:
    fleet = MadeUp(nodes=3)
    fleet.get_stuck("node-2", "kata")
    async with shown(fleet) as page:
        await page.ask(f"{row('node-2')}.click()")
        told = "document.querySelector('#details dd').textContent"
        before = await page.until(told)
        await page.ask("getSelection().selectAllChildren(document.querySelector('#details .advice'))")
        await page.until(f"{told} !== {before!r}")
        assert "pull secret" in await page.ask("getSelection().toString()")
        fleet.become("node-2", "kata", attempt=2)
        await page.until("document.getElementById('details').innerText.includes('Attempt')")


async def test_what_a_payload_says_is_text_and_never_markup() -> None:
    fleet = MadeUp(nodes=3)
    fleet.get_stuck("node-2", "kata")
    async with shown(fleet) as page:
        await page.ask(f"{row('node-2')}.click()")
        assert await page.ask(cell("node-2", 5)) == f"kata: ImagePullFailed {MARKUP}"
        assert await page.ask("document.querySelectorAll('img').length") == 0
        assert await page.ask("document.title") == "(1!) runtime-reconciler"


async def test_stopped_and_standby_are_told_in_words() -> None:
    fleet = MadeUp(nodes=3)
    async with shown(fleet) as page:
        assert await page.ask("document.getElementById('stopped').hidden") is True
        fleet.stopped = Stopped(reason="outage in rack 4", by="ops@example", since=fleet.now())
        fleet.leads = False
        await page.until("!document.getElementById('stopped').hidden")
        told = await page.ask("document.getElementById('stopped').innerText")
        assert told.startswith("STOPPED by ops@example")
        assert "outage in rack 4" in told
        assert "does not lead" in await page.ask("document.getElementById('standby').innerText")
        await page.picture(PICTURES / "stopped.png")


async def test_a_large_fleet_costs_no_more_elements_than_a_small_one() -> None:
    fleet = MadeUp(nodes=LARGE)
    fleet.get_stuck("node-4321", "wasmtime")
    elements = "document.querySelectorAll('*').length"
    async with shown(fleet) as page:
        assert await page.ask(COUNT) == f"{LARGE} nodes"
        assert (await page.ask(SHOWN))[0] == "node-4321"
        assert await page.ask(elements) < ELEMENTS_MAX
        grid = "document.getElementById('grid')"
        for part in (0.25, 0.5, 0.75, 1):
            await page.ask(f"{grid}.scrollTop = {part} * {grid}.scrollHeight")
            await page.until(f"{ROWS}.some((row) => row.ariaRowIndex > {part} * {LARGE})")
            assert await page.ask(elements) < ELEMENTS_MAX


async def test_no_drawing_of_a_large_fleet_touches_more_than_what_can_be_seen() -> None:
    fleet = MadeUp(nodes=LARGE)
    async with shown(fleet) as page:
        await page.ask(
            "window.touched = []; new MutationObserver((seen) => { window.touched.push(seen.length); })"
            ".observe(document.body, {subtree: true, childList: true, attributes: true, characterData: true})"
        )
        fleet.get_stuck("node-4321", "gvisor")
        await page.until(f"{SHOWN}[0] === 'node-4321'")
        assert 0 < await page.ask("Math.max(...window.touched)") < ELEMENTS_MAX
        print(await page.ask("JSON.stringify({...document.body.dataset, touched: window.touched})"))


async def test_it_is_legible_in_the_light_and_in_the_dark() -> None:
    for nodes in (40, LARGE):
        fleet = MadeUp(nodes=nodes)
        for name in ("node-7", "node-23"):
            fleet.get_stuck(name, "kata")
        fleet.fail("node-12", "gvisor")
        fleet.become("node-31", "wasmtime", barrier=Barrier.UNKNOWN, verdict="aside", reason="SetAside", stage="absent")
        async with shown(fleet) as page:
            for dark in (False, True):
                await page.dark(dark)
                await page.picture(PICTURES / f"{nodes}-{'dark' if dark else 'light'}.png")
            await page.ask(f"{row('node-7')}.click()")
            await page.picture(PICTURES / f"{nodes}-details.png")


async def test_with_too_many_pages_open_it_loads_the_whole_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "CLIENTS_MAX", 0)
    fleet = MadeUp(nodes=3, runtimes=("kata",))
    async with served(fleet) as url, browsing() as page:
        await page.open(url)
        await page.until("document.getElementById('link')?.dataset.state === 'polling'")
        fleet.get_stuck("node-2", "kata")
        await page.until(f"{row('node-2')}?.children[1].classList.contains('stuck')")


async def test_a_controller_that_went_is_told_and_its_successor_is_found() -> None:
    fleet = MadeUp(nodes=3, runtimes=("kata",))
    state = "document.getElementById('link')?.dataset.state"
    async with browsing() as page:
        async with served(fleet) as url:
            await page.open(url)
            await page.until(f"{state} === 'live'")
        await page.until(f"{state} === 'lost' && document.body.classList.contains('stale')", 40)
        fleet.get_stuck("node-2", "kata")
        async with served(fleet, urlsplit(url).port or 0, rng=random.Random(2)):
            await page.until(f"{state} === 'live' && {row('node-2')}.children[1].classList.contains('stuck')", 40)
            assert await page.ask("document.body.classList.contains('stale')") is False

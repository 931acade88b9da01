"""What a kubelet does, one table for the simulated one and for real ones: what befalls it, and what must be seen.

`tests/conformance/test_the_simulated_kubelet.py` runs it in `make test`, scenario 16 of `make e2e` on a real node.
A window is what was measured on a real 1.34 with containerd 1.6, with room for a busy machine; seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.conformance.kubelet_bench import (
    DEAF,
    HEEDS,
    NO_IMAGE,
    Bench,
    Program,
    container_id,
    end_of,
    ends,
    is_gone,
    is_over,
    is_running,
    now,
)


@dataclass(frozen=True)
class Window:
    """Seconds: the least and the most."""

    least: float
    most: float


Seen = dict[str, Any]
AT_ONCE = Window(0.0, 1.0)


@dataclass(frozen=True)
class Way:
    """`act` brings it about and tells what it saw; `expected` has the same keys, each a Window or the very value."""

    act: Callable[[Bench], Awaitable[Seen]]
    expected: Mapping[str, Any]
    disturbs: bool = False
    """Other pods of the node would notice."""


def wrong(expected: Mapping[str, Any], seen: Seen) -> Iterator[str]:
    """Where what was seen is not what was expected."""
    for key in sorted(expected.keys() | seen.keys()):
        if key not in expected or key not in seen:
            yield f"{key}: expected {expected.get(key)!r}, seen {seen.get(key)!r}"
            continue
        must, was = expected[key], seen[key]
        holds = must.least <= was <= must.most if isinstance(must, Window) else must == was
        if not holds:
            yield f"{key}: {was!r} is not {must!r}"


def runs_to(code: int) -> Callable[[Bench], Awaitable[Seen]]:
    async def act(bench: Bench) -> Seen:
        async with bench.pod(f"exit-{code}", ends(code)) as pod:
            running = await pod.until(is_running)
            over = await pod.until(is_over)
            end = end_of(pod)
            asked = await bench.delete(pod)
            gone = await pod.until(is_gone)
        return {
            "running": running - pod.states[0][0],
            "over": over - running,
            "end": end,
            "gone": gone - asked,
        }

    return act


def killed(program: Program, *, grace: int, name: str) -> Callable[[Bench], Awaitable[Seen]]:
    async def act(bench: Bench) -> Seen:
        async with bench.pod(name, program, grace=grace) as pod:
            await pod.until(is_running)
            asked = await bench.delete(pod)
            dead = await bench.dead(pod)
            gone = await pod.until(is_gone)
            return {"dead": dead - asked, "gone": gone - asked, "end": end_of(pod)}

    return act


async def forced(bench: Bench) -> Seen:
    async with bench.pod("forced", DEAF, grace=60) as pod:
        await pod.until(is_running)
        asked = await bench.delete(pod, grace=0)
        gone = await pod.until(is_gone)
        return {"gone": gone - asked, "dead": await bench.dead(pod) - asked}


async def forced_amid_its_grace(bench: Bench) -> Seen:
    async with bench.pod("impatient", DEAF, grace=20) as pod:
        await pod.until(is_running)
        await bench.delete(pod)
        await asyncio.sleep(3)
        alive = await bench.machine.runs(pod.uid)
        asked = await bench.delete(pod, grace=0)
        gone = await pod.until(is_gone)
        return {"alive before": alive, "gone": gone - asked, "dead": await bench.dead(pod) - asked}


async def a_shorter_grace(bench: Bench) -> Seen:
    async with bench.pod("shortened", DEAF, grace=20) as pod:
        await pod.until(is_running)
        await bench.delete(pod)
        await asyncio.sleep(3)
        alive = await bench.machine.runs(pod.uid)
        asked = await bench.delete(pod, grace=2)
        return {
            "alive before": alive,
            "dead": await bench.dead(pod) - asked,
            "gone": await pod.until(is_gone) - asked,
        }


async def no_image(bench: Bench) -> Seen:
    async with bench.pod("no-image", HEEDS, image=NO_IMAGE) as pod:
        await pod.until(lambda obj: len(pod.reasons) >= 4)
        seconds = pod.states[-1][0] - pod.states[0][0]
        asked = await bench.delete(pod)
        reasons = [reason for reason in pod.reasons if reason != "ContainerCreating"][:3]
        return {"reasons": reasons, "to and fro": seconds, "gone": await pod.until(is_gone) - asked}


async def stopped_by_another(bench: Bench) -> Seen:
    async with bench.pod("stopped", DEAF, grace=60) as pod:
        await pod.until(is_running)
        asked = now()
        await bench.machine.stop_sandbox(pod.uid)
        over = await pod.until(is_over)
        return {"noticed": over - asked, "end": end_of(pod)}


def outage(seconds: float, name: str) -> Callable[[Bench], Awaitable[Seen]]:
    async def act(bench: Bench) -> Seen:
        async with bench.pod(name, DEAF, grace=5, hook=True) as pod:
            await pod.until(is_running)
            await bench.delete(pod)
            await bench.marked(pod, 1)
            await asyncio.sleep(1)
            await bench.machine.stop_containerd()
            await asyncio.sleep(seconds)
            await bench.machine.start_containerd()
            back = now()
            again = await bench.marked(pod, 2)
            gone = await pod.until(is_gone)
            return {
                "tried again": again - back,
                "gone after that": gone - again,
                "hooks": await bench.machine.marks(pod.name),
                "failed": await bench.machine.failed_kills(pod.uid) >= 1,
            }

    return act


async def carried_out_by_another(bench: Bench) -> Seen:
    """As the agent's kill retrier does it: the sandbox is stopped as soon as CRI is back."""
    async with bench.pod("retried", DEAF, grace=5) as pod:
        await pod.until(is_running)
        await bench.delete(pod)
        await asyncio.sleep(1)
        await bench.machine.stop_containerd()
        await asyncio.sleep(3)
        await bench.machine.start_containerd()
        await bench.machine.stop_sandbox(pod.uid)
        dead = await bench.dead(pod)
        return {"noticed": await pod.until(is_gone) - dead}


async def made_amid_an_outage(bench: Bench) -> Seen:
    await bench.machine.stop_containerd()
    async with bench.pod("early", DEAF) as pod:
        await asyncio.sleep(5)
        await bench.machine.start_containerd()
        back = now()
        return {"running": await pod.until(is_running) - back}


async def deleted_while_away(bench: Bench) -> Seen:
    async with bench.pod("away", DEAF, grace=3) as pod:
        await pod.until(is_running)
        await bench.machine.stop_kubelet()
        await bench.delete(pod)
        await asyncio.sleep(5)
        alive = await bench.machine.runs(pod.uid)
        await bench.machine.start_kubelet()
        back = now()
        return {"alive before": alive, "dead": await bench.dead(pod) - back, "gone": await pod.until(is_gone) - back}


async def forced_while_away(bench: Bench) -> Seen:
    async with bench.pod("orphan", DEAF, grace=60) as pod:
        await pod.until(is_running)
        await bench.machine.stop_kubelet()
        await bench.delete(pod, grace=0)
        await pod.until(is_gone)
        await asyncio.sleep(5)
        alive = await bench.machine.runs(pod.uid)
        await bench.machine.start_kubelet()
        back = now()
        return {"alive before": alive, "dead": await bench.dead(pod) - back}


async def restarted(bench: Bench) -> Seen:
    async with bench.pod("bystander", DEAF) as pod, bench.pod("ended-meanwhile", ends(3, after=4)) as short:
        await pod.until(is_running)
        await short.until(is_running)
        before = container_id(pod.last)
        await bench.machine.stop_kubelet()
        await bench.dead(short)
        await bench.machine.start_kubelet()
        back = now()
        over = await short.until(is_over)
        await asyncio.sleep(5)
        states = [obj for _, obj in pod.states if container_id(obj)]
        return {
            "told": over - back,
            "end": end_of(short),
            "containers": len({container_id(obj) for obj in states} | {before}),
            "always running": all(is_running(obj) for obj in states),
            "alive": await bench.machine.runs(pod.uid),
        }


async def without_cri(bench: Bench) -> Seen:
    stopped = now()
    await bench.machine.stop_containerd()
    not_ready = await bench.ready("False")
    await bench.machine.start_containerd()
    back = now()
    return {"not ready": not_ready - stopped, "ready": await bench.ready("True") - back}


WAYS: Mapping[str, Way] = {
    "exit 0 is Succeeded": Way(
        runs_to(0),
        {
            "running": Window(0, 5),
            "over": Window(0.5, 4),
            "end": ("Succeeded", 0, "Completed"),
            "gone": AT_ONCE,
        },
    ),
    "exit 3 is Failed": Way(
        runs_to(3),
        {"running": Window(0, 5), "over": Window(0.5, 4), "end": ("Failed", 3, "Error"), "gone": AT_ONCE},
    ),
    "SIGTERM heeded": Way(
        killed(HEEDS, grace=30, name="heeds"),
        {"dead": Window(0, 5), "gone": Window(0, 8), "end": ("Failed", 143, "Error")},
    ),
    "SIGTERM ignored: killed at the end of the grace": Way(
        killed(DEAF, grace=4, name="deaf"),
        {"dead": Window(3.5, 9), "gone": Window(3.5, 12), "end": ("Failed", 137, "Error")},
    ),
    "a grace of 1 s": Way(
        killed(DEAF, grace=1, name="deaf-1"),
        {"dead": Window(0.5, 8), "gone": Window(0.5, 10), "end": ("Failed", 137, "Error")},
    ),
    "deleted by force: the object goes at once, the container a little later": Way(
        forced, {"gone": AT_ONCE, "dead": Window(0.5, 8)}
    ),
    "deleted by force amid its grace: it lives to the end of that": Way(
        forced_amid_its_grace, {"alive before": True, "gone": AT_ONCE, "dead": Window(15, 20)}
    ),
    "a shorter grace comes too late for a kill that goes on": Way(
        a_shorter_grace, {"alive before": True, "dead": Window(15, 20), "gone": Window(15, 22)}
    ),
    "an image that cannot be pulled": Way(
        no_image,
        {
            "reasons": ["ErrImagePull", "ImagePullBackOff", "ErrImagePull"],
            "to and fro": Window(9, 60),
            "gone": Window(0, 4),
        },
    ),
    "stopped through CRI by somebody else": Way(
        stopped_by_another, {"noticed": Window(0, 5), "end": ("Failed", 137, "Error")}
    ),
    "a kill that hits a short outage": Way(
        outage(3, "outage-3"),
        {"tried again": Window(6, 15), "gone after that": Window(4, 9), "hooks": 2, "failed": True},
        disturbs=True,
    ),
    "a kill that hits a long outage": Way(
        outage(18, "outage-18"),
        {"tried again": Window(0, 5), "gone after that": Window(4, 9), "hooks": 2, "failed": True},
        disturbs=True,
    ),
    "a failed kill that somebody else carries out": Way(
        carried_out_by_another, {"noticed": Window(0.5, 8)}, disturbs=True
    ),
    "a pod that is made in an outage": Way(made_amid_an_outage, {"running": Window(4, 16)}, disturbs=True),
    "deleted while the kubelet was away": Way(
        deleted_while_away,
        {"alive before": True, "dead": Window(2.5, 10), "gone": Window(2.5, 12)},
        disturbs=True,
    ),
    "deleted by force while the kubelet was away": Way(
        forced_while_away, {"alive before": True, "dead": Window(0, 10)}, disturbs=True
    ),
    "a restart of the kubelet": Way(
        restarted,
        {
            "told": Window(0, 8),
            "end": ("Failed", 3, "Error"),
            "containers": 1,
            "always running": True,
            "alive": True,
        },
        disturbs=True,
    ),
    "CRI away for long": Way(without_cri, {"not ready": Window(20, 45), "ready": Window(0, 15)}, disturbs=True),
}

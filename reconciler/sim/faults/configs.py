"""What others write into containerd's configuration, at any moment, also in the middle of a change of ours."""

from __future__ import annotations

import asyncio
import contextvars
import random
import re
from collections.abc import Callable
from dataclasses import replace

from reconciler.sim.cluster import Foreign
from reconciler.sim.config import MAIN
from reconciler.sim.faults import people
from reconciler.sim.faults.disks import watched
from reconciler.sim.faults.registry import World, fault
from reconciler.sim.node import CONFIG, SimNode

WHILE_SECONDS = (5.0, 120.0)
MOMENT_SECONDS = 60.0
"""For which a change of the agent is lain in wait for."""
STEPS = 16
"""Of the agent's change, at most, before the edit."""
PAST_THE_LOOK = ("rename", "unlink", "in place")
"""Steps right after the last comparison: an edit in that moment is lost, no call compares and renames."""
BROKEN = "\n[[[ half of a line\n"
IMPORT = "/etc/containerd/site.d/*.toml"

Edit = Callable[[str], str]


@fault("own-runtime", once=True)
async def own_runtime(world: World, rng: random.Random) -> None:
    """An admin adds a runtime of their own to config.toml, and takes it away later."""
    node, name, read = world.some_living(rng), f"site-{rng.randrange(1000)}", rng.random() < 0.5
    if node is None:
        return
    text = (
        f'\n# {name}: ours\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{name}]\n'
        f'  runtime_type = "io.containerd.runc.v2"\n'
    )
    thing = Foreign("text", node.name, MAIN, text)
    try:
        what = f"own-runtime: {name} in {node.name}"
        await _edited(world, rng, node, what, lambda old: old if name in old else old + text, thing)
        if read:
            await node.do(_restarted(node))
        await asyncio.sleep(rng.uniform(*WHILE_SECONDS))
    finally:
        _take_away(world, node, thing)
        await node.do(_restarted(node))


@fault("own-import", once=True)
async def own_import(world: World, rng: random.Random) -> None:
    """An admin adds an import of their own to config.toml, and takes it away later."""
    node = world.some_living(rng, lambda n: "imports" not in _read(n))
    if node is None:
        return
    site = node.root / "etc/containerd/site.d/site.toml"
    site.parent.mkdir(exist_ok=True)
    site.write_text('version = 2\n\n[debug]\n  level = "info"\n')
    text = f'imports = ["{IMPORT}"]\n'
    thing = Foreign("text", node.name, MAIN, text)
    try:
        what = f"own-import: in {node.name}"
        await _edited(world, rng, node, what, lambda old: old if "imports" in old else text + old, thing)
        await asyncio.sleep(rng.uniform(*WHILE_SECONDS))
    finally:
        _take_away(world, node, thing)
        site.unlink(missing_ok=True)
        await node.do(_restarted(node))


@fault("comment", once=True)
async def comment(world: World, rng: random.Random) -> None:
    """An admin writes a comment into config.toml, which stays."""
    node, text = world.some_living(rng), f"# note {rng.randrange(1_000_000)}\n"
    if node is None:
        return
    atop = rng.random() < 0.5
    thing = Foreign("text", node.name, MAIN, text)
    await _edited(world, rng, node, f"comment: in {node.name}", lambda old: text + old if atop else old + text, thing)


@fault("reformatted", once=True)
async def reformatted(world: World, rng: random.Random) -> None:
    """An admin's editor takes away the indentation of config.toml."""
    node = world.some_living(rng)
    if node is None:
        return

    def edit(old: str) -> str:
        world.foreign[:] = [
            replace(thing, what=_flat(thing.what)) if (thing.kind, thing.node) == ("text", node.name) else thing
            for thing in world.foreign
        ]
        return _flat(old)

    await _edited(world, rng, node, f"reformatted: config.toml of {node.name}", edit)


@fault("vendor-rewrite", once=True)
async def vendor_rewrite(world: World, rng: random.Random) -> None:
    """A vendor's tool writes config.toml anew, without what anybody else wrote, and restarts containerd."""
    node = world.some_living(rng)
    if node is None:
        return

    def edit(_old: str) -> str:
        people.forget(world, lambda thing: (thing.kind, thing.node) == ("text", node.name))
        return CONFIG

    await _edited(world, rng, node, f"vendor-rewrite: config.toml of {node.name}", edit)
    await node.do(_restarted(node))


@fault("config-invalid", once=True)
async def config_invalid(world: World, rng: random.Random) -> None:
    """An admin breaks config.toml, sometimes restarts containerd on it, and puts it right after a while."""
    node, restarted = world.some_living(rng), rng.random() < 0.3
    if node is None:
        return
    try:
        await _edited(world, rng, node, f"config-invalid: that of {node.name}", lambda old: old + BROKEN)
        if restarted:
            await node.do(_restarted(node))
        await asyncio.sleep(rng.uniform(*WHILE_SECONDS))
    finally:
        _write(node, _read(node).replace(BROKEN, ""))
        if not node.daemon.serving:
            await node.do(_restarted(node))


async def _edited(
    world: World, rng: random.Random, node: SimNode, what: str, edit: Edit, thing: Foreign | None = None
) -> None:
    """Edit the file now, or right before some step of the next change of the agent; `thing` stands from then on."""
    at, done = rng.choice((0, rng.randint(1, STEPS))), asyncio.Event()

    def act(step: str) -> None:
        if done.is_set():
            return
        done.set()
        old = _read(node)
        new = edit(old)
        if new == old:
            return
        _write(node, new)
        if thing is not None:
            world.foreign.append(thing)
        world.say(what + (f", before the agent's step {step!r}" if step else ""))

    def count(step: str) -> None:
        nonlocal at
        if step.startswith(PAST_THE_LOOK):
            return
        at -= 1
        if at == 0:
            contextvars.Context().run(act, step)  # it is not the agent that does it

    if at:
        with watched(node, count):
            try:
                async with asyncio.timeout(MOMENT_SECONDS):
                    await done.wait()
            except TimeoutError:
                pass
    act("")


def _take_away(world: World, node: SimNode, thing: Foreign) -> None:
    """By the person who wrote it, in the form that it has by now."""
    texts = (thing.what, _flat(thing.what))
    people.forget(world, lambda other: replace(other, what="") == replace(thing, what="") and other.what in texts)
    old = _read(node)
    new = old.replace(texts[0], "").replace(texts[1], "")
    if new != old:
        _write(node, new)


def _flat(text: str) -> str:
    return re.sub(r"(?m)^[ \t]+", "", text)


def _read(node: SimNode) -> str:
    path = node.root / MAIN.lstrip("/")
    return path.read_text() if path.exists() else ""


def _write(node: SimNode, text: str) -> None:
    """As an editor does: another file takes its place."""
    path = node.root / MAIN.lstrip("/")
    new = path.with_name(".config.toml.swp")
    new.write_text(text)
    new.replace(path)


async def _restarted(node: SimNode) -> None:
    node.daemon.reset_failed()
    await node.daemon.restart("admin")

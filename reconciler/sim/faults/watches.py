"""What befalls watches."""

from __future__ import annotations

import random

from reconciler.sim.faults.registry import World, fault


@fault("watch")
async def watch(world: World, rng: random.Random) -> None:
    """All watches break, and every other time their history is compacted away as well."""
    server = world.cluster.server
    compacted = rng.random() < 0.5
    world.say(f"watch: all break{', and history is compacted' if compacted else ''}")
    if compacted:
        server.store.compact()
        server.knobs.expired_in_stream = not server.knobs.expired_in_stream
    server.break_watches()

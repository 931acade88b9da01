"""The host's lock: who writes a configuration has it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator

from reconciler.sim.invariants.base import Invariant
from reconciler.sim.invariants.daemons import COMMITS
from reconciler.sim.judge import LOCK
from reconciler.sim.node import SimNode


class Locked(Invariant):
    """No step of an agent puts other bytes in force while nobody holds the lock of that host."""

    name = "locked"

    def traced(self, node: SimNode, step: str) -> Iterator[str]:
        if step.startswith(COMMITS) and _free(node):
            yield f"{node.name}: the agent's `{step}` was taken without the host's lock"


def _free(node: SimNode) -> bool:
    """Whether nobody has it: the lock of another description of the file is refused, also within one process."""
    path = node.root / LOCK
    if not path.exists():
        return True
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True

"""docs/simulation.md, from faults and invariants: `python -m reconciler.sim.reference > docs/simulation.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from reconciler.sim.faults import FAULTS, Fault
from reconciler.sim.invariants import INVARIANTS

_HEAD = """# The simulation

`reconciler.sim` is a whole cluster in one process: API server, kubelets, containerds, garbage collection, and the real
controllers and agents, on one event loop whose clock jumps. What goes wrong in it and what must hold all the same is
listed here. How it is run: [CONTRIBUTING.md](../CONTRIBUTING.md); why it is so: [design.md](design.md), section 11.
This page is made by `make docs`.

## Invariants

Checked after every step of the simulated world: each write, request, container, start of containerd and step on a disk.
What excuses a breach is its cause, and stands with the invariant in `reconciler/sim/invariants`.

| name | what must hold |
|---|---|
"""
_FAULTS = """
## Faults

The soak draws from all of them. `.venv/bin/reconciler simulate --faults NAMES` offers those with a *yes*: the others
change what its loops wait for.
"""


def page() -> str:
    """The whole page."""
    rows = (f"| `{one.name}` | {_first_line(one.__doc__)} |\n" for one in INVARIANTS)
    return "".join([_HEAD, *rows, _FAULTS, *_subjects()])


def _subjects() -> Iterator[str]:
    """A table for each module of faults."""
    modules: dict[str, list[Fault]] = {}
    for fault in FAULTS.values():
        modules.setdefault(fault.cause.__module__, []).append(fault)
    for name, faults in sorted(modules.items()):
        yield f"\n### {name.rpartition('.')[2].capitalize()}\n\n{_first_line(sys.modules[name].__doc__)}\n"
        yield "\n| name | what happens | simulate |\n|---|---|---|\n"
        yield from (f"| `{one.name}` | {one.meaning} | {'' if one.once else 'yes'} |\n" for one in faults)


def _first_line(doc: str | None) -> str:
    return (doc or "").strip().splitlines()[0]


if __name__ == "__main__":
    sys.stdout.write(page())

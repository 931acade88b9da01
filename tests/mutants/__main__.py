"""`python -m tests.mutants`: plants each defect, plays seeds until something sees it, and prints a table.

Exit code 1 if one is not seen within its number of seeds, if the product as it is fails in the plan that saw it, or if
an invariant sees none of them.
"""

from __future__ import annotations

import argparse
import os
import sys

from reconciler.sim.invariants import INVARIANTS
from tests.mutants.catching import Caught, hunt
from tests.mutants.defects import DEFECTS
from tests.soak.pool import processes


def main() -> int:
    options = _options()
    chosen = [number for number, defect in enumerate(DEFECTS) if options.only in ("", defect.name)]
    with processes(options.jobs) as pool:
        found = []
        for caught in pool.map(hunt, chosen):
            print(_row(caught), flush=True)
            found.append(caught)
    missed = [caught.defect for caught in found if caught.seed is None or caught.honest]
    blind = [] if options.only else [one.name for one in INVARIANTS if not any(_sees(one.name, c) for c in found)]
    print(
        f"{len(found) - len(missed)} of {len(found)} defects caught" + (f"; not: {', '.join(missed)}" if missed else "")
    )
    if not options.only:
        print(f"invariants that see none of them: {', '.join(blind) or '-'}")
    return 1 if missed or blind else 0


def _sees(invariant: str, caught: Caught) -> bool:
    return any(said.startswith(f"{invariant}: ") for said in caught.by)


def _row(caught: Caught) -> str:
    if caught.honest:
        return f"{caught.defect:22s} the product as it is fails seed {caught.seed}: {caught.honest}"
    seen = f"seed {caught.seed:3d} of {caught.allowed}" if caught.seed is not None else f"NOT in {caught.allowed}"
    return f"{caught.defect:22s} {seen:14s} {''.join(caught.by[:1])[:110]}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--only", default="", help="the name of one defect")
    return parser.parse_args()


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        command = [sys.executable, "-m", "tests.mutants", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())

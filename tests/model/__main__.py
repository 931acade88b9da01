"""`make model`: explores every instance, prints what was looked at, and exits 1 when a rule is broken."""

from __future__ import annotations

import sys

from tests.model.instances import ALL
from tests.model.report import lines, totals


def main() -> int:
    outcomes = []
    for instance in ALL:
        outcome = instance.run()
        outcomes.append(outcome)
        print("\n".join(lines(outcome)), flush=True)
    print("\n".join(totals(outcomes)))
    return int(any(outcome.breaches or not outcome.complete for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())

"""What an exploration came to, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from tests.model.explore import Outcome


def lines(outcome: Outcome) -> Iterator[str]:
    yield (
        f"{outcome.name}: {outcome.states} states, {outcome.transitions} transitions, depth {outcome.depth}, "
        f"{outcome.seconds:.1f} s of CPU"
    )
    if not outcome.complete:
        yield "  INCOMPLETE: there are more states than its limit"
    for what, trace in outcome.breaches:
        yield f"  BROKEN: {what}"
        yield "  the shortest way there (n0 and n1, or a and b, may change places: names do not count):"
        yield from (f"    {step}" for step in trace)


def totals(outcomes: Iterable[Outcome]) -> Iterator[str]:
    checked: Counter[str] = Counter()
    states = transitions = 0
    seconds = 0.0
    for outcome in outcomes:
        checked.update(outcome.checked)
        states, transitions = states + outcome.states, transitions + outcome.transitions
        seconds += outcome.seconds
    yield f"{states} states, {transitions} transitions, {seconds:.1f} s of CPU"
    yield "how often each rule was asked (once per state, or per step that it speaks of):"
    yield from (f"  {count:>9}  {rule}" for rule, count in sorted(checked.items()))

"""Events say what, where, and what to do: each step of the decision has its words."""

from __future__ import annotations

import ast
from datetime import UTC, datetime

import pytest

from reconciler.api.node import MESSAGE_MAX, NodeState, Problem, Stage
from reconciler.controller import notes
from reconciler.controller.telemetry import QUIET, WARNINGS
from reconciler.phases.decision import Move
from tests.unit.controller.bench import decision_source

T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MAKERS = {"Move": 99, "enter": 4, "begin_install": 99}
"""What makes a Move of the decision, and at which place its reason may stand."""


def reasons() -> set[str]:
    """Of every Move in the source of the decisions, defaults of arguments included."""
    found = {"InstallStarted"}
    for call in ast.walk(ast.parse(decision_source())):
        name = call.func if isinstance(call, ast.Call) else None
        name = name.id if isinstance(name, ast.Name) else name.attr if isinstance(name, ast.Attribute) else ""
        if isinstance(call, ast.Call) and name in MAKERS:
            place = MAKERS[name]
            values = [word.value for word in call.keywords if word.arg == "reason"] + call.args[place : place + 1]
            found |= {v.value for v in values if isinstance(v, ast.Constant) and isinstance(v.value, str)}
    return found


def test_every_step_is_told_in_words_or_not_at_all() -> None:
    assert {"Ready", "RolledBack", "HandlerLost", "PhaseDone"} <= reasons()
    assert reasons() == set(notes.NOTES) | QUIET
    assert not set(notes.NOTES) & QUIET
    assert set(notes.NOTES) >= WARNINGS


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        ("InstallStarted", "", "node a: revision r2 is being installed, install first"),
        ("Upgrade", "", "node a: from revision r1 to r2, install first"),
        (
            "RolledBack",
            "",
            "node a: revision r3 is given up on (VerifyFailed: no {handler}); revision r2 is put back, install first",
        ),
        (
            "AttemptFailed",
            "PayloadFailed: exit code 3",
            "node a: PayloadFailed: exit code 3; attempt 2 of install follows",
        ),
        (
            "Failed",
            "PayloadFailed: exit code 3",
            "node a: PayloadFailed: exit code 3; given up on: mend the cause, then `kubectl reconciler retry a`",
        ),
        ("HandlerLost", "CRI does not serve {kata}", "node a: CRI does not serve {kata}; it is configured again"),
        ("Absent", "uninstalled", "node a: nothing of it is left on the node"),
    ],
)
def test_a_step_in_words(reason: str, message: str, expected: str) -> None:
    state = NodeState(
        uid="u",
        stage=Stage.INSTALL,
        installed="r1",
        target="r2",
        failed="r3",
        attempt=2,
        since=T0,
        error=Problem("VerifyFailed", "no {handler}"),
    )
    assert (
        notes.note("a", Move(state=None if reason == "Absent" else state, reason=reason, message=message)) == expected
    )


def test_trouble_of_one_node_points_to_the_command_that_says_more_and_stays_short_enough() -> None:
    way = " (more: `kubectl reconciler explain node-1`)"
    assert notes.pointing("node-1: no space", "node-1") == f"node-1: no space{way}"
    long = notes.pointing("x" * 400, "node-1")
    assert len(long) == MESSAGE_MAX
    assert long.endswith(f"x…{way}")
    told = notes.stuck("node-1", Stage.INSTALL, Problem("ImagePullFailed", "not found"))
    assert told == f"node node-1 in install: ImagePullFailed: not found{way}"

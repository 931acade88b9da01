"""Conditions say what is known, and Events only what has changed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from reconciler.api.meta import Condition, Node, ObjectMeta
from reconciler.api.node import REST, NodeState, Problem, Stage
from reconciler.api.noderuntime import NodeRuntime, NodeRuntimeStatus, UnreadableNodeRuntime
from reconciler.controller import goals, status
from reconciler.controller.world import Outlook
from reconciler.phases.decision import Signal, Wait
from reconciler.phases.rollout import View

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
RUNTIME = NodeRuntime(metadata=ObjectMeta(name="kata", generation=3))


def outlook(name: str, *, trouble: Problem | None = None, **view: Any) -> Outlook:
    seen = View(node=name, **{"at_rest": False, **view})
    return Outlook(
        view=seen,
        wait=Wait(reason="Waits", awaits=Signal.NOTHING, message="m", trouble=trouble),
        state=None,
        counted=True,
    )


def conditions(**given: Any) -> dict[str, tuple[str, str, str]]:
    """Type → status, reason and message."""
    outlooks = {o.view.node: o for o in given.pop("outlooks", ())}
    options: dict[str, Any] = {
        "revision": "r",
        "in_work": (),
        "halted": "",
        "stopped": "",
        "selected": len(outlooks),
        "installers": [],
        "problem": None,
        "refused": {},
        "classes": (),
        "now": NOW,
        **given,
    }
    built = status.build(options.pop("runtime", RUNTIME), outlooks, **options)
    return {c.type: (c.status, c.reason, c.message) for c in built.conditions}


def test_nodes_that_nobody_has_looked_at_yet_are_not_no_nodes() -> None:
    assert conditions(selected=2)["Progressing"] == ("True", "RollingOut", "2 nodes to go: not begun")
    assert conditions(selected=0)["Progressing"] == (
        "False",
        "NoNodeSelected",
        "spec.nodeSelector matches no node that can take part",
    )


def test_a_problem_of_the_whole_comes_before_a_refusal_and_that_before_a_node_in_trouble() -> None:
    nodes = [outlook("b", trouble=Problem("B", "b")), outlook("a", trouble=Problem("A", "a"))]
    refused = {"b": Problem("Forbidden", "no")}
    assert conditions(outlooks=nodes)["Degraded"] == ("True", "A", "a: a (more: `kubectl reconciler explain a`)")
    assert conditions(outlooks=nodes, refused=refused)["Degraded"] == ("True", "Forbidden", "b: no")
    whole = Problem("InvalidSpec", "bad")
    assert conditions(outlooks=nodes, refused=refused, problem=whole)["Degraded"] == ("True", "InvalidSpec", "bad")


def test_nodes_that_were_given_up_on_come_before_nodes_in_trouble() -> None:
    nodes = [outlook("a", trouble=Problem("A", "a")), outlook("b", failed=True)]
    assert conditions(outlooks=nodes)["Degraded"] == (
        "True",
        "NodesFailed",
        "1 node failed; b: m (more: `kubectl reconciler explain b`)",
    )


def test_a_problem_does_not_hide_nodes_at_work() -> None:
    whole = Problem("InvalidSpec", "bad")
    assert conditions(outlooks=[outlook("a")], problem=whole)["Progressing"][:2] == ("True", "RollingOut")
    resting = conditions(outlooks=[outlook("a", at_rest=True)], problem=whole)["Progressing"]
    assert resting == ("False", "InvalidSpec", "nothing is started; see condition Degraded")


def test_other_installers_are_as_they_were_until_somebody_has_looked() -> None:
    before = (Condition(type="ForeignInstaller", status="True", reason="ForeignInstaller", message="m"),)
    runtime = NodeRuntime(metadata=RUNTIME.metadata, status=NodeRuntimeStatus(conditions=before))
    unknown = Problem("NotLooked")
    assert conditions(runtime=runtime, installers=unknown)["ForeignInstaller"] == ("True", "ForeignInstaller", "m")
    assert "ForeignInstaller" not in conditions(installers=unknown)
    assert conditions(runtime=runtime)["ForeignInstaller"] == ("False", "NoneFound", "")


def test_a_stop_comes_before_everything_else_and_says_how_it_ends() -> None:
    words = "everything is stopped by ann; `kubectl reconciler resume` lifts it"
    resting = conditions(outlooks=[outlook("a", at_rest=True)], stopped=words, problem=Problem("InvalidSpec", "bad"))
    assert resting["Progressing"] == ("False", "Stopped", words)
    going = conditions(outlooks=[outlook("a")], stopped=words)["Progressing"]
    assert going[2] == f"{words}; 1 node still at work: what has begun ends"


def told(kind: str, status: str, reason: str, message: str = "m") -> tuple[Condition, ...]:
    return (Condition(type=kind, status=status, reason=reason, message=message),)


@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        ((), told("Degraded", "True", "A"), [("Warning", "A", "m")]),
        (told("Degraded", "True", "A"), told("Degraded", "True", "A", "other words"), []),
        (told("Degraded", "True", "A"), told("Degraded", "True", "B"), [("Warning", "B", "m")]),
        (
            told("Degraded", "True", "A"),
            told("Degraded", "False", "AsExpected"),
            [("Normal", "Recovered", "A is over")],
        ),
        ((), told("Degraded", "False", "AsExpected"), []),
        ((), told("Progressing", "False", "NoNodeSelected"), [("Warning", "NoNodeSelected", "m")]),
        ((), told("Progressing", "False", "Paused"), []),
        (
            told("Progressing", "True", "RollingOut"),
            told("Progressing", "False", "Stopped"),
            [("Warning", "Stopped", "m")],
        ),
        (told("Progressing", "False", "Stopped"), told("Progressing", "False", "Stopped", "other words"), []),
        (
            told("Progressing", "False", "Stopped"),
            told("Progressing", "True", "RollingOut"),
            [("Normal", "Resumed", "nothing is stopped any more")],
        ),
        ((), told("ForeignInstaller", "True", "ForeignInstaller"), [("Warning", "ForeignInstaller", "m")]),
    ],
)
def test_an_event_tells_of_a_change_of_reason_only(
    before: tuple[Condition, ...], after: tuple[Condition, ...], events: list[tuple[str, str, str]]
) -> None:
    assert status.news(before, after) == events


def test_what_cannot_be_read_selects_no_node() -> None:
    node = Node(metadata=ObjectMeta(name="n"))
    assert goals.selects(RUNTIME, node)
    assert not goals.selects(UnreadableNodeRuntime(metadata=RUNTIME.metadata, error="why"), node)


def staged(name: str, stage: Stage | None, **view: Any) -> Outlook:
    state = None if stage is None else NodeState(uid="u", stage=stage, since=NOW)
    given = outlook(name, at_rest=stage is None or stage in REST, **view)
    return Outlook(view=given.view, wait=given.wait, state=state, counted=True)


def test_the_columns_say_how_many_are_ready_and_where_most_of_the_others_are() -> None:
    done = [staged(name, Stage.READY, done=True) for name in "abc"]
    working = [staged("d", Stage.INSTALL), staged("e", Stage.CONFIGURE), staged("f", Stage.CONFIGURE)]
    first = [staged("g", Stage.INSTALL), staged("h", Stage.CONFIGURE)]
    for nodes, expected in (
        ([*done, *working, staged("x", None)], ("3/7", "configure")),
        ([*done, *first], ("3/5", "install")),
        ([*done, staged("x", None)], ("3/4", "ready")),
        ([], ("0/0", "absent")),
    ):
        told = status.summary(status.counts(nodes), nodes)
        assert (told.ready, told.stage) == expected

"""The overview collects what each look has noted; what concerns the whole is laid over it."""

from __future__ import annotations

import inspect
import re
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from reconciler.api import names
from reconciler.api.meta import Condition, ControllerRevision, Node, NodeStatus, ObjectMeta, Pod, PodSpec, PodStatus
from reconciler.api.node import NodeState, Problem, Report, Stage, encode
from reconciler.api.noderuntime import (
    Canary,
    Handler,
    NodeRuntime,
    NodeRuntimeSpec,
    NodeRuntimeStatus,
    Rollout,
    revision_data,
    revision_hash,
    revision_name,
)
from reconciler.api.overview import NodeRow
from reconciler.controller import outlooks, rows
from reconciler.controller.halts import HALTS, why
from reconciler.controller.overview import overview
from reconciler.controller.world import NODE_INDEX, World
from reconciler.kube.store import Store
from reconciler.phases import rollout

T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SPEC = NodeRuntimeSpec(handlers=(Handler(name="kata"),))


def world(**spec: Any) -> World:
    """With the NodeRuntime kata."""
    it = World(
        namespace="ns",
        nodes=Store(),
        pods=Store({NODE_INDEX: lambda pod: [pod.spec.node_name]}),
        runtimes=Store(),
        revisions=Store(),
        classes=Store(),
    )
    wanted = msgspec.structs.replace(SPEC, **spec)
    meta = ObjectMeta(name="kata", uid="u1", generation=1, creation_timestamp=T0)
    it.runtimes.put(NodeRuntime(metadata=meta, spec=wanted))
    data = revision_data(wanted)
    name = revision_name("kata", revision_hash(data))
    kept = ObjectMeta(name=name, namespace="ns", uid=name)
    it.revisions.put(ControllerRevision(metadata=kept, data=msgspec.Raw(msgspec.json.encode(data))))
    return it


def revision(it: World) -> str:
    kata = it.runtime("kata")
    assert kata is not None
    return revision_hash(revision_data(kata.spec))


def add(it: World, name: str, state: NodeState | None = None, *, ready: str = "True", text: str = "") -> Node:
    """A node with a ready agent; `text` is what its state annotation holds instead."""
    annotations = {names.REPORT_ANNOTATION: encode(Report(handlers=("kata", "runc") if state else ("runc",)))}
    labels = {}
    if state is not None or text:
        annotations[names.state_annotation("kata")] = text or encode(state)  # type: ignore[arg-type]
    if state is not None:
        labels = {names.stage_label("kata"): str(state.stage)}
        if state.installed:
            labels[names.present_label("kata")] = names.PRESENT_LABEL_VALUE
    node = Node(
        metadata=ObjectMeta(name=name, labels=labels, annotations=annotations),
        status=NodeStatus(
            conditions=(
                Condition(type="Ready", status=ready, last_transition_time=T0),
                Condition(type=names.SERVING_CONDITION, status="True", last_transition_time=T0),
            )
        ),
    )
    it.nodes.put(node)
    agent = ObjectMeta(name=f"agent-{name}", namespace="ns", labels={names.COMPONENT_LABEL: names.COMPONENT_AGENT})
    told = PodStatus(conditions=(Condition(type="Ready", status="True"),))
    it.pods.put(Pod(metadata=agent, spec=PodSpec(node_name=name), status=told))
    return node


def at_rest(it: World, stage: Stage = Stage.READY, **fields: Any) -> NodeState:
    base = {"uid": "u1", "stage": stage, "installed": revision(it), "target": revision(it), "since": T0}
    return NodeState(**{**base, **fields})


def read(it: World) -> dict[str, NodeRow]:
    for _ in outlooks.survey(it, T0):
        pass
    return {row.node: row for row in overview(it, T0).nodes}


@pytest.mark.parametrize(
    ("spec", "states", "halted"),
    [
        ({"paused": True}, {"a": None}, why("Paused", "kata")),
        (
            {},
            {"a": {"stage": Stage.FAILED, "installed": "", "failed": "r"}, "b": None},
            why("ErrorBudgetExceeded", "kata"),
        ),
        (
            {"rollout": Rollout(canary=Canary(count=1, pause=True))},
            {"a": {}, "b": None},
            why("CanaryPaused", "kata"),
        ),
        ({}, {"a": None}, ""),
    ],
)
def test_a_rollout_that_stands_says_why_and_so_does_every_node_that_waits_for_its_turn(
    spec: dict[str, Any], states: dict[str, dict[str, Any] | None], halted: str
) -> None:
    it = world(**spec)
    for name, fields in states.items():
        wanted = fields if fields is None or "failed" not in fields else {**fields, "failed": revision(it)}
        add(it, name, None if wanted is None else at_rest(it, **wanted))
    found = read(it)
    (kata,) = overview(it, T0).runtimes
    waiting = found["b" if "b" in found else "a"]
    assert kata.halted == halted
    expected = f"nothing yet: {halted}" if halted else "it begins when a slot is given to it"
    assert waiting.next == expected


def test_every_reason_that_the_rollout_halts_for_has_its_sentence() -> None:
    source = inspect.getsource(rollout)
    named = set(re.findall(r'halted = halted or "(\w+)"|"(\w+)" if _canaries_done', source))
    reasons = {reason for pair in named for reason in pair if reason} | {"Canary", "Stopped", "LeaderChanged"}
    assert {"Paused", "ErrorBudgetExceeded", "CanaryPaused"} <= reasons
    assert reasons == set(HALTS)


def test_a_canary_at_work_halts_nothing() -> None:
    it = world()
    add(it, "a", at_rest(it, Stage.CONFIGURE, installed=""))
    add(it, "b")
    read(it)
    assert overview(it, T0).runtimes[0].halted == ""


def test_a_step_that_the_api_server_refuses_is_laid_over_the_row() -> None:
    it = world()
    add(it, "a", at_rest(it))
    read(it)
    it.note_refusal("kata", "a", Problem("Forbidden", "pods is forbidden"))
    (row,) = overview(it, T0).nodes
    assert (row.verdict, row.reason, row.error) == ("waiting", "Forbidden", Problem("Forbidden", "pods is forbidden"))
    assert row.last_seen == "it was refused: pods is forbidden"
    it.note_refusal("kata", "a", None)
    assert overview(it, T0).nodes[0].verdict == "ok"


def test_a_step_that_was_refused_at_first_sight_has_a_row_too() -> None:
    it = world()
    add(it, "a")
    it.note_refusal("kata", "a", Problem("StepRefused", "no"))
    (row,) = overview(it, T0).nodes
    assert (row.node, row.stage, row.verdict) == ("a", "absent", "waiting")


def test_a_state_that_cannot_be_read_is_stuck_until_a_person_removes_it() -> None:
    it = world()
    add(it, "a", text="{")
    row = read(it)["a"]
    assert (row.stage, row.verdict, row.reason) == ("unknown", "stuck", "StateUnreadable")
    assert row.advice == (
        "remove the annotation to start afresh: `kubectl annotate node a state.runtime-reconciler.io/kata-`"
    )


def test_what_a_noderuntime_that_is_gone_has_left_is_shown() -> None:
    it = world()
    add(it, "a", at_rest(it))
    it.runtimes.remove(("", "kata"))
    whole = [*outlooks.survey(it, T0)] and overview(it, T0)
    assert [(row.name, row.total) for row in whole.runtimes] == [("kata", 0)]
    assert [(row.node, row.stage, row.awaits) for row in whole.nodes] == [("a", "ready", "controller")]


def test_the_problem_of_the_whole_is_the_one_that_holds_the_nodes_back_or_what_the_status_says() -> None:
    it = world()
    degraded = Condition(type="Degraded", status="True", reason="AgentMissing", message="a: no agent pod")
    kata = it.runtime("kata")
    assert kata is not None
    it.runtimes.put(msgspec.structs.replace(kata, status=NodeRuntimeStatus(conditions=(degraded,))))
    assert overview(it, T0).runtimes[0].problem == Problem("AgentMissing", "a: no agent pod")
    it.problems["kata"] = Problem("InvalidSpec", "x")
    assert overview(it, T0).runtimes[0].problem == Problem("InvalidSpec", "x")


def test_a_node_that_is_gone_has_no_row_any_more() -> None:
    it = world()
    add(it, "a", at_rest(it))
    assert set(read(it)) == {"a"}
    it.nodes.remove(("", "a"))
    assert read(it) == {}
    assert it.rows == {}


def test_an_overview_makes_no_row_and_a_look_makes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a page that asks every second costs as much as the nodes that have changed."""
    it = world()
    for number in range(300):
        add(it, f"node-{number}", at_rest(it))
    before = read(it)
    made: list[str] = []
    real = rows.build

    def counted(world: World, node: Node, *rest: Any) -> NodeRow:
        made.append(node.metadata.name)
        return real(world, node, *rest)

    monkeypatch.setattr(rows, "build", counted)
    node = add(it, "node-7", at_rest(it), ready="False")
    outlooks.look(it, node, "kata", T0)
    after = {row.node: row for row in overview(it, T0).nodes}
    assert made == ["node-7"]
    assert [name for name in after if after[name] is not before[name]] == ["node-7"]


def test_onlookers_share_the_stores_and_leave_the_memory_alone() -> None:
    it = world()
    add(it, "a", at_rest(it))
    onlooker = it.onlooker()
    assert set(read(onlooker)) == {"a"}
    assert (it.rows, it.outlooks, it.seen) == ({}, {}, set())


def test_it_is_camel_case_and_rfc_3339() -> None:
    it = world()
    add(it, "a", at_rest(it))
    read(it)
    document = msgspec.json.decode(msgspec.json.encode(overview(it, T0)))
    assert document["time"] == "2026-01-02T03:04:05Z"
    assert {"setAside", "deleting", "halted", "problem"} <= set(document["runtimes"][0])
    assert {"waitsFor", "lastSeen", "next", "advice", "barrier", "deadline"} <= set(document["nodes"][0])
    assert document["nodes"][0]["since"] == "2026-01-02T03:04:05Z"

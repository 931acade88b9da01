"""Walks that are the same in each run: each good value of each field once, and the order of things that hurts most.

Many more, at random: `python -m tests.simulation.operations`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.operations.model import GONE, handler, snapshotter
from tests.simulation.operations.operations import Create, Delete, Edit, Edits, Join, Label, Leave, Revert, Step, Wrong
from tests.simulation.operations.oracle import wrong
from tests.simulation.operations.search import edits_of
from tests.simulation.operations.values import rows
from tests.simulation.operations.walk import NODES_AT_FIRST, Nodes, compare, walk

TWO = {"node-1": {"pool": "a"}, "node-2": {"pool": "b"}}
KATA, GVISOR = Create("kata"), Create("gvisor")


ALONE = frozenset(
    (
        *("image", "imagePullPolicy", "command", "env", "resources", "securityContext", "hostPID", "hostNetwork"),
        *("serviceAccountName", "lifecycle", "terminationGracePeriodSeconds", "timeoutSeconds"),
        *("runtimeType", "runtimePath", "podAnnotations", "privilegedWithoutHostDevices", "options", "extra"),
        *("overhead", "maxUnavailable", "bakeSeconds", "errorBudget", "strategy", "whenInUse"),
    )
)
"""Fields that may change in the same write as any other."""


def together(alone: bool) -> Iterator[Edits]:
    """Each good value once: as many fields in one write as can be told apart, those that are `alone`, or the rest."""
    parts: dict[str, list[Edits]] = {}
    for path, row in rows("kata").items():
        if (path.rpartition(".")[2].removesuffix("[]") in ALONE) is not alone or path.startswith("paused"):
            continue
        part = path if alone else ".".join(path.split(".")[: 2 if path.startswith(("phases.", "rollout.")) else 1])
        parts.setdefault(part.removesuffix("[]"), []).extend(edits_of(path, value) for value in row.good)
    for place in range(max(map(len, parts.values()))):
        yield sum((edits[place] for edits in parts.values() if place < len(edits)), ())


def clean(*steps: Step, nodes: Nodes = NODES_AT_FIRST) -> None:
    """As installed afresh after each step that settles, and as the values have it."""
    points = walk(steps, nodes=nodes, strict=True)
    compare(points)
    assert wrong(points) == []


@pytest.mark.parametrize("alone", [True, False])
def test_each_good_value_of_each_field(alone: bool) -> None:
    clean(Step(KATA), *(Step(Edit("kata", edits)) for edits in together(alone)), nodes=TWO)


# --- one thing before the other has ended ---

OTHER_IMAGE = Edit("kata", (("phases.install.image", "sim/payload:2"),))
OTHER_HANDLER = Edit("kata", (("handlers[0].name", "kata-other"),))


def test_a_change_of_mind_amid_a_rollout_comes_to_what_was_said_last() -> None:
    clean(
        Step(KATA),
        Step(OTHER_IMAGE, 1.5),
        Step(OTHER_HANDLER),
        Step(Edit("kata", (("handlers", [handler("kata", 1)]),)), 3.0),
        Step(Revert("kata"), 0.5),
        Step(Edit("kata", (("rollout.maxUnavailable", 1), ("upgrade.strategy", "Reinstall")))),
        Step(Edit("kata", (("handlers", GONE),)), 2.5),
        Step(Revert("kata")),
    )


def test_two_edits_at_once_and_a_revert_within_a_second() -> None:
    clean(
        Step(KATA),
        Step(OTHER_IMAGE, 0.0),
        Step(OTHER_HANDLER),
        Step(Edit("kata", (("handlers[0].runtimeClass.name", "kata-class"),)), 0.6),
        Step(Revert("kata")),
    )


def test_deleted_amid_an_install_and_made_again_amid_the_deletion() -> None:
    clean(Step(KATA, 1.0), Step(Delete("kata")), Step(KATA), Step(Delete("kata"), 1.0), Step(KATA))


def test_paused_amid_a_rollout_edited_and_resumed() -> None:
    pause = Edit("kata", (("paused", True),))
    clean(
        Step(KATA),
        Step(OTHER_IMAGE, 1.0),
        Step(pause),
        Step(OTHER_HANDLER),
        Step(Label("node-3", "pool", "a")),
        Step(Edit("kata", (("paused", GONE),))),
        Step(pause, 0.5),
        Step(Delete("kata")),
    )


def test_a_selector_and_the_labels_and_nodes_that_it_reads() -> None:
    clean(
        Step(KATA),
        Step(Edit("kata", (("nodeSelector", {"matchLabels": {"pool": "a"}}),))),
        Step(Label("node-2", "pool", "a")),
        Step(Label("node-1", "pool", None), 20.0),
        Step(Label("node-1", "pool", "a")),
        Step(Join("node-4"), 1.5),
        Step(Leave("node-2")),
        Step(Edit("kata", (("nodeSelector", {"matchLabels": {"pool": "nowhere"}}),))),
        Step(Leave("node-1")),
    )


def test_two_runtimes_at_once() -> None:
    clean(
        Step(KATA, 1.5),
        Step(GVISOR),
        Step(OTHER_HANDLER, 0.0),
        Step(Edit("gvisor", (("snapshotters", [snapshotter("gvisor")]),))),
        Step(Delete("kata"), 1.0),
        Step(Edit("gvisor", (("handlers[0].options", {"Deep": {"Flag": True}}),))),
        Step(KATA),
    )


def test_what_only_a_node_can_find_out_is_told_and_heals() -> None:
    clean(
        Step(KATA),
        Step(Wrong("kata", (("handlers[0].extra", {"no_such_key": 1}),), "node")),
        Step(Wrong("kata", (("phases.install.args", ["exit=3"]),), "node")),
    )

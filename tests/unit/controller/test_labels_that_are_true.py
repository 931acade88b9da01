"""When labels of ours on a node are written again."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from reconciler.api import names
from reconciler.api.meta import Node, ObjectMeta
from reconciler.api.node import NodeState, Stage
from reconciler.controller.goals import labels_true

STATE = NodeState(uid="u", stage=Stage.READY, since=datetime(2026, 1, 1, tzinfo=UTC))


def node(stage: str | None, present: str | None) -> Node:
    labels = {names.stage_label("kata"): stage, names.present_label("kata"): present}
    return Node(metadata=ObjectMeta(name="n", labels={k: v for k, v in labels.items() if v is not None}))


@pytest.mark.parametrize(
    ("stage", "present", "true"),
    [
        ("ready", "present", True),
        ("ready", "edited", False),  # RuntimeClasses select the value: no pod would be let onto the node
        ("ready", None, False),
        ("edited", "present", False),
        (None, "present", False),
    ],
)
def test_a_node_that_is_ready_says_so_with_both(stage: str | None, present: str | None, true: bool) -> None:
    assert labels_true(node(stage, present), "kata", STATE, True) is true


@pytest.mark.parametrize(
    ("stage", "present", "true"), [(None, None, True), (None, "edited", False), ("edited", None, False)]
)
def test_a_node_without_the_runtime_bears_neither(stage: str | None, present: str | None, true: bool) -> None:
    assert labels_true(node(stage, present), "kata", None, False) is true

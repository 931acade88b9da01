"""What the types of a spec cannot say is said in one line each."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reconciler.api.noderuntime import NodeRuntimeSpec
from reconciler.api.validation import errors


def spec(**fields: Any) -> NodeRuntimeSpec:
    return msgspec.convert(fields, NodeRuntimeSpec)


def test_a_good_spec_has_no_errors() -> None:
    good = spec(
        nodeSelector={"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
        handlers=[{"name": "a", "runtimeClass": {"name": "a"}}, {"name": "b"}, {"name": "c"}],
        snapshotters=[{"name": "s", "address": "/run/s.sock"}],
        startupTaints=[{"key": "k", "effect": "NoSchedule"}],
        rollout={
            "maxUnavailable": "10%",
            "errorBudget": 0,
            "order": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}],
        },
    )
    assert errors(good) == []


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        (
            {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Inn"}]}},
            "spec.nodeSelector.matchExpressions[0]: operator 'Inn' is not one of In, NotIn, Exists, DoesNotExist",
        ),
        (
            {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn"}]}},
            "spec.nodeSelector.matchExpressions[0]: operator NotIn needs values",
        ),
        (
            {"rollout": {"order": [{"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}]}},
            "spec.rollout.order[0].matchExpressions[0]: operator Exists takes no values",
        ),
        ({"handlers": [{"name": "a"}, {"name": "a"}]}, "spec.handlers[].name: a is there twice"),
        (
            {"handlers": [{"name": "a", "runtimeClass": {"name": "c"}}, {"name": "b", "runtimeClass": {"name": "c"}}]},
            "spec.handlers[].runtimeClass.name: c is there twice",
        ),
        (
            {"snapshotters": [{"name": "a", "address": "/x"}, {"name": "b", "address": "/x"}]},
            "spec.snapshotters[].address: /x is there twice",
        ),
        (
            {"snapshotters": [{"name": "a", "address": "x"}]},
            "spec.snapshotters[].address: 'x' is not an absolute path",
        ),
        (
            {"snapshotters": [{"name": "a", "address": "/" + "x" * 107}]},
            f"spec.snapshotters[].address: '/{'x' * 107}' is longer than 107 bytes",
        ),
        (
            {"startupTaints": [{"key": "k", "effect": "Never"}]},
            "spec.startupTaints[].effect: 'Never' is not one of NoExecute, NoSchedule, PreferNoSchedule",
        ),
        *(
            (
                {"rollout": {"maxUnavailable": few}},
                f"spec.rollout.maxUnavailable: {few} is less than 1, and no node would "
                "have its turn; spec.paused: true holds a rollout",
            )
            for few in (0, -1, "0%", "00%")
        ),
        ({"rollout": {"errorBudget": -2}}, "spec.rollout.errorBudget: -2 is less than 0"),
        ({"imagePullSecrets": [{"name": "a"}, {}]}, "spec.imagePullSecrets[1].name: None is not the name of a Secret"),
        ({"imagePullSecrets": [{"name": ""}]}, "spec.imagePullSecrets[0].name: '' is not the name of a Secret"),
    ],
)
def test_what_is_wrong_is_said_with_its_path(fields: dict[str, Any], error: str) -> None:
    assert errors(spec(**fields)) == [error]

"""Scenario 10: what a stolen token of an agent can do on the real API server, and what it cannot."""

from __future__ import annotations

from collections.abc import Callable

from tests.cluster import api as names
from tests.cluster import product, runtimes
from tests.cluster.api import Api, ApiError, Object
from tests.cluster.lab import Lab, Verdict
from tests.cluster.node import Node

_REPORT = "agent.runtime-reconciler.io/report"
_STATE = "state.runtime-reconciler.io/demo"
_LABEL = "stage.runtime-reconciler.io/demo"
_TOKENS = "volumes/kubernetes.io~projected"


def run(lab: Lab, verdict: Verdict, loops: int) -> None:
    own, other = lab.nodes
    stolen = Api(bearer=_token(own))
    mine, theirs = f"{names.NODES}/{own.name}", f"{names.NODES}/{other.name}"
    lab.create(runtimes.full())
    lab.wait_ready()

    told = lab.observer.get(mine)["metadata"]["annotations"][_REPORT]
    allowed = _refusal(lambda: stolen.patch(f"{mine}/status", _annotation(_REPORT, told)))
    verdict.check(allowed is None, f"an agent may not write its own report: {allowed}")

    contested = {"type": "ConfigContested", "status": "False", "reason": "WouldStart", "message": "x"}
    said = _refusal(lambda: stolen.patch(f"{mine}/status", _condition(contested), kind="strategic-merge"))
    verdict.check(said is None, f"an agent may not write its condition ConfigContested: {said}")

    condition = {"type": "Ready", "status": "False", "reason": "Stolen", "message": "x"}
    capacity = {"status": {"capacity": {"example.com/gold": "9"}}}
    refused: dict[str, Callable[[], object]] = {
        "another node's report": lambda: stolen.patch(f"{theirs}/status", _annotation(_REPORT, "{}")),
        "another node's state": lambda: stolen.patch(f"{theirs}/status", _annotation(_STATE, "{}")),
        "its own state": lambda: stolen.patch(f"{mine}/status", _annotation(_STATE, "{}")),
        "its own labels": lambda: stolen.patch(f"{mine}/status", {"metadata": {"labels": {_LABEL: "absent"}}}),
        "its own condition Ready": lambda: stolen.patch(
            f"{mine}/status", _condition(condition), kind="strategic-merge"
        ),
        "a condition of its own making": lambda: stolen.patch(
            f"{mine}/status", _condition(contested | {"type": "Stolen"}), kind="strategic-merge"
        ),
        "another node's condition": lambda: stolen.patch(
            f"{theirs}/status", _condition(contested), kind="strategic-merge"
        ),
        "its own capacity": lambda: stolen.patch(f"{mine}/status", capacity),
        "its own spec": lambda: stolen.patch(mine, {"spec": {"unschedulable": True}}),
        "the NodeRuntime": lambda: stolen.patch(f"{names.NODE_RUNTIMES}/demo", {"spec": {"paused": True}}),
        "a pod's deletion": lambda: stolen.delete(f"{names.OUR_PODS}/{product.agent_pod(other)['metadata']['name']}"),
        "a new pod": lambda: stolen.create(names.OUR_PODS, runtimes.user_pod("stolen", own.name)),
        "secrets": lambda: stolen.get(f"/api/v1/namespaces/{names.NAMESPACE}/secrets"),
    }
    for what, act in refused.items():
        said = _refusal(act)
        verdict.check(said is not None and said.status in (403, 422), f"an agent may write {what}: {said}")
    lab.delete()
    lab.wait_gone()
    verdict.check(not lab.left_behind(), f"left behind: {lab.left_behind()}")


def _token(node: Node) -> str:
    """The token in the mount of the agent's pod, as somebody who broke out of it would find it."""
    folder = node.root / "var/lib/kubelet/pods" / product.agent_pod(node)["metadata"]["uid"] / _TOKENS
    inside = folder.relative_to(node.root)
    return node.sh(f"cat '/{inside}'/*/token").strip()


def _annotation(key: str, value: str) -> Object:
    return {"metadata": {"annotations": {key: value}}}


def _condition(condition: Object) -> Object:
    return {"status": {"conditions": [condition]}}


def _refusal(act: Callable[[], object]) -> ApiError | None:
    try:
        act()
    except ApiError as error:
        return error
    return None

"""What became of a phase pod, by what its kubelet wrote."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.api import names
from reconciler.api.meta import Pod
from reconciler.controller import pods
from reconciler.phases.facts import Outcome

RUNS = {"running": {"startedAt": "2026-01-02T03:04:05Z"}}
KILLED = {"terminated": {"exitCode": 137, "reason": "Error", "startedAt": "2026-01-02T03:04:05Z"}}
UNKNOWN = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": "could not be located"}}
EVICTED = {"reason": "Evicted", "message": "low on disk"}


@pytest.mark.parametrize(
    ("phase", "state", "more", "outcome", "reason", "message"),
    [
        ("Running", RUNS, {}, Outcome.RUNNING, "", ""),
        ("Failed", KILLED, EVICTED, Outcome.FAILED, "PayloadFailed", "exit code 137: Error"),
        ("Failed", RUNS, EVICTED, Outcome.FAILED, "PayloadFailed", "Evicted: low on disk"),
        ("Failed", RUNS, {}, Outcome.FAILED, "PayloadFailed", "Failed: "),
        ("Failed", UNKNOWN, EVICTED, Outcome.NEVER_RAN, "Evicted", "low on disk"),
        ("Failed", {"waiting": {"reason": "ContainerCreating"}}, EVICTED, Outcome.NEVER_RAN, "Evicted", "low on disk"),
        ("Failed", None, {"reason": "OutOfcpu"}, Outcome.NEVER_RAN, "OutOfcpu", ""),
    ],
)
def test_outcome(
    phase: str, state: dict[str, object] | None, more: dict[str, str], outcome: Outcome, reason: str, message: str
) -> None:
    told = [] if state is None else [{"name": "payload", "state": state}]
    metadata = {
        "uid": "u",
        "creationTimestamp": "2026-01-02T03:04:00Z",
        "labels": {names.PHASE_LABEL: "install"},
        "annotations": {names.ATTEMPT_ANNOTATION: "1", names.REVISION_ANNOTATION: "r"},
    }
    pod = msgspec.convert({"metadata": metadata, "status": {"phase": phase, "containerStatuses": told, **more}}, Pod)
    found = pods.facts_of(pod, ended=False, asked=False)
    assert found is not None
    assert (found.outcome, found.reason, found.message) == (outcome, reason, message)

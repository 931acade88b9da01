"""What a kubelet writes into `status` of a pod with one container."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from reconciler.sim import payload
from reconciler.sim.runtime import Process

Status = dict[str, Any]
LOG_MAX = 2048
"""Bytes from the end of a log that stand for a missing termination message (`pkg/kubelet/types`,
MaxContainerTerminationMessageLogLength)."""


def waiting_status(name: str, reason: str, message: str) -> Status:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"name": name, "ready": False, "state": state}]}


def running_status(name: str, process: Process) -> Status:
    started = _text(process.started)
    state = {"running": {"startedAt": started}}
    return {
        "phase": "Running",
        "startTime": started,
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {"name": name, "ready": True, "containerID": f"containerd://{process.id}", "state": state}
        ],
    }


def ended_status(name: str, process: Process, start: str) -> Status:
    code = process.exit_code
    terminated: Status = {
        "exitCode": code,
        "reason": _reason(process),
        "startedAt": _text(process.started),
        "finishedAt": _text(process.finished),
    }
    if code != 0 and process.behaviour.log:
        terminated["message"] = process.behaviour.log[-LOG_MAX:]
    state = {"terminated": terminated}
    status: Status = {
        "phase": "Succeeded" if code == 0 else "Failed",
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [
            {"name": name, "ready": False, "containerID": f"containerd://{process.id}", "state": state}
        ],
    }
    return {**status, "startTime": start} if start else status


def _reason(process: Process) -> str:
    if process.exit_code == 0:
        return "Completed"
    return "OOMKilled" if process.behaviour.oom and process.exit_code == payload.KILLED else "Error"


def failed_status(reason: str, message: str) -> Status:
    return {"phase": "Failed", "reason": reason, "message": message}


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")

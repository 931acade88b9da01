"""What an Event says of a step: what, where, and what to do if a person is needed. Pure."""

from __future__ import annotations

from reconciler.api.node import MESSAGE_MAX, NodeState, Problem, Stage, cut
from reconciler.phases.decision import Move

NOTES = {
    "InstallStarted": "revision {target} is being installed, {stage} first",
    "Upgrade": "from revision {installed} to {target}, {stage} first",
    "GoalChanged": "the NodeRuntime has changed on the way: on to revision {target}, {stage} first",
    "MachineChanged": "another machine or a fresh disk under this name: revision {target} anew, {stage} first",
    "RolledBack": "revision {failed} is given up on ({error}); revision {target} is put back, {stage} first",
    "RemovalStarted": "revision {target} is being taken off, {stage} first",
    "LeftoverFound": "{message}, and nothing on the Node tells of it; it is being taken off",
    "HandlerLost": "{message}; it is configured again",
    "HandlerInUse": "{message}",
    "WhenInUseChanged": "{message}; that holds for {stage}, too",
    "Reverted": "the revision that it has is wanted again: that another one failed here is forgotten",
    "Kept": "it stays: the NodeRuntime is wanted here again",
    "AttemptFailed": "{message}; attempt {attempt} of {stage} follows",
    "Retried": "{message}: attempt {attempt} of {stage} begins",
    "Failed": "{message}; given up on: mend the cause, then `kubectl reconciler retry {node}`",
    "Ready": "{message}",
    "Absent": "nothing of it is left on the node",
    "StartupTaintsRemoved": "it is ready: the startup taints are taken off",
    "PodsEnding": "waits until nothing of its pods runs",
}
"""By reason of a Move; what is logged only has none (`telemetry.QUIET`)."""


def note(node: str, move: Move) -> str:
    """`node NODE: …`, for the reason of `move`."""
    state = move.state
    error = None if state is None else state.error
    fields = {
        "node": node,
        "stage": Stage.ABSENT if state is None else state.stage,
        "error": "" if error is None else f"{error.reason}: {error.message}",
        "message": move.message,
        **({} if state is None else _revisions(state)),
    }
    return f"node {node}: {NOTES.get(move.reason, '{message}').format_map(fields)}"


def stuck(node: str, stage: Stage, problem: Problem) -> str:
    """Of a node whose deadline has passed."""
    return f"node {node} in {stage}: " + pointing(f"{problem.reason}: {problem.message}", node)


def pointing(text: str, node: str) -> str:
    """`text` of one node's trouble, and the command that says what to do; not longer than a condition's message."""
    way = f" (more: `kubectl reconciler explain {node}`)"
    room = MESSAGE_MAX - len(way)
    line = cut(text)
    return (line if len(line) <= room else line[: room - 1] + "…") + way


def _revisions(state: NodeState) -> dict[str, str | int]:
    return {
        "target": state.target,
        "installed": state.installed,
        "failed": state.failed,
        "attempt": state.attempt,
    }

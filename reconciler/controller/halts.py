"""Why a rollout stands, in words: for conditions, the overview and the command line alike. Pure."""

from __future__ import annotations

HALTS = {
    "Stopped": "everything is stopped; `kubectl reconciler resume` lifts it",
    "Paused": "spec.paused is true: nothing new starts; `kubectl reconciler resume {runtime}` ends it",
    "ErrorBudgetExceeded": "more nodes are failed or stuck than rollout.errorBudget allows; mend and retry them, or "
    "raise it",
    "CanaryPaused": "the canary is done and rollout.canary.pause holds the rest; set it to false to go on",
    "Canary": "the first nodes (rollout.canary.count) have not become ready",
    "LeaderChanged": "a new leader looks at every node before it gives out a slot",
}
"""By reason: those of `phases.rollout.Admission.halted`, a stop, and a change of leader."""


def why(reason: str, runtime: str) -> str:
    """The sentence for `reason`; the reason itself where there is none, nothing for none."""
    return HALTS.get(reason, reason).format(runtime=runtime)

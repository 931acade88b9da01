"""How a failed CRI call is taken: by its gRPC status and by where it arose, never by an answer's words (section 5)."""

from __future__ import annotations

import enum

from reconciler.cri.api import Code, CriError

NOT_INITIALIZED = "server is not initialized yet"
"""The one answer that is read: containerd 1.x gives it the status Unknown while CRI recovers."""


class ErrorClass(enum.Enum):
    OUTAGE = "outage"
    """containerd is away or not up yet: closes the barrier, tried again."""
    TERMINAL = "terminal"
    """The CRI plugin is not there: trying or restarting again does not help."""
    POD = "pod"
    """One pod's trouble; the barrier stays open."""
    HUNG = "hung"
    """No answer in time: one pod's trouble while the probe answers, an outage if that hangs too."""
    GONE = "gone"
    """What was to be stopped is not there: success."""


def classify(error: CriError) -> ErrorClass:
    """The class of `error`."""
    if error.code in (Code.DEADLINE_EXCEEDED, Code.CANCELED):
        return ErrorClass.HUNG
    if error.connection or NOT_INITIALIZED in error.message:
        return ErrorClass.OUTAGE
    if error.code is Code.UNIMPLEMENTED:
        return ErrorClass.TERMINAL
    if error.code is Code.NOT_FOUND:
        return ErrorClass.GONE
    return ErrorClass.POD

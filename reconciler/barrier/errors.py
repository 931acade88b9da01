"""Classes of CRI errors (the table of design section 5): by status and by where they arose, never by words."""

from __future__ import annotations

import enum

from reconciler.cri.api import Code, CriError

NOT_INITIALIZED = "server is not initialized yet"
"""The one text that is looked at: containerd says it, with code Unknown, until its CRI plugin is up."""


class ErrorClass(enum.Enum):
    """What an error means for the barrier."""

    RETRYABLE = "retryable"
    """The resource is away: the barrier closes, the operation is tried again."""
    TERMINAL = "terminal"
    """The resource is there and does not offer what is asked: trying again does not help."""
    HUNG = "hung"
    """No answer to one call: that pod's trouble while the probe answers, an outage when it does not."""
    LOCAL = "local"
    """An answer about one pod: its own trouble, whatever the text."""
    GONE = "gone"
    """What was to be stopped is not there: success of a kill."""


def classify(error: CriError) -> ErrorClass:
    """The class of `error`."""
    if error.code in (Code.DEADLINE_EXCEEDED, Code.CANCELED):
        return ErrorClass.HUNG
    if error.connection or NOT_INITIALIZED in error.message:
        return ErrorClass.RETRYABLE
    if error.code is Code.UNIMPLEMENTED:
        return ErrorClass.TERMINAL
    if error.code is Code.NOT_FOUND:
        return ErrorClass.GONE
    return ErrorClass.LOCAL


class BarrierError(Exception):
    """Base: an operation was not carried out, or its result is not known."""


class BarrierTimeout(BarrierError):
    """The deadline passed while the barrier was closed, or while the operation ran."""


class BarrierFailed(BarrierError):
    """The barrier is in state `failed`: retrying cannot help until something else changes."""

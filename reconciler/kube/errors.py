"""Errors of the API server, as one small tree.

ApiError
├── Unauthorized (401)    ├── Forbidden (403)     ├── NotFound (404)
├── Conflict (409)        │   └── AlreadyExists   ├── Gone (410)
├── Invalid (422)         ├── TooManyRequests (429)
└── ServerError (5xx)
TransportError: no answer at all; whether a write took effect is not known.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from reconciler.kube.transport import Response, TransportError

__all__ = [
    "AlreadyExists",
    "ApiError",
    "Conflict",
    "Forbidden",
    "Gone",
    "Invalid",
    "NotFound",
    "ServerError",
    "TooManyRequests",
    "TransportError",
    "Unauthorized",
    "error_from",
]


class ApiError(Exception):
    """The API server answered with an error status."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        """Seconds that the server asks to wait, None when it does not."""


class Unauthorized(ApiError):
    """401"""


class Forbidden(ApiError):
    """403"""


class NotFound(ApiError):
    """404"""


class Conflict(ApiError):
    """409: a stale resourceVersion, or a UID that is not this one."""


class AlreadyExists(Conflict):
    """409 on a create."""


class Gone(ApiError):
    """410: the resourceVersion is too old; list again."""


class Invalid(ApiError):
    """422: refused by validation, or a failed `test` of a JSON patch."""


class TooManyRequests(ApiError):
    """429"""


class ServerError(ApiError):
    """5xx"""


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""
    code: int = 0


_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def error_from(response: Response) -> ApiError:
    """The error of an answer whose status is 400 or above."""
    try:
        body = msgspec.json.decode(response.body, type=_Status)
    except msgspec.MsgspecError:
        body = _Status(message=response.body[:200].decode(errors="replace"))
    return make(response.status, body.reason, body.message, retry_after(response.headers))


def make(status: int, reason: str, message: str, retry_after: float | None = None) -> ApiError:
    """The error class of `status` (and `reason`, for a 409)."""
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExists(status, reason, message, retry_after)
    kind = ServerError if status >= 500 else _BY_STATUS.get(status, ApiError)
    return kind(status, reason, message, retry_after)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that an answer asks to wait; None when it does not, or names a date, as no API server does."""
    text = headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None

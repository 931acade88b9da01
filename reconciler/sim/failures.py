"""What the embedded API server answers when it refuses: a `Status`, as the real one words it."""

from __future__ import annotations

import msgspec

from reconciler.kube.transport import JSON, Response


class ApiFailure(Exception):
    """An answer with status 400 or above."""

    def __init__(self, status: int, reason: str, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        """Seconds, sent as `Retry-After`."""

    def body(self) -> dict[str, object]:
        """The `Status` object."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.status,
        }

    def response(self) -> Response:
        headers = {"content-type": JSON}
        if self.retry_after is not None:
            headers["retry-after"] = str(self.retry_after)
        return Response(status=self.status, headers=headers, body=msgspec.json.encode(self.body()))


def bad_request(message: str) -> ApiFailure:
    return ApiFailure(400, "BadRequest", message)


def not_found(what: str, name: str) -> ApiFailure:
    return ApiFailure(404, "NotFound", f"{what} {name!r} not found")


def conflict(what: str, name: str, why: str) -> ApiFailure:
    return ApiFailure(409, "Conflict", f"Operation cannot be fulfilled on {what} {name!r}: {why}")


def already_exists(what: str, name: str) -> ApiFailure:
    return ApiFailure(409, "AlreadyExists", f"{what} {name!r} already exists")


def expired(version: int, oldest: int) -> ApiFailure:
    return ApiFailure(410, "Expired", f"too old resource version: {version} ({oldest})")


def invalid(message: str) -> ApiFailure:
    return ApiFailure(422, "Invalid", message)


def too_large(version: int, newest: int) -> ApiFailure:
    return ApiFailure(504, "Timeout", f"Too large resource version: {version}, current: {newest}")

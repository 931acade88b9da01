"""What the embedded API server answers when it refuses: a `Status`, as the real one words it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from reconciler.kube.transport import JSON, Response

TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
_CAUSES = {
    "Required value": "FieldValueRequired",
    "Forbidden": "FieldValueForbidden",
    "Not found": "FieldValueNotFound",
    "Unsupported value": "FieldValueNotSupported",
    "Too long": "FieldValueTooLong",
    "Too many": "FieldValueTooMany",
    "Duplicate value": "FieldValueDuplicate",
}
"""How a cause begins → its reason; all others are FieldValueInvalid (`apimachinery/pkg/util/validation/field`)."""


class Which(Protocol):
    """The resource that a refusal speaks of."""

    @property
    def group(self) -> str: ...
    @property
    def plural(self) -> str: ...
    @property
    def kind(self) -> str: ...


@dataclass(frozen=True)
class Cause:
    """One thing that is wrong with an object."""

    field: str
    says: str

    def body(self) -> dict[str, str]:
        reason = next((r for begin, r in _CAUSES.items() if self.says.startswith(begin)), "FieldValueInvalid")
        return {"reason": reason, "message": self.says, "field": self.field}


class ApiFailure(Exception):
    """An answer with status 400 or above."""

    def __init__(
        self, status: int, reason: str, message: str, *, retry_after: int | None = None, **status_fields: Any
    ) -> None:
        """`status_fields`: further ones of the `Status`, `details` above all."""
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        """Seconds, sent as `Retry-After`."""
        self._fields = status_fields

    def body(self) -> dict[str, object]:
        """The `Status` object."""
        reason = {"reason": self.reason} if self.reason else {}
        head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message}
        return {**head, **reason, **self._fields, "code": self.status}

    def response(self) -> Response:
        headers = {"content-type": JSON}
        if self.retry_after is not None:
            headers["retry-after"] = str(self.retry_after)
        return Response(status=self.status, headers=headers, body=msgspec.json.encode(self.body()))


class NoSuchPath(ApiFailure):
    """A path of no API group: answered in plain text, before anything that knows of `Status`."""

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found")

    def response(self) -> Response:
        return Response(404, {"content-type": "text/plain; charset=utf-8"}, b"404 page not found\n")


def bad_request(message: str) -> ApiFailure:
    return ApiFailure(400, "BadRequest", message)


def not_found(which: Which, name: str) -> ApiFailure:
    return ApiFailure(404, "NotFound", f'{resource(which)} "{name}" not found', details=_details(which, name))


def unknown_resource() -> ApiFailure:
    return ApiFailure(404, "NotFound", "the server could not find the requested resource", details={})


def not_offered() -> ApiFailure:
    message = "the server does not allow this method on the requested resource"
    return ApiFailure(405, "MethodNotAllowed", message, details={})


def unsupported(types: Sequence[str]) -> ApiFailure:
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(types)}"
    return ApiFailure(415, "UnsupportedMediaType", message)


def conflict(which: Which, name: str, why: str) -> ApiFailure:
    message = f'Operation cannot be fulfilled on {resource(which)} "{name}": {why}'
    return ApiFailure(409, "Conflict", message, details=_details(which, name))


def already_exists(which: Which, name: str, *, dying: bool) -> ApiFailure:
    message = f'{"object is being deleted: " if dying else ""}{resource(which)} "{name}" already exists'
    return ApiFailure(409, "AlreadyExists", message, details=_details(which, name))


def expired(version: int, oldest: int) -> ApiFailure:
    return ApiFailure(410, "Expired", f"too old resource version: {version} ({oldest})")


def token_expired(token: str) -> ApiFailure:
    """With another token, by which the rest can be read as it is now."""
    return ApiFailure(410, "Expired", TOO_OLD, metadata={"continue": token})


def invalid(which: Which, name: str, causes: Sequence[Cause]) -> ApiFailure:
    what = ".".join(filter(None, (which.kind, which.group)))
    said = [f"{cause.field}: {cause.says}" for cause in causes]
    text = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    details: dict[str, Any] = {"name": name, "kind": which.kind, "causes": [cause.body() for cause in causes]}
    if which.group:
        details["group"] = which.group
    return ApiFailure(422, "Invalid", f'{what} "{name}" is invalid: {text}', details=details)


def invalid_options(kind: str, cause: Cause) -> ApiFailure:
    """Of parameters: `kind` is ListOptions, CreateOptions …"""
    details = {"group": "meta.k8s.io", "kind": kind, "causes": [cause.body()]}
    message = f'{kind}.meta.k8s.io "" is invalid: {cause.field}: {cause.says}'
    return ApiFailure(422, "Invalid", message, details=details)


def unprocessable() -> ApiFailure:
    """A JSON patch that cannot be carried out."""
    message = "the server rejected our request due to an error in our request"
    return ApiFailure(422, "Invalid", message, details={})


def too_large(version: int, newest: int) -> ApiFailure:
    message = f"Timeout: Too large resource version: {version}, current: {newest}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return ApiFailure(504, "Timeout", message, details={"causes": causes, "retryAfterSeconds": 1})


def resource(which: Which) -> str:
    """`pods`, `leases.coordination.k8s.io`."""
    return ".".join(filter(None, (which.plural, which.group)))


def _details(which: Which, name: str) -> dict[str, str]:
    group = {"group": which.group} if which.group else {}
    return {"name": name, **group, "kind": which.plural}

"""CRI errors are classed by status and by where they arose, never by the words of an answer."""

from __future__ import annotations

import pytest

from reconciler.barrier.errors import ErrorClass, classify
from reconciler.cri.api import Code, CriError


@pytest.mark.parametrize(
    ("code", "message", "connection", "expected"),
    [
        (Code.UNAVAILABLE, "connect: no such file or directory", True, ErrorClass.OUTAGE),
        (Code.UNAVAILABLE, "error reading from server: EOF", True, ErrorClass.OUTAGE),
        (Code.UNKNOWN, "server is not initialized yet", False, ErrorClass.OUTAGE),
        (Code.UNIMPLEMENTED, "unknown service runtime.v1.RuntimeService", False, ErrorClass.TERMINAL),
        (Code.DEADLINE_EXCEEDED, "context deadline exceeded", False, ErrorClass.HUNG),
        (Code.CANCELED, "context canceled", False, ErrorClass.HUNG),
        (Code.NOT_FOUND, "an error occurred when try to find container", False, ErrorClass.GONE),
        (Code.UNKNOWN, "failed to destroy network: dial tcp: connect: connection refused", False, ErrorClass.POD),
        (Code.UNAVAILABLE, "ttrpc: closed", False, ErrorClass.POD),
    ],
)
def test_an_error_has_its_class(code: Code, message: str, connection: bool, expected: ErrorClass) -> None:
    assert classify(CriError(code, message, connection=connection)) is expected

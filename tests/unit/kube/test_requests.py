"""Typed calls: pages, errors as a tree, what is tried again and what is not."""

import random
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from reconciler.kube.client import Client
from reconciler.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    error_from,
)
from reconciler.kube.resources import CONTROLLERREVISIONS, NODES, PODS
from reconciler.kube.transport import Response, TransportError
from reconciler.sim.clock import run

T = TypeVar("T")


def call(transport: Any, make: Any) -> Any:
    """Run one call of a client in virtual time."""

    async def main() -> Any:
        work: Coroutine[Any, Any, Any] = make(Client(transport, rng=random.Random(1)))
        return await work

    return run(main())


def test_paths() -> None:
    assert NODES.path("", "n1", "status") == "/api/v1/nodes/n1/status"
    assert PODS.path("ns") == "/api/v1/namespaces/ns/pods"
    assert PODS.path() == "/api/v1/pods"
    assert CONTROLLERREVISIONS.path("ns", "x") == "/apis/apps/v1/namespaces/ns/controllerrevisions/x"


def test_a_list_is_read_page_by_page(script: Any) -> None:
    first = script.answer(
        200, {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [script.node("a", 1)]}
    )
    transport = script.Transport([first, script.listed(9, script.node("b", 2))])
    items, version = call(transport, lambda c: c.list(NODES, label_selector="x=y"))
    assert [item.metadata.name for item in items] == ["a", "b"]
    assert version == "9"
    assert [query for _, _, _, query in transport.asked] == [
        {"limit": "500", "labelSelector": "x=y"},
        {"limit": "500", "labelSelector": "x=y", "continue": "more"},
    ]


def test_pages_that_expire_while_read_are_asked_for_all_at_once(script: Any) -> None:
    first = script.answer(
        200, {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [script.node("a", 1)]}
    )
    gone = script.answer(410, script.status(410, "Expired"))
    transport = script.Transport([first, gone, script.listed(12, script.node("b", 2))])
    items, version = call(transport, lambda c: c.list(NODES))
    assert [item.metadata.name for item in items] == ["b"]
    assert version == "12"
    assert transport.asked[-1][3] == {"limit": "0"}


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (410, "Gone", Gone),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooManyRequests),
        (500, "InternalError", ServerError),
        (400, "BadRequest", ApiError),
    ],
)
def test_errors_by_status(script: Any, code: int, reason: str, kind: type[ApiError]) -> None:
    error = error_from(script.answer(code, script.status(code, reason, "why")))
    assert type(error) is kind
    assert str(error) == f"{code} {reason}: why"


def test_an_error_that_is_no_status_keeps_its_text() -> None:
    assert str(error_from(Response(502, {}, b"bad gateway"))) == "502 : bad gateway"


def test_a_read_is_tried_again_on_a_broken_connection(script: Any) -> None:
    transport = script.Transport([TransportError("reset"), script.answer(200, script.node("a", 1))])
    assert call(transport, lambda c: c.get(NODES, "a")).metadata.name == "a"


def test_a_write_that_got_no_answer_is_not_tried_again(script: Any) -> None:
    transport = script.Transport([TransportError("timeout"), script.answer(200, script.node("a", 1))])
    with pytest.raises(TransportError, match="timeout"):
        call(transport, lambda c: c.patch(NODES, "a", {}))
    assert len(transport.asked) == 1


def test_429_waits_as_long_as_the_server_asks_for(script: Any) -> None:
    busy = script.answer(429, script.status(429, "TooManyRequests"), {"retry-after": "2"})
    transport = script.Transport([busy, script.answer(200, script.node("a", 1))])
    assert call(transport, lambda c: c.patch(NODES, "a", {})).metadata.name == "a"
    assert 2.1 <= transport.asked[1][0] <= 2.2


def test_a_long_retry_after_is_left_to_the_caller(script: Any) -> None:
    busy = script.answer(429, script.status(429, "TooManyRequests"), {"retry-after": "60"})
    with pytest.raises(TooManyRequests) as caught:
        call(script.Transport([busy]), lambda c: c.get(NODES, "a"))
    assert caught.value.retry_after == 60


def test_tries_are_bounded(script: Any) -> None:
    transport = script.Transport([script.answer(503, script.status(503, "ServiceUnavailable"))] * 10)
    with pytest.raises(ServerError):
        call(transport, lambda c: c.get(NODES, "a"))
    assert len(transport.asked) == 4


@pytest.mark.parametrize("code", [404, 409, 422, 500])
def test_other_answers_are_final(script: Any, code: int) -> None:
    transport = script.Transport([script.answer(code, script.status(code, "X"))] * 2)
    with pytest.raises(ApiError):
        call(transport, lambda c: c.get(NODES, "a"))
    assert len(transport.asked) == 1


def test_every_request_is_counted_with_its_status(script: Any) -> None:
    counted: list[tuple[str, str]] = []

    class Metrics:
        def request(self, method: str, status: str, seconds: float) -> None:
            counted.append((method, status))

    async def main() -> None:
        transport = script.Transport([TransportError("x"), script.answer(200, script.node("a", 1))])
        await Client(transport, rng=random.Random(1), metrics=Metrics()).get(NODES, "a")

    run(main())
    assert counted == [("GET", "<error>"), ("GET", "200")]


PAGE_OF_A_LOAD_BALANCER = Response(200, {"content-type": "text/html"}, "<html>Wartung, zurück um 9</html>".encode())
NOT_AN_API_SERVER = Response(200, {"content-type": "application/json"}, b'{"message":"maintenance"}')


@pytest.mark.parametrize("given", [PAGE_OF_A_LOAD_BALANCER, NOT_AN_API_SERVER])
@pytest.mark.parametrize(
    "make",
    [
        lambda c: c.get(NODES, "a"),
        lambda c: c.list(NODES),
        lambda c: c.create(NODES, {}),
        lambda c: c.replace(NODES, "a", {}),
        lambda c: c.patch(NODES, "a", {}),
        lambda c: c.delete(NODES, "a"),
    ],
    ids=["get", "list", "create", "replace", "patch", "delete"],
)
def test_a_good_status_over_what_no_api_server_says_is_no_answer(script: Any, given: Response, make: Any) -> None:
    with pytest.raises(TransportError, match="does not speak as an API server"):
        call(script.Transport([given]), make)

"""Typed calls on top of a transport: get, list (paged), create, patch, delete, watch.

Reads are tried again on a broken connection. A write that got no answer is not: the caller reads first,
because it may have taken effect. 429 and 503 mean that nothing was done, so both are tried again.
A good status over something else than was asked for (a load balancer's page) is no answer of the API server.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar, cast

import msgspec

from reconciler.kube.errors import ApiError, Gone, ServerError, TooManyRequests, TransportError, error_from
from reconciler.kube.resources import AnyResource, Resource
from reconciler.kube.store import HasMeta
from reconciler.kube.transport import JSON, MERGE_PATCH, ByteStream, Response, Transport

__all__ = ["Client", "RequestMetrics"]

T = TypeVar("T")

PAGE = 500
"""Objects a page: what kubectl and client-go ask for."""
DRY_RUN = {"dryRun": "All"}
TRIES = 4
RETRY_BASE = 0.2
RETRY_MAX = 5.0
"""Seconds; a longer Retry-After is left to the caller's own backoff."""


class RequestMetrics(Protocol):
    """What is counted of requests: the field's `rest_client_*`."""

    def request(self, method: str, status: str, seconds: float) -> None: ...


class _ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion", "next": "continue"}):
    resource_version: str = ""
    next: str = ""


class _Envelope(msgspec.Struct):
    """Any object of the API."""

    kind: str


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class Client:
    """Raises ApiError subclasses for answers, TransportError when there was none that an API server gives."""

    def __init__(
        self, transport: Transport, *, rng: random.Random | None = None, metrics: RequestMetrics | None = None
    ) -> None:
        self._transport = transport
        self._rng = rng or random.Random()
        self._metrics = metrics
        self._list = msgspec.json.Decoder(_List)
        self._may_write: Callable[[], bool] = _always

    def fenced(self, may_write: Callable[[], bool]) -> Client:
        """This client, but a write is not sent while `may_write()` is false: it raises TransportError."""
        other = copy.copy(self)
        other._may_write = may_write
        return other

    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        response = await self._send("GET", resource.path(namespace, name))
        return _object(resource, response)

    async def raw_list(
        self, resource: AnyResource, namespace: str = "", *, query: Mapping[str, str] | None = None
    ) -> tuple[list[msgspec.Raw], str]:
        """Every object as raw bytes, page by page, and the list's resourceVersion."""
        found: list[msgspec.Raw] = []
        asked = {"limit": str(PAGE), **(query or {})}
        while True:
            try:
                response = await self._send("GET", resource.path(namespace), query=asked, timeout=30.0)
            except Gone:
                if "continue" not in asked:
                    raise
                found, asked = [], {"limit": "0", **(query or {})}  # the pages expired while read: all at once
                continue
            page = self._page(resource, response)
            found.extend(page.items or ())
            if not page.metadata.next:
                return found, page.metadata.resource_version
            asked = {**asked, "continue": page.metadata.next}

    async def list(
        self, resource: Resource[T], namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> tuple[list[T], str]:
        """Live (no resourceVersion asked for, so never from a stale cache): objects, and the list's version."""
        query = selectors(label_selector, field_selector)
        items, version = await self.raw_list(resource, namespace, query=query)
        try:
            return [resource.decode(item) for item in items], version
        except msgspec.MsgspecError as error:
            raise _no_answer(resource, str(error)) from error

    async def create(self, resource: Resource[T], body: Any, namespace: str = "", *, rehearse: bool = False) -> T:
        """With `rehearse` nothing is stored, and an unknown field is an error: every check of the server's is made.

        `body` need not say its kind; a custom resource that does not is refused.
        """
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        query = {**DRY_RUN, "fieldValidation": "Strict"} if rehearse else None
        response = await self._send("POST", resource.path(namespace), query=query, body=body)
        return _object(resource, response)

    async def replace(self, resource: Resource[T], name: str, body: Any, namespace: str = "") -> T:
        response = await self._send("PUT", resource.path(namespace, name), body=body)
        return _object(resource, response)

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        subresource: str = "",
        content_type: str = MERGE_PATCH,
        field_manager: str = "",
        rehearse: bool = False,
    ) -> T:
        """With `rehearse` nothing is stored; every check of the server's is made."""
        query = {**({"fieldManager": field_manager} if field_manager else {}), **(DRY_RUN if rehearse else {})}
        path = resource.path(namespace, name, subresource)
        response = await self._send("PATCH", path, query=query, body=patch, content_type=content_type)
        return _object(resource, response)

    async def delete(
        self,
        resource: AnyResource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
        propagation: str = "Background",
        rehearse: bool = False,
    ) -> None:
        """Raises NotFound when it is not there, Conflict when a precondition does not hold.

        With `rehearse` nothing is deleted; every check of the server's is made.
        """
        conditions = {k: v for k, v in (("uid", uid), ("resourceVersion", resource_version)) if v}
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if conditions:
            options["preconditions"] = conditions
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        query = DRY_RUN if rehearse else None
        response = await self._send("DELETE", resource.path(namespace, name), query=query, body=options)
        try:
            msgspec.json.decode(response.body, type=_Envelope)  # the object, or a Status
        except msgspec.MsgspecError as error:
            raise _no_answer(resource, str(error)) from error

    def watch(
        self, resource: AnyResource, namespace: str, query: Mapping[str, str], *, timeout: float = 15.0
    ) -> AbstractAsyncContextManager[ByteStream]:
        """The raw watch stream; the caller reads its status."""
        return self._transport.stream(resource.path(namespace), query=query, timeout=timeout)

    async def close(self) -> None:
        await self._transport.close()

    def _page(self, resource: AnyResource, response: Response) -> _List:
        try:
            page = self._list.decode(response.body)
        except msgspec.MsgspecError as error:
            raise _no_answer(resource, str(error)) from error
        if not page.metadata.resource_version:  # taken for an empty collection, it would end everything there is
            raise _no_answer(resource, "a list without a resourceVersion")
        return page

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        timeout: float = 10.0,
    ) -> Response:
        encoded = None if body is None else msgspec.json.encode(body)
        for attempt in range(TRIES):
            if method != "GET" and not self._may_write():
                raise TransportError(f"{method} {path}: not sent: we may not write any more")
            error: ApiError | TransportError
            try:
                response = await self._once(method, path, query, encoded, content_type, timeout)
            except TransportError as failed:
                if method != "GET" or attempt == TRIES - 1:
                    raise
                error = failed
            else:
                if response.status < 400:
                    return response
                error = error_from(response)
                if attempt == TRIES - 1 or not _again(error):
                    raise error
            await asyncio.sleep(self._delay(attempt, error))
        raise AssertionError("the last try returns or raises")

    async def _once(
        self, method: str, path: str, query: Mapping[str, str] | None, body: bytes | None, kind: str, timeout: float
    ) -> Response:
        begun = asyncio.get_running_loop().time()
        status = "<error>"
        try:
            response = await self._transport.request(
                method, path, query=query, body=body, content_type=kind, timeout=timeout
            )
            status = str(response.status)
            return response
        finally:
            if self._metrics is not None:
                self._metrics.request(method, status, asyncio.get_running_loop().time() - begun)

    def _delay(self, attempt: int, error: Exception) -> float:
        asked = error.retry_after if isinstance(error, ApiError) else None
        span = min(RETRY_BASE * 2.0**attempt, RETRY_MAX)
        return (asked or 0.0) + span * (0.5 + self._rng.random() / 2)


def _always() -> bool:
    return True


def _object(resource: Resource[T], response: Response) -> T:
    try:
        found = resource.decode(response.body)
    except msgspec.MsgspecError as error:
        raise _no_answer(resource, str(error)) from error
    if not cast(HasMeta, found).metadata.name:
        raise _no_answer(resource, "an object without a name")
    return found


def _no_answer(resource: AnyResource, why: str) -> TransportError:
    return TransportError(f"{resource.plural}: what answered does not speak as an API server: {why}")


def selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    """Query parameters of the two selectors that are not empty."""
    pairs = (("labelSelector", label_selector), ("fieldSelector", field_selector))
    return {key: value for key, value in pairs if value}


def _again(error: ApiError) -> bool:
    refused = isinstance(error, TooManyRequests) or (isinstance(error, ServerError) and error.status == 503)
    return refused and (error.retry_after is None or error.retry_after <= RETRY_MAX)

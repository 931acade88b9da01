"""RuntimeClasses that are made for handlers: bound to the nodes that have them, never taken from others.

One that is to change is deleted and made again: its handler is immutable, and so no right to change any is needed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from reconciler.api import names, quantity
from reconciler.api.meta import RuntimeClass
from reconciler.api.noderuntime import Handler, NodeRuntime
from reconciler.kube.client import Client
from reconciler.kube.errors import AlreadyExists, ApiError, Forbidden, NotFound
from reconciler.kube.resources import RUNTIMECLASSES

Altered = dict[str, tuple[str, dict[str, Any]]]
"""Name → resourceVersion of a RuntimeClass that was stored otherwise than asked, and what was asked."""


class ForeignClass(Exception):
    """A RuntimeClass of a wanted name exists and is not ours."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"RuntimeClass {name} exists and is not ours; remove it, or name another one in handlers[].runtimeClass"
        )
        self.name = name


class RefusedClass(Exception):
    """The API server would not take a RuntimeClass as it was asked for."""

    def __init__(self, place: int, why: str) -> None:
        super().__init__(f"spec.handlers[{place}].runtimeClass: {why}")


def body_of(runtime: NodeRuntime, handler: Handler) -> dict[str, Any]:
    """The RuntimeClass of `handler`. Raises ValueError when it asks for none."""
    wanted = handler.runtime_class
    if wanted is None:
        raise ValueError(f"handler {handler.name} asks for no RuntimeClass")
    body: dict[str, Any] = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {
            "name": wanted.name,
            "labels": {names.RUNTIME_LABEL: runtime.metadata.name},
            "annotations": {names.UID_ANNOTATION: runtime.metadata.uid},
        },
        "handler": handler.name,
        "scheduling": {"nodeSelector": _where(runtime), "tolerations": []},
    }
    if wanted.overhead is not None:
        body["overhead"] = wanted.overhead
    return body


def owned(existing: RuntimeClass, runtime: NodeRuntime) -> bool:
    """Whether `existing` was made for this NodeRuntime, or for one of its name that is gone: a backup brings it with
    the UID of then."""
    made_for = existing.metadata.annotations.get(names.UID_ANNOTATION, "")
    ours = existing.metadata.labels.get(names.RUNTIME_LABEL) == runtime.metadata.name
    return made_for == runtime.metadata.uid or (made_for != "" and ours)


async def ensure(
    client: Client, known: list[RuntimeClass], runtime: NodeRuntime, altered: Altered
) -> list[RuntimeClass]:
    """Make what is missing or other than it should be; returns what was made, or found.

    `altered` is kept from call to call: what a webhook made of our request is left, or it would be made for ever.

    Raises ForeignClass, RefusedClass, ApiError, TransportError.
    """
    made = []
    existing = {c.metadata.name: c for c in known}
    for place, handler in enumerate(runtime.spec.handlers):
        if handler.runtime_class is None:
            continue
        there = existing.get(handler.runtime_class.name)
        replaced = there is not None and owned(there, runtime)
        if there is not None and replaced and _as_asked(there, runtime, handler):
            continue
        asked = body_of(runtime, handler)
        if there is not None and altered.get(there.metadata.name) == (there.metadata.resource_version, asked):
            continue
        try:
            if there is not None and replaced:
                await _rehearse(client, runtime, handler)
                await client.delete(RUNTIMECLASSES, there.metadata.name, uid=there.metadata.uid)
            made.append(await _make(client, runtime, handler, altered))
        except Forbidden:
            raise
        except ApiError as error:
            if error.status not in (400, 422):
                raise
            raise RefusedClass(place, error.message) from error
    return made


def _as_asked(there: RuntimeClass, runtime: NodeRuntime, handler: Handler) -> bool:
    wanted = None if handler.runtime_class is None else handler.runtime_class.overhead
    scheduling = there.scheduling or {}
    return (
        there.metadata.annotations.get(names.UID_ANNOTATION) == runtime.metadata.uid
        and there.handler == handler.name
        and quantity.same(_fixed(there.overhead), _fixed(wanted))
        and scheduling.get("nodeSelector") == _where(runtime)
        and not scheduling.get("tolerations")
    )


def _where(runtime: NodeRuntime) -> dict[str, str]:
    """The node selector that binds a class to the nodes that have its handler."""
    return {names.present_label(runtime.metadata.name): names.PRESENT_LABEL_VALUE}


def _fixed(overhead: dict[str, Any] | None) -> dict[str, Any]:
    found: dict[str, Any] = (overhead or {}).get("podFixed") or {}
    return found


async def _rehearse(client: Client, runtime: NodeRuntime, handler: Handler) -> None:
    """What takes the place of another must be one that the API server takes: it judges that before the name."""
    try:
        await client.create(RUNTIMECLASSES, body_of(runtime, handler), rehearse=True)
    except AlreadyExists:
        return


async def _make(client: Client, runtime: NodeRuntime, handler: Handler, altered: Altered) -> RuntimeClass:
    """The new one; or one of ours that was not known yet, and is looked at when it is."""
    asked = body_of(runtime, handler)
    name = asked["metadata"]["name"]
    try:
        new = await client.create(RUNTIMECLASSES, asked)
    except AlreadyExists as error:
        live = await client.get(RUNTIMECLASSES, name)
        if not owned(live, runtime):
            raise ForeignClass(name) from error
        return live
    if not _as_asked(new, runtime, handler):
        altered[name] = (new.metadata.resource_version, asked)
    return new


async def remove(
    client: Client, known: list[RuntimeClass], runtime: NodeRuntime, *, keep: Collection[str] = ()
) -> None:
    """Delete those that are ours, by UID, but for the names in `keep`. Raises ApiError, TransportError."""
    for existing in known:
        if owned(existing, runtime) and existing.metadata.name not in keep:
            try:
                await client.delete(RUNTIMECLASSES, existing.metadata.name, uid=existing.metadata.uid)
            except NotFound:
                continue

"""RuntimeClasses that are made for handlers: bound to the nodes that have them, never taken from others."""

from __future__ import annotations

from typing import Any

from reconciler.api import names
from reconciler.api.meta import RuntimeClass
from reconciler.api.noderuntime import Handler, NodeRuntime
from reconciler.kube.client import Client
from reconciler.kube.errors import AlreadyExists, NotFound
from reconciler.kube.resources import RUNTIMECLASSES


class ForeignClass(Exception):
    """A RuntimeClass of a wanted name exists and is not ours."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"RuntimeClass {name} exists and is not ours; remove it, or name another one in handlers[].runtimeClass"
        )
        self.name = name


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
        "scheduling": {
            "nodeSelector": {names.present_label(runtime.metadata.name): names.PRESENT_LABEL_VALUE},
            "tolerations": [],
        },
    }
    if wanted.overhead is not None:
        body["overhead"] = wanted.overhead
    return body


def owned(existing: RuntimeClass, runtime: NodeRuntime) -> bool:
    """Whether `existing` was made for this very NodeRuntime."""
    return existing.metadata.annotations.get(names.UID_ANNOTATION) == runtime.metadata.uid


async def ensure(client: Client, known: list[RuntimeClass], runtime: NodeRuntime) -> list[RuntimeClass]:
    """Make what is missing; returns what was made. Raises ForeignClass, ApiError, TransportError.

    A handler is immutable: a class of ours with another handler is deleted and made again.
    """
    made = []
    existing = {c.metadata.name: c for c in known}
    for handler in runtime.spec.handlers:
        if handler.runtime_class is None:
            continue
        there = existing.get(handler.runtime_class.name)
        if there is not None and owned(there, runtime):
            if there.handler == handler.name:
                continue
            await client.delete(RUNTIMECLASSES, there.metadata.name, uid=there.metadata.uid)
        made.append(await _make(client, runtime, handler, handler.runtime_class.name))
    return made


async def _make(client: Client, runtime: NodeRuntime, handler: Handler, name: str) -> RuntimeClass:
    try:
        return await client.create(RUNTIMECLASSES, body_of(runtime, handler))
    except AlreadyExists as error:
        live = await client.get(RUNTIMECLASSES, name)
        if not owned(live, runtime):
            raise ForeignClass(name) from error
        return live


async def remove(client: Client, known: list[RuntimeClass], runtime: NodeRuntime) -> None:
    """Delete those that are ours, by UID. Raises ApiError, TransportError."""
    for existing in known:
        if owned(existing, runtime):
            try:
                await client.delete(RUNTIMECLASSES, existing.metadata.name, uid=existing.metadata.uid)
            except NotFound:
                continue

"""RuntimeClasses that somebody alters on their way to the API server."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.api import names
from reconciler.api.meta import ObjectMeta, RuntimeClass
from reconciler.api.noderuntime import Handler, NodeRuntime, NodeRuntimeSpec, RuntimeClassSpec
from reconciler.controller import classes

KATA = NodeRuntime(
    metadata=ObjectMeta(name="kata", uid="u"),
    spec=NodeRuntimeSpec(handlers=(Handler(name="kata-qemu", runtime_class=RuntimeClassSpec(name="kata-qemu")),)),
)
TOLERATION = {"key": "pool", "operator": "Exists"}


class Api:
    """An API server with a webhook that adds a toleration to every RuntimeClass."""

    def __init__(self) -> None:
        self.there: dict[str, RuntimeClass] = {}
        self.writes: list[str] = []

    async def create(self, resource: Any, body: Any, *, rehearse: bool = False) -> RuntimeClass:
        made = msgspec.convert(body, RuntimeClass)
        if rehearse:
            return made
        self.writes.append("create")
        version = str(len(self.writes))
        scheduling = {**body["scheduling"], "tolerations": [TOLERATION]}
        meta = msgspec.structs.replace(made.metadata, uid=version, resource_version=version)
        made = msgspec.structs.replace(made, metadata=meta, scheduling=scheduling)
        self.there[made.metadata.name] = made
        return made

    async def delete(self, resource: Any, name: str, *, uid: str) -> None:
        self.writes.append("delete")
        del self.there[name]

    def edit(self, selector: dict[str, str]) -> None:
        old = self.there["kata-qemu"]
        meta = msgspec.structs.replace(old.metadata, resource_version="edited")
        self.there["kata-qemu"] = msgspec.structs.replace(old, metadata=meta, scheduling={"nodeSelector": selector})


async def test_what_a_webhook_adds_is_left_and_an_edit_after_that_is_taken_back() -> None:
    api: Any = Api()
    altered: classes.Altered = {}
    for _ in range(3):
        await classes.ensure(api, list(api.there.values()), KATA, altered)
    assert api.writes == ["create"]
    api.edit({"pool": "a"})
    for _ in range(3):
        await classes.ensure(api, list(api.there.values()), KATA, altered)
    assert api.writes == ["create", "delete", "create"]
    assert api.there["kata-qemu"].scheduling == {
        "nodeSelector": {names.present_label("kata"): "present"},
        "tolerations": [TOLERATION],
    }


async def test_a_change_that_is_asked_for_reaches_one_that_a_webhook_altered() -> None:
    api: Any = Api()
    altered: classes.Altered = {}
    await classes.ensure(api, [], KATA, altered)
    overhead = RuntimeClassSpec(name="kata-qemu", overhead={"podFixed": {"cpu": "1"}})
    spec = NodeRuntimeSpec(handlers=(Handler(name="kata-qemu", runtime_class=overhead),))
    changed = msgspec.structs.replace(KATA, spec=spec)
    for _ in range(3):
        await classes.ensure(api, list(api.there.values()), changed, altered)
    assert api.writes == ["create", "delete", "create"]
    assert api.there["kata-qemu"].overhead == {"podFixed": {"cpu": "1"}}

"""RuntimeClasses that somebody alters on their way to the API server, or brings back from a backup."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reconciler.api import names
from reconciler.api.meta import ObjectMeta, RuntimeClass
from reconciler.api.noderuntime import Handler, NodeRuntime, NodeRuntimeSpec, RuntimeClassSpec
from reconciler.controller import classes
from reconciler.kube.errors import AlreadyExists

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
        if made.metadata.name in self.there:
            raise AlreadyExists(409, "AlreadyExists", f"{made.metadata.name} already exists")
        if rehearse:
            return made
        self.writes.append("create")
        version = str(len(self.writes))
        scheduling = {**body["scheduling"], "tolerations": [TOLERATION]}
        meta = msgspec.structs.replace(made.metadata, uid=version, resource_version=version)
        made = msgspec.structs.replace(made, metadata=meta, scheduling=scheduling)
        self.there[made.metadata.name] = made
        return made

    async def get(self, resource: Any, name: str) -> RuntimeClass:
        return self.there[name]

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


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "not seen yet"])
async def test_one_of_a_noderuntime_of_its_name_that_is_gone_is_made_anew(seen: bool) -> None:
    """A backup brings it back with the UID of then; the NodeRuntime itself has a new one."""
    api: Any = Api()
    altered: classes.Altered = {}
    await classes.ensure(api, [], KATA, altered)
    again = msgspec.structs.replace(KATA, metadata=ObjectMeta(name="kata", uid="another"))
    made = [] if seen else await classes.ensure(api, [], again, altered)
    assert made == ([] if seen else [api.there["kata-qemu"]])
    for _ in range(3):
        await classes.ensure(api, list(api.there.values()), again, altered)
    assert api.writes == ["create", "delete", "create"]
    assert api.there["kata-qemu"].metadata.annotations == {names.UID_ANNOTATION: "another"}


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        ({names.RUNTIME_LABEL: "other"}, {names.UID_ANNOTATION: "then"}),  # of a NodeRuntime that may be there
        ({names.RUNTIME_LABEL: "kata"}, {}),  # a label is soon copied
        ({}, {names.UID_ANNOTATION: "then"}),
    ],
)
async def test_one_that_does_not_bear_all_marks_of_its_name_is_left_alone(
    labels: dict[str, str], annotations: dict[str, str]
) -> None:
    api: Any = Api()
    meta = ObjectMeta(name="kata-qemu", uid="1", labels=labels, annotations=annotations)
    theirs = api.there["kata-qemu"] = RuntimeClass(metadata=meta, handler="kata-qemu")
    with pytest.raises(classes.ForeignClass):
        await classes.ensure(api, [theirs], KATA, {})
    await classes.remove(api, [theirs], KATA)
    assert api.writes == []

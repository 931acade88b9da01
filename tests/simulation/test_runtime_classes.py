"""RuntimeClasses follow the spec: changed, renamed, taken out, and told of when the API server does not take them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from reconciler.api import names
from reconciler.kube.resources import RUNTIMECLASSES
from reconciler.sim import kinds
from reconciler.sim.loops import BINARY, HANDLER, RUNTIME, manifest, phase

Drive = Callable[..., None]

PRESENT = names.present_label(RUNTIME)
INSTALL = phase("seconds=1", f"drop={BINARY}")
UNINSTALL = phase("seconds=1", f"take={BINARY}")


def with_class(**runtime_class: Any) -> dict[str, Any]:
    """A NodeRuntime whose handler asks for this RuntimeClass."""
    body = manifest(install=INSTALL, uninstall=UNINSTALL)
    body["spec"]["handlers"][0]["runtimeClass"] = {"name": HANDLER, **runtime_class}
    return body


def classes(s: Any) -> dict[str, Any]:
    """Name → overhead of the RuntimeClasses that are there."""
    return {name: r.object.get("overhead") for (_, name), r in s.cluster.server.store.all(kinds.RUNTIMECLASSES)}


def scheduling(s: Any) -> Any:
    record = s.cluster.server.store.get(kinds.RUNTIMECLASSES, ("", HANDLER))
    return None if record is None else record.object.get("scheduling")


def writes(s: Any) -> int:
    return sum(1 for a in s.cluster.server.audit if a.target.kind is kinds.RUNTIMECLASSES and a.method != "WATCH")


def test_a_changed_overhead_reaches_the_class_and_another_text_for_it_does_not(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(with_class(overhead={"podFixed": {"cpu": "1"}}))
        await s.ready()
        await s.patch(with_class(overhead={"podFixed": {"cpu": "250m", "memory": "160Mi"}})["spec"])
        await s.until(lambda: classes(s) == {HANDLER: {"podFixed": {"cpu": "250m", "memory": "160Mi"}}})
        await asyncio.sleep(60)
        before = writes(s)
        await s.patch(with_class(overhead={"podFixed": {"cpu": "0.25", "memory": "163840Ki"}})["spec"])
        await asyncio.sleep(60)
        assert writes(s) == before
        await s.delete()
        await s.gone()

    drive(main)


def test_a_renamed_class_goes_when_no_node_carries_the_revision_that_asked_for_it(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(with_class())
        await s.ready()
        await s.patch(with_class(name="other")["spec"])
        await s.until(lambda: "other" in classes(s))
        while set(s.stages().values()) != {"ready"} or s.status()["nodes"]["ready"] != 2:
            assert set(classes(s)) == {HANDLER, "other"}
            await asyncio.sleep(0.5)
        await s.until(lambda: set(classes(s)) == {"other"})
        await s.until(lambda: s.status()["runtimeClasses"] == ["other"])
        assert s.cluster.server.store.get(kinds.RUNTIMECLASSES, ("", "other")).object["handler"] == HANDLER

    drive(main)


def test_a_class_that_is_not_asked_for_any_more_goes(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(with_class())
        await s.ready()
        body = with_class()
        del body["spec"]["handlers"][0]["runtimeClass"]
        await s.patch(body["spec"])
        await s.until(lambda: classes(s) == {})

    drive(main)


@pytest.mark.parametrize(
    "edit",
    [
        {"nodeSelector": {PRESENT: "present", "pool": "a"}},
        {"nodeSelector": {PRESENT: None}},
        {"tolerations": [{"key": "a", "operator": "Exists"}]},
        None,
    ],
    ids=["selects more", "selects nothing", "tolerates", "scheduling taken out"],
)
def test_an_edit_of_its_scheduling_is_taken_back(drive: Drive, edit: Any) -> None:
    async def main(s: Any) -> None:
        await s.create(with_class())
        await s.ready()
        good = scheduling(s)
        assert good == {"nodeSelector": {PRESENT: "present"}, "tolerations": []}
        await s.cluster.admin.patch(RUNTIMECLASSES, HANDLER, {"scheduling": edit})
        assert scheduling(s) != good
        await s.until(lambda: scheduling(s) == good, 5)
        await asyncio.sleep(60)
        before = writes(s)
        await asyncio.sleep(60)
        assert (writes(s), scheduling(s)) == (before, good)
        assert set(s.stages().values()) == {"ready"}

    drive(main)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": "Not_A_Name"}, 'metadata.name: Invalid value: "Not_A_Name"'),
        ({"overhead": {"podFixed": {"memory": "plenty"}}}, "overhead.podFixed.memory: quantities must match"),
    ],
)
def test_a_class_that_no_api_server_would_take_is_told_touches_nothing_and_heals(
    drive: Drive, wrong: dict[str, Any], words: str
) -> None:
    async def main(s: Any) -> None:
        await s.create(with_class())
        await s.ready()
        before = s.touches()
        await s.patch(with_class(**wrong)["spec"])
        message = await s.says("Degraded", "True", "InvalidRuntimeClass")
        assert message.startswith("spec.handlers[0].runtimeClass: RuntimeClass")
        assert words in message
        await asyncio.sleep(120)
        assert s.touches() == before
        assert classes(s) == {HANDLER: None}
        await s.patch({"handlers": with_class()["spec"]["handlers"]})
        await s.says("Degraded", "False", "AsExpected")
        assert s.touches() == before

    drive(main)


def test_one_that_a_backup_brought_back_is_made_anew_for_the_noderuntime_of_its_name(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(with_class())
        await s.ready()
        backup = s.cluster.server.store.get(kinds.RUNTIMECLASSES, ("", HANDLER)).object
        meta = {key: backup["metadata"][key] for key in ("name", "labels", "annotations")}
        await s.delete()
        await s.gone()
        await s.cluster.admin.create(RUNTIMECLASSES, {**backup, "metadata": meta})
        await s.create(with_class())
        await s.ready()
        anew = s.cluster.server.store.get(kinds.RUNTIMECLASSES, ("", HANDLER)).object["metadata"]
        assert anew["annotations"] == {names.UID_ANNOTATION: s.runtime()["metadata"]["uid"]}
        await s.delete()
        await s.gone()

    drive(main)

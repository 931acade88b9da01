"""The D-Bus client against a bus that is played: calls, jobs, the transient timer, a lost connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from dbus_fast import Message, MessageType, Variant

from reconciler.systemd.api import SystemdError, UnitState
from reconciler.systemd.bus import MANAGER, MANAGER_PATH, PROPERTIES, SystemBus
from reconciler.systemd.client import DbusSystemd, unit_path

UNIT = {
    "LoadState": Variant("s", "loaded"),
    "ActiveState": Variant("s", "active"),
    "SubState": Variant("s", "running"),
    "InvocationID": Variant("ay", b"\x01\xab"),
    "Job": Variant("(uo)", [0, "/"]),
    "UnitFileState": Variant("s", "enabled"),
    "FragmentPath": Variant("s", "/lib/systemd/system/containerd.service"),
    "RequiredBy": Variant("as", ["k3s.service"]),
    "BoundBy": Variant("as", ["a.service"]),
}
SERVICE = {
    "Result": Variant("s", "success"),
    "Restart": Variant("s", "always"),
    "MainPID": Variant("u", 700),
    "ExecMainStartTimestampMonotonic": Variant("t", 12_500_000),
    "TimeoutStartUSec": Variant("t", 90_000_000),
    "ExecStart": Variant(
        "a(sasbttttuii)", [["/usr/bin/containerd", ["/usr/bin/containerd", "-c", "x"], False, 0, 0, 0, 0, 0, 0, 0]]
    ),
}


class Bus:
    """One connection; `job` is the result that a job ends with, or None for one that never ends."""

    def __init__(self) -> None:
        self.connected = True
        self.calls: list[tuple[str, list[Any]]] = []
        self.job: str | None = "done"
        self.errors: dict[str, str] = {}
        self._handlers: list[Callable[[Message], Any]] = []
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def call(self, msg: Message) -> Message | None:
        self.calls.append((msg.member or "", msg.body))
        msg.serial = len(self.calls)
        error = self.errors.get(msg.member or "")
        if error is not None:
            return Message.new_error(msg, error, "refused")
        match msg.member:
            case "LoadUnit":
                return Message.new_method_return(msg, "o", [unit_path(msg.body[0])])
            case "GetAll":
                found = UNIT if msg.body[0].endswith(".Unit") else SERVICE
                return Message.new_method_return(msg, "a{sv}", [found])
            case "RestartUnit" | "StartUnit" | "StopUnit":
                if self.job is not None:  # may come before the answer does
                    self.signal(MANAGER_PATH, MANAGER, "JobRemoved", "uoss", [7, "/job/7", msg.body[0], self.job])
                return Message.new_method_return(msg, "o", ["/job/7"])
            case _:
                return Message.new_method_return(msg)

    def signal(self, path: str, interface: str, member: str, signature: str, body: list[Any]) -> None:
        message = Message.new_signal(path, interface, member, signature, body)
        for handler in self._handlers:
            handler(message)

    def add_message_handler(self, handler: Callable[[Message], Any]) -> None:
        self._handlers.append(handler)

    def disconnect(self) -> None:
        self.connected = False
        if not self._end.done():
            self._end.set_result(None)

    async def wait_for_disconnect(self) -> None:
        await self._end


class Machine:
    """Makes a new connection whenever one is dialled."""

    def __init__(self) -> None:
        self.buses: list[Bus] = []

    async def dial(self, address: str) -> Bus:
        self.buses.append(Bus())
        return self.buses[-1]


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def systemd(machine: Machine) -> DbusSystemd:
    return DbusSystemd(bus=SystemBus("unix:path=/x", dialler=machine.dial))


async def test_a_unit_is_read_in_one_go(systemd: DbusSystemd) -> None:
    assert await systemd.unit("containerd.service") == UnitState(
        load_state="loaded",
        active_state="active",
        sub_state="running",
        result="success",
        restart="always",
        main_pid=700,
        invocation_id="01ab",
        active_enter_monotonic=12.5,
        job=False,
        unit_file_state="enabled",
        fragment_path="/lib/systemd/system/containerd.service",
        exec_start=("/usr/bin/containerd", "-c", "x"),
        timeout_start=90.0,
        required_by=("a.service", "k3s.service"),
    )


async def test_every_connection_subscribes(systemd: DbusSystemd, machine: Machine) -> None:
    await systemd.unit("containerd.service")
    machine.buses[0].disconnect()
    await systemd.unit("containerd.service")
    assert [sum(1 for member, _ in bus.calls if member == "Subscribe") for bus in machine.buses] == [1, 1]


async def test_a_restart_answers_with_the_result_of_its_job(systemd: DbusSystemd, machine: Machine) -> None:
    assert await systemd.restart("containerd.service", timeout=5) == "done"
    machine.buses[0].job = "failed"
    assert await systemd.start("containerd.service", timeout=5) == "failed"
    assert machine.buses[0].calls[-2:] == [
        ("RestartUnit", ["containerd.service", "replace"]),
        ("StartUnit", ["containerd.service", "replace"]),
    ]


async def test_a_job_that_does_not_end_in_time_is_a_timeout(systemd: DbusSystemd, machine: Machine) -> None:
    await systemd.unit("containerd.service")
    machine.buses[0].job = None
    with pytest.raises(SystemdError) as caught:
        await systemd.restart("containerd.service", timeout=0.01)
    assert caught.value.name == "Timeout"


async def test_a_bus_that_goes_away_ends_the_wait_for_a_job(systemd: DbusSystemd, machine: Machine) -> None:
    await systemd.unit("containerd.service")
    bus = machine.buses[0]
    bus.job = None
    waiting = asyncio.create_task(systemd.restart("containerd.service", timeout=5))
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(bus.disconnect)
    with pytest.raises(SystemdError) as caught:
        await waiting
    assert caught.value.name == "Disconnected"


async def test_the_undo_timer_is_armed_as_a_transient_unit(systemd: DbusSystemd, machine: Machine) -> None:
    await systemd.arm("runtime-reconciler-undo", after=45, argv=("/bin/sh", "/x.sh"))
    member, body = machine.buses[0].calls[-1]
    assert (member, body[:2]) == ("StartTransientUnit", ["runtime-reconciler-undo.timer", "replace"])
    timer = {key: value.value for key, value in body[2]}
    assert timer["TimersMonotonic"] == [["OnActiveSec", 45_000_000]]
    assert timer["AccuracyUSec"] == 100_000
    ((service, properties),) = body[3]
    assert service == "runtime-reconciler-undo.service"
    assert {key: value.value for key, value in properties}["ExecStart"] == [["/bin/sh", ["/bin/sh", "/x.sh"], False]]


async def test_disarming_what_is_not_armed_is_fine(systemd: DbusSystemd, machine: Machine) -> None:
    await systemd.unit("containerd.service")
    machine.buses[0].errors["StopUnit"] = "org.freedesktop.systemd1.NoSuchUnit"
    await systemd.disarm("runtime-reconciler-undo")
    machine.buses[0].errors["StopUnit"] = "org.freedesktop.DBus.Error.AccessDenied"
    with pytest.raises(SystemdError, match="AccessDenied: StopUnit: refused"):
        await systemd.disarm("runtime-reconciler-undo")


async def test_a_watch_hears_of_its_unit_only_and_outlives_other_waits(systemd: DbusSystemd, machine: Machine) -> None:
    heard = 0

    def changed() -> None:
        nonlocal heard
        heard += 1

    stop = await systemd.watch("containerd.service", changed)
    await systemd.restart("containerd.service", timeout=5)
    begun = heard
    bus = machine.buses[0]
    for unit in ("containerd.service", "kubelet.service"):
        bus.signal(unit_path(unit), PROPERTIES, "PropertiesChanged", "sa{sv}as", ["x", {}, []])
    assert heard == begun + 1
    await stop()
    bus.signal(unit_path("containerd.service"), PROPERTIES, "PropertiesChanged", "sa{sv}as", ["x", {}, []])
    assert heard == begun + 1


def test_a_units_path_is_escaped_as_systemd_does() -> None:
    assert unit_path("containerd.service") == "/org/freedesktop/systemd1/unit/containerd_2eservice"
    assert unit_path("1a-b.timer") == "/org/freedesktop/systemd1/unit/_31a_2db_2etimer"


async def test_a_bus_that_is_not_there_is_told(machine: Machine) -> None:
    async def refuse(address: str) -> Bus:
        raise FileNotFoundError(2, "No such file or directory")

    with pytest.raises(SystemdError) as caught:
        await DbusSystemd(bus=SystemBus("unix:path=/x", dialler=refuse)).unit("containerd.service")
    assert caught.value.name == "Disconnected"
    assert MessageType.ERROR.name not in str(caught.value)

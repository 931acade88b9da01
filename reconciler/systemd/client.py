"""systemd over D-Bus: units, jobs, a transient timer.

May import `api` and `bus`. The interface is org.freedesktop.systemd1 (its manual page of that name).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from dbus_fast import Message, Variant

from reconciler.systemd.api import SystemdError, UnitState
from reconciler.systemd.bus import MANAGER, MANAGER_PATH, PROPERTIES, SystemBus

UNIT = "org.freedesktop.systemd1.Unit"
SERVICE = "org.freedesktop.systemd1.Service"
ADDRESS = "unix:path=/host/run/dbus/system_bus_socket"
"""The host's system bus, seen through the agent's one mount."""
NO_SUCH_UNIT = "org.freedesktop.systemd1.NoSuchUnit"
DISARM_TIMEOUT = 5.0
RECONNECT_MIN, RECONNECT_MAX = 0.2, 10.0
"""Seconds between tries to reach a bus that is gone; doubled each time."""
TIMER_ACCURACY = 100_000
"""Microseconds; systemd's default of a minute would be far too late for an undo."""


class DbusSystemd:
    """Lives until `close`; a broken connection is made again by the next call, or by a watch."""

    def __init__(self, address: str = ADDRESS, *, bus: SystemBus | None = None) -> None:
        self._bus = bus or SystemBus(address)

    async def unit(self, name: str, *, timeout: float = 5) -> UnitState:
        (path,) = await self._bus.call("LoadUnit", "s", name, timeout=timeout)
        unit, service = await asyncio.gather(
            self._properties(path, UNIT, timeout), self._properties(path, SERVICE, timeout)
        )
        return unit_state(unit, service)

    async def restart(self, name: str, *, timeout: float) -> str:
        return await self._job("RestartUnit", name, timeout)

    async def start(self, name: str, *, timeout: float) -> str:
        return await self._job("StartUnit", name, timeout)

    async def reset_failed(self, name: str, *, timeout: float = 5) -> None:
        await self._bus.call("ResetFailedUnit", "s", name, timeout=timeout)

    async def arm(self, name: str, *, after: float, argv: tuple[str, ...]) -> None:
        await self.disarm(name)
        timer = [
            ["Description", Variant("s", f"{name}: acts unless disarmed")],
            ["TimersMonotonic", Variant("a(st)", [["OnActiveSec", round(after * 1e6)]])],
            ["AccuracyUSec", Variant("t", TIMER_ACCURACY)],
            ["RemainAfterElapse", Variant("b", False)],
        ]
        service = [
            ["Description", Variant("s", name)],
            ["Type", Variant("s", "oneshot")],
            ["ExecStart", Variant("a(sasb)", [[argv[0], list(argv), False]])],
            ["CollectMode", Variant("s", "inactive-or-failed")],
        ]
        aux = [[f"{name}.service", service]]
        call = self._bus.call(
            "StartTransientUnit", "ssa(sv)a(sa(sv))", f"{name}.timer", "replace", timer, aux, timeout=DISARM_TIMEOUT
        )
        await call

    async def disarm(self, name: str) -> None:
        try:
            await self._job("StopUnit", f"{name}.timer", DISARM_TIMEOUT)
        except SystemdError as error:
            if error.name != NO_SUCH_UNIT:
                raise

    async def system_state(self, *, timeout: float = 5) -> str:
        call = self._bus.call("Get", "ss", MANAGER, "SystemState", interface=PROPERTIES, timeout=timeout)
        (value,) = await call
        return str(value.value)

    async def watch(self, name: str, changed: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        path = unit_path(name)

        def received(message: Message) -> None:
            if message.member == "PropertiesChanged" and message.path == path:
                changed()

        self._bus.add_handler(received)
        keeper = asyncio.create_task(self._keep(changed), name=f"systemd watch {name}")

        async def stop() -> None:
            self._bus.remove_handler(received)
            keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeper

        return stop

    async def close(self) -> None:
        await self._bus.close()

    async def _keep(self, changed: Callable[[], None]) -> None:
        """Hold a connection; what happened while there was none is unknown, so a new one counts as a change."""
        pause = RECONNECT_MIN
        while True:
            try:
                end = await self._bus.connected()
            except SystemdError:
                await asyncio.sleep(pause)
                pause = min(pause * 2, RECONNECT_MAX)
                continue
            changed()
            begun = asyncio.get_running_loop().time()
            await asyncio.wait({end})
            if asyncio.get_running_loop().time() - begun > RECONNECT_MAX:
                pause = RECONNECT_MIN
            await asyncio.sleep(pause)

    async def _properties(self, path: str, interface: str, timeout: float) -> dict[str, Variant]:
        call = self._bus.call("GetAll", "s", interface, path=path, interface=PROPERTIES, timeout=timeout)
        (found,) = await call
        properties: dict[str, Variant] = found
        return properties

    async def _job(self, method: str, name: str, timeout: float) -> str:
        """Queue a job and wait for its end: its result. Raises SystemdError `Timeout` or `Disconnected`."""
        results: dict[str, str] = {}
        came = asyncio.Event()

        def received(message: Message) -> None:
            if message.member == "JobRemoved":
                _, job, _, result = message.body
                results[job] = result
                came.set()

        self._bus.add_handler(received)
        try:
            async with asyncio.timeout(timeout):
                end = await self._bus.connected()
                (job,) = await self._bus.call(method, "ss", name, "replace", timeout=timeout)
                return await _result(job, results, came, end)
        except TimeoutError as error:
            raise SystemdError("Timeout", f"{method} {name}: not done within {timeout:g} s") from error
        finally:
            self._bus.remove_handler(received)


async def _result(job: str, results: dict[str, str], came: asyncio.Event, end: asyncio.Task[None]) -> str:
    while job not in results:
        came.clear()
        waiter = asyncio.create_task(came.wait())
        try:
            await asyncio.wait({waiter, end}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()
        if end.done() and job not in results:
            raise SystemdError("Disconnected", f"the bus closed while {job} was running")
    return results[job]


def unit_path(name: str) -> str:
    """Object path of a unit: every byte but letters and digits (a leading digit too) becomes `_` and two hex digits."""
    escaped = "".join(
        chr(byte) if chr(byte).isalnum() and byte < 128 and not (index == 0 and chr(byte).isdigit()) else f"_{byte:02x}"
        for index, byte in enumerate(name.encode())
    )
    return f"{MANAGER_PATH}/unit/{escaped}"


def unit_state(unit: dict[str, Variant], service: dict[str, Variant]) -> UnitState:
    """From the properties of the two interfaces; what a systemd does not have is empty."""

    def of(properties: dict[str, Variant], name: str, default: Any) -> Any:
        return properties[name].value if name in properties else default

    commands = of(service, "ExecStart", [])
    return UnitState(
        load_state=of(unit, "LoadState", ""),
        active_state=of(unit, "ActiveState", ""),
        sub_state=of(unit, "SubState", ""),
        result=of(service, "Result", ""),
        restart=of(service, "Restart", "no"),
        main_pid=of(service, "MainPID", 0),
        invocation_id=bytes(of(unit, "InvocationID", b"")).hex(),
        active_enter_monotonic=of(service, "ExecMainStartTimestampMonotonic", 0) / 1e6,
        job=of(unit, "Job", [0, "/"])[0] != 0,
        unit_file_state=of(unit, "UnitFileState", ""),
        fragment_path=of(unit, "FragmentPath", ""),
        exec_start=tuple(commands[0][1]) if commands else (),
        timeout_start=of(service, "TimeoutStartUSec", 90_000_000) / 1e6,
        required_by=tuple(sorted({*of(unit, "RequiredBy", []), *of(unit, "BoundBy", [])})),
    )

"""One connection to the system bus that is made again when it breaks.

systemd sends signals only to clients that have subscribed, so every new connection subscribes again.
May import `api` only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Protocol

from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus
from dbus_fast.errors import DBusFastError

from reconciler.systemd.api import SystemdError

log = logging.getLogger(__name__)

DESTINATION = "org.freedesktop.systemd1"
MANAGER_PATH = "/org/freedesktop/systemd1"
MANAGER = "org.freedesktop.systemd1.Manager"
PROPERTIES = "org.freedesktop.DBus.Properties"
RULES = (
    f"type='signal',sender='{DESTINATION}',interface='{MANAGER}',member='JobRemoved'",
    f"type='signal',sender='{DESTINATION}',interface='{PROPERTIES}',member='PropertiesChanged',"
    f"path_namespace='{MANAGER_PATH}/unit'",
)
CONNECT_TIMEOUT = 5.0
"""Seconds for dialling, authentication and the subscription together."""

CLOSE_TIMEOUT = 1.0

SignalHandler = Callable[[Message], None]


class Connection(Protocol):
    """What is used of dbus-fast's MessageBus."""

    @property
    def connected(self) -> bool: ...
    async def call(self, msg: Message) -> Message | None: ...
    def add_message_handler(self, handler: Callable[[Message], Message | bool | None]) -> None: ...
    def disconnect(self) -> None: ...
    async def wait_for_disconnect(self) -> None: ...


async def dial(address: str) -> Connection:
    """Connect and authenticate. Raises OSError or DBusFastError."""
    bus: Connection = await MessageBus(bus_address=address).connect()
    return bus


async def _end_of(bus: Connection) -> None:
    """Waits for it once for all: the library's own future would be cancelled with the first waiter."""
    with contextlib.suppress(OSError, EOFError, DBusFastError):
        await bus.wait_for_disconnect()


class SystemBus:
    """Calls to systemd; every error leaves as SystemdError."""

    def __init__(self, address: str, *, dialler: Callable[[str], Any] = dial) -> None:
        self._address = address
        self._dial = dialler
        self._bus: Connection | None = None
        self._end: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._handlers: list[SignalHandler] = []

    def add_handler(self, handler: SignalHandler) -> None:
        """`handler` gets every signal of systemd that RULES select, on this and on later connections."""
        self._handlers.append(handler)

    def remove_handler(self, handler: SignalHandler) -> None:
        self._handlers.remove(handler)

    async def connected(self) -> asyncio.Task[None]:
        """Make sure that there is a connection, up and subscribed; its end, to be waited for and not cancelled."""
        _, end = await self._connection()
        return end

    async def call(
        self,
        member: str,
        signature: str = "",
        *body: Any,
        path: str = MANAGER_PATH,
        interface: str = MANAGER,
        timeout: float,
    ) -> list[Any]:
        """One method call; the reply's body. `timeout` in seconds."""
        bus, _ = await self._connection()
        return await self._call(bus, member, signature, *body, path=path, interface=interface, timeout=timeout)

    async def close(self) -> None:
        bus, self._bus = self._bus, None
        if bus is not None and self._end is not None:
            bus.disconnect()
            await asyncio.wait({self._end}, timeout=CLOSE_TIMEOUT)

    async def _connection(self) -> tuple[Connection, asyncio.Task[None]]:
        async with self._lock:
            if self._bus is None or self._end is None or not self._bus.connected:
                self._bus = await self._connect()
                self._end = asyncio.create_task(_end_of(self._bus), name="end of the bus connection")
            return self._bus, self._end

    async def _connect(self) -> Connection:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                bus: Connection = await self._dial(self._address)
                bus.add_message_handler(self._received)
                for rule in RULES:
                    await self._call(
                        bus,
                        "AddMatch",
                        "s",
                        rule,
                        path="/org/freedesktop/DBus",
                        interface="org.freedesktop.DBus",
                        destination="org.freedesktop.DBus",
                        timeout=CONNECT_TIMEOUT,
                    )
                await self._call(bus, "Subscribe", path=MANAGER_PATH, interface=MANAGER, timeout=CONNECT_TIMEOUT)
        except TimeoutError as error:
            raise SystemdError("Timeout", f"{self._address}: no connection within {CONNECT_TIMEOUT:g} s") from error
        except (OSError, EOFError, DBusFastError) as error:
            raise SystemdError("Disconnected", f"{self._address}: {error}") from error
        log.info("connected to systemd", extra={"address": self._address})
        return bus

    async def _call(
        self,
        bus: Connection,
        member: str,
        signature: str = "",
        *body: Any,
        path: str,
        interface: str,
        destination: str = DESTINATION,
        timeout: float,
    ) -> list[Any]:
        message = Message(
            destination=destination,
            path=path,
            interface=interface,
            member=member,
            signature=signature,
            body=list(body),
        )
        try:
            async with asyncio.timeout(timeout):
                reply = await bus.call(message)
        except TimeoutError as error:
            raise SystemdError("Timeout", f"{member}: no answer within {timeout:g} s") from error
        except (OSError, EOFError, DBusFastError) as error:
            bus.disconnect()
            raise SystemdError("Disconnected", f"{member}: {error}") from error
        if reply is None:
            raise SystemdError("Disconnected", f"{member}: the bus closed before an answer")
        if reply.message_type is MessageType.ERROR:
            text = reply.body[0] if reply.body else ""
            raise SystemdError(reply.error_name or "Unknown", f"{member}: {text}")
        return list(reply.body)

    def _received(self, message: Message) -> None:
        if message.message_type is MessageType.SIGNAL:
            for handler in [*self._handlers]:
                handler(message)

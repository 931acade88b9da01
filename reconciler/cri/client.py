"""The CRI client: gRPC over containerd's socket, by grpclib.

May import `api` only. Errors become CriError with the place where they arose: the connection, or an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from grpclib.client import Channel
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from reconciler.cri.api import Code, Container, ContainerState, CriError, Sandbox, Status, Version
from reconciler.cri.introspection_grpc import IntrospectionStub
from reconciler.cri.introspection_pb2 import PluginsRequest
from reconciler.cri.runtime_grpc import RuntimeServiceStub
from reconciler.cri.runtime_pb2 import (
    SANDBOX_READY,
    ListContainersRequest,
    ListPodSandboxRequest,
    StatusRequest,
    StopContainerRequest,
    StopPodSandboxRequest,
    VersionRequest,
)

T = TypeVar("T")

POD_UID_LABEL = "io.kubernetes.pod.uid"
"""Set by kubelet on every container; a container's own metadata has no pod UID."""

_CRI_PLUGIN = "type==io.containerd.grpc.v1,id==cri"
"""The plugin that serves CRI, as a filter of containerd's; its error holds those of the plugins that it needs."""


class _Runtimes(msgspec.Struct, rename="camel"):
    runtimes: dict[str, msgspec.Raw] = {}
    default_runtime_name: str = ""


class _Config(msgspec.Struct):
    containerd: _Runtimes = msgspec.field(default_factory=_Runtimes)


class GrpcCri:
    """One channel to the socket at `path`; dialled at the first call, and anew after `close` or a lost connection."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._channel: Channel | None = None

    async def version(self, *, timeout: float) -> Version:
        answer = await self._call(lambda stub: stub.Version(VersionRequest(), timeout=timeout), timeout)
        return Version(answer.runtime_name, answer.runtime_version)

    async def status(self, *, timeout: float) -> Status:
        answer = await self._call(lambda stub: stub.Status(StatusRequest(verbose=True), timeout=timeout), timeout)
        conditions = {condition.type: condition for condition in answer.status.conditions}
        runtime, network = conditions.get("RuntimeReady"), conditions.get("NetworkReady")
        handlers, default = serving(answer.info, [handler.name for handler in answer.runtime_handlers])
        return Status(
            runtime_ready=runtime is not None and runtime.status,
            network_ready=network is not None and network.status,
            network_reason="" if network is None else network.reason,
            handlers=handlers,
            default_runtime=default,
        )

    async def sandboxes(self, *, timeout: float) -> list[Sandbox]:
        answer = await self._call(lambda stub: stub.ListPodSandbox(ListPodSandboxRequest(), timeout=timeout), timeout)
        return [
            Sandbox(
                id=item.id,
                name=item.metadata.name,
                namespace=item.metadata.namespace,
                pod_uid=item.metadata.uid,
                ready=item.state == SANDBOX_READY,
                handler=item.runtime_handler,
                labels=dict(item.labels),
            )
            for item in answer.items
        ]

    async def containers(self, *, timeout: float) -> list[Container]:
        answer = await self._call(lambda stub: stub.ListContainers(ListContainersRequest(), timeout=timeout), timeout)
        return [
            Container(
                id=item.id,
                name=item.metadata.name,
                sandbox_id=item.pod_sandbox_id,
                pod_uid=item.labels.get(POD_UID_LABEL, ""),
                state=ContainerState(item.state),
                labels=dict(item.labels),
            )
            for item in answer.containers
        ]

    async def stop_container(self, container_id: str, *, grace: float, timeout: float) -> None:
        request = StopContainerRequest(container_id=container_id, timeout=round(grace))
        with _gone_is_fine():
            await self._call(lambda stub: stub.StopContainer(request, timeout=timeout), timeout)

    async def stop_sandbox(self, sandbox_id: str, *, timeout: float) -> None:
        request = StopPodSandboxRequest(pod_sandbox_id=sandbox_id)
        with _gone_is_fine():
            await self._call(lambda stub: stub.StopPodSandbox(request, timeout=timeout), timeout)

    def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    async def _call(self, ask: Callable[[RuntimeServiceStub], Coroutine[Any, Any, T]], timeout: float) -> T:
        """The answer, within `timeout`; what goes wrong leaves as CriError."""
        if self._channel is None:
            self._channel = Channel(path=self._path)
        channel = self._channel
        try:
            return await _apart(ask(RuntimeServiceStub(channel)), timeout)
        except GRPCError as error:
            code, message = _code(error.status), error.message or error.status.name
            if code is Code.UNIMPLEMENTED:
                message = await _why_missing(self._path, timeout) or message
            raise CriError(code, message, connection=False) from error
        except TimeoutError as error:
            raise CriError(Code.DEADLINE_EXCEEDED, f"no answer within {timeout:g} s", connection=False) from error
        except (OSError, StreamTerminatedError, ProtocolError) as error:
            if self._channel is channel:
                self.close()
            message = f"{self._path}: {error.strerror or error}" if isinstance(error, OSError) else str(error)
            raise CriError(Code.UNAVAILABLE, message or type(error).__name__, connection=True) from error
        finally:
            if self._channel is not channel:  # dropped meanwhile; a dial that was under way has connected it since
                channel.close()


async def _why_missing(path: str, timeout: float) -> str:
    """containerd's own word for why its CRI plugin did not start; "" when it says nothing. Never raises.

    On a channel of its own: others drop theirs as soon as they have seen that CRI is missing.
    """
    channel = Channel(path=path)
    request = PluginsRequest(filters=[_CRI_PLUGIN])
    try:
        answer = await _apart(IntrospectionStub(channel).Plugins(request, timeout=timeout), timeout)
    except (GRPCError, TimeoutError, OSError, StreamTerminatedError, ProtocolError):
        return ""
    finally:
        channel.close()
    return next((plugin.init_err.message for plugin in answer.plugins), "")


async def _apart(call: Coroutine[Any, Any, T], timeout: float) -> T:
    """Await `call` in a task of its own. Raises TimeoutError, StreamTerminatedError, and what it raises.

    grpclib wakes a call whose connection is lost by cancelling its task, and does not take the request back:
    in the caller's task the next `asyncio.timeout` of Python 3.11.2 would end it without a word.
    """
    task = asyncio.ensure_future(call)
    try:
        await asyncio.wait({task}, timeout=timeout)
        if not task.done():
            raise TimeoutError
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    if task.cancelled():
        raise StreamTerminatedError("the call was given up by its connection")
    return task.result()


@contextlib.contextmanager
def _gone_is_fine() -> Iterator[None]:
    """Stopping what is not there is success."""
    try:
        yield
    except CriError as error:
        if error.code is not Code.NOT_FOUND:
            raise


def serving(info: Mapping[str, str], named: list[str]) -> tuple[tuple[str, ...], str]:
    """Handlers that CRI serves (sorted) and the default one, from the verbose info and `runtime_handlers`.

    Every containerd from 1.6 to 2.3 puts its CRI configuration into `config` of the info; only the names are
    decoded, the rest holds registry passwords. An info that cannot be read leaves what `runtime_handlers` names
    (2.0 and later), in which the empty name stands for the default handler.
    """
    try:
        config = msgspec.json.decode(info.get("config", "{}"), type=_Config).containerd
    except msgspec.MsgspecError:
        config = _Runtimes()
    return tuple(sorted({*config.runtimes, *named} - {""})), config.default_runtime_name


def _code(status: Any) -> Code:
    try:
        return Code(status.value)
    except ValueError:
        return Code.UNKNOWN

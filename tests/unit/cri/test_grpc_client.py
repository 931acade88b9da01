"""The client against a gRPC server on a real unix socket: fields, verbose info, and where errors arose."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from grpclib.const import Status as GrpcStatus
from grpclib.exceptions import GRPCError
from grpclib.server import Server

from reconciler.cri import runtime_pb2 as pb
from reconciler.cri.api import Code, Container, ContainerState, CriError, Sandbox, Version
from reconciler.cri.client import GrpcCri, serving
from reconciler.cri.introspection_grpc import IntrospectionBase
from reconciler.cri.introspection_pb2 import Plugin, PluginError, PluginsResponse
from reconciler.cri.runtime_grpc import RuntimeServiceBase

CONFIG = {"containerd": {"defaultRuntimeName": "runc", "runtimes": {"runc": {}, "kata-qemu": {"runtimeType": "x"}}}}


class Containerd(RuntimeServiceBase):
    """Answers as 1.6 does; `error` is raised by the stops."""

    def __init__(self) -> None:
        self.error: GRPCError | None = None
        self.stopped: list[Any] = []

    async def Version(self, stream: Any) -> None:
        await stream.recv_message()
        await stream.send_message(pb.VersionResponse(runtime_name="containerd", runtime_version="1.6.20"))

    async def Status(self, stream: Any) -> None:
        request = await stream.recv_message()
        assert request.verbose
        conditions = [
            pb.RuntimeCondition(type="RuntimeReady", status=True),
            pb.RuntimeCondition(type="NetworkReady", status=False, reason="NetworkPluginNotReady"),
        ]
        status = pb.RuntimeStatus(conditions=conditions)
        await stream.send_message(pb.StatusResponse(status=status, info={"config": json.dumps(CONFIG)}))

    async def ListPodSandbox(self, stream: Any) -> None:
        await stream.recv_message()
        metadata = pb.PodSandboxMetadata(name="web", uid="u1", namespace="shop")
        item = pb.PodSandbox(id="s1", metadata=metadata, state=pb.SANDBOX_NOTREADY, runtime_handler="kata-qemu")
        await stream.send_message(pb.ListPodSandboxResponse(items=[item]))

    async def ListContainers(self, stream: Any) -> None:
        await stream.recv_message()
        labels = {"io.kubernetes.pod.uid": "u1"}
        item = pb.Container(
            id="c1",
            pod_sandbox_id="s1",
            metadata=pb.ContainerMetadata(name="app"),
            state=pb.CONTAINER_EXITED,
            labels=labels,
        )
        await stream.send_message(pb.ListContainersResponse(containers=[item]))

    async def StopContainer(self, stream: Any) -> None:
        request = await stream.recv_message()
        self.stopped.append((request.container_id, request.timeout))
        if self.error is not None:
            raise self.error
        await stream.send_message(pb.StopContainerResponse())

    async def StopPodSandbox(self, stream: Any) -> None:
        request = await stream.recv_message()
        self.stopped.append(request.pod_sandbox_id)
        if self.error is not None:
            raise self.error
        await stream.send_message(pb.StopPodSandboxResponse())


class WithoutCri(Containerd):
    """As a containerd answers for a service that it does not have."""

    async def Version(self, stream: Any) -> None:
        raise GRPCError(GrpcStatus.UNIMPLEMENTED, "unknown service runtime.v1")


class Introspection(IntrospectionBase):
    """A containerd whose CRI plugin did not start."""

    def __init__(self, *, before_answer: Callable[[], None] = lambda: None) -> None:
        self._before_answer = before_answer

    async def Plugins(self, stream: Any) -> None:
        request = await stream.recv_message()
        self._before_answer()
        assert request.filters == ["type==io.containerd.grpc.v1,id==cri"]
        error = PluginError(code=2, message="failed to create CRI service: too many open files")
        plugin = Plugin(type="io.containerd.grpc.v1", id="cri", init_err=error)
        await stream.send_message(PluginsResponse(plugins=[plugin]))


@pytest.fixture
async def socket() -> AsyncIterator[Path]:
    with tempfile.TemporaryDirectory() as folder:  # short: a socket's path may have 104 bytes
        yield Path(folder) / "c.sock"


@pytest.fixture
async def containerd(socket: Path) -> AsyncIterator[Containerd]:
    service = Containerd()
    server = Server([service])
    await server.start(path=str(socket))
    yield service
    server.close()
    await server.wait_closed()


@pytest.fixture
async def cri(socket: Path) -> AsyncIterator[GrpcCri]:
    client = GrpcCri(str(socket))
    yield client
    client.close()


async def test_version_and_status_are_read(containerd: Containerd, cri: GrpcCri) -> None:
    assert await cri.version(timeout=5) == Version("containerd", "1.6.20")
    status = await cri.status(timeout=5)
    assert (status.runtime_ready, status.network_ready) == (True, False)
    assert status.network_reason == "NetworkPluginNotReady"
    assert (status.handlers, status.default_runtime) == (("kata-qemu", "runc"), "runc")


async def test_sandboxes_and_containers_carry_the_uid_of_their_pod(containerd: Containerd, cri: GrpcCri) -> None:
    assert await cri.sandboxes(timeout=5) == [
        Sandbox(id="s1", name="web", namespace="shop", pod_uid="u1", ready=False, handler="kata-qemu")
    ]
    assert await cri.containers(timeout=5) == [
        Container(
            id="c1",
            name="app",
            sandbox_id="s1",
            pod_uid="u1",
            state=ContainerState.EXITED,
            labels={"io.kubernetes.pod.uid": "u1"},
        )
    ]


async def test_a_stop_hands_the_grace_over(containerd: Containerd, cri: GrpcCri) -> None:
    await cri.stop_container("c1", grace=29.6, timeout=5)
    await cri.stop_sandbox("s1", timeout=5)
    assert containerd.stopped == [("c1", 30), "s1"]


async def test_stopping_what_is_not_there_is_success(containerd: Containerd, cri: GrpcCri) -> None:
    containerd.error = GRPCError(GrpcStatus.NOT_FOUND, "no such sandbox")
    await cri.stop_container("c1", grace=0, timeout=5)
    await cri.stop_sandbox("s1", timeout=5)


async def test_why_there_is_no_cri_plugin_is_containerds_own_word(socket: Path, cri: GrpcCri) -> None:
    server = Server([WithoutCri(), Introspection()])
    await server.start(path=str(socket))
    with pytest.raises(CriError) as caught:
        await cri.version(timeout=5)
    server.close()
    await server.wait_closed()
    assert (caught.value.code, caught.value.connection) == (Code.UNIMPLEMENTED, False)
    assert caught.value.message == "failed to create CRI service: too many open files"


async def test_another_user_who_drops_the_channel_does_not_lose_the_word(socket: Path, cri: GrpcCri) -> None:
    server = Server([WithoutCri(), Introspection(before_answer=cri.close)])
    await server.start(path=str(socket))
    with pytest.raises(CriError) as caught:
        await cri.version(timeout=5)
    server.close()
    await server.wait_closed()
    assert caught.value.message == "failed to create CRI service: too many open files"


async def test_without_a_word_of_it_the_answer_stands(socket: Path, cri: GrpcCri) -> None:
    server = Server([WithoutCri()])
    await server.start(path=str(socket))
    with pytest.raises(CriError) as caught:
        await cri.version(timeout=5)
    server.close()
    await server.wait_closed()
    assert (caught.value.code, caught.value.message) == (Code.UNIMPLEMENTED, "unknown service runtime.v1")


async def test_an_answer_is_told_from_the_connection(containerd: Containerd, cri: GrpcCri) -> None:
    containerd.error = GRPCError(GrpcStatus.UNKNOWN, "cni: connection refused")
    with pytest.raises(CriError) as caught:
        await cri.stop_sandbox("s1", timeout=5)
    assert (caught.value.code, caught.value.connection) == (Code.UNKNOWN, False)
    assert caught.value.message == "cni: connection refused"


async def test_a_socket_that_is_not_there_is_the_connection(cri: GrpcCri) -> None:
    with pytest.raises(CriError, match="No such file or directory") as caught:
        await cri.version(timeout=5)
    assert (caught.value.code, caught.value.connection) == (Code.UNAVAILABLE, True)


async def test_after_an_outage_the_next_call_dials_anew(socket: Path, cri: GrpcCri) -> None:
    first = Server([Containerd()])
    await first.start(path=str(socket))
    await cri.version(timeout=5)
    cri.close()
    first.close()
    await first.wait_closed()
    socket.unlink(missing_ok=True)  # noqa: ASYNC240 - a test may block
    with pytest.raises(CriError) as caught:
        await cri.version(timeout=5)
    assert caught.value.connection
    second = Server([Containerd()])
    await second.start(path=str(socket))
    assert (await cri.version(timeout=5)).runtime_version == "1.6.20"
    second.close()
    await second.wait_closed()


async def test_a_connection_lost_in_a_call_leaves_no_cancellation_with_the_caller(socket: Path, cri: GrpcCri) -> None:
    async def drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        await asyncio.sleep(0.05)  # the call is under way by then
        writer.close()

    server = await asyncio.start_unix_server(drop, path=socket)
    with pytest.raises(CriError) as caught:
        await cri.version(timeout=5)
    assert caught.value.connection
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0
    server.close()


async def test_a_call_that_is_cancelled_ends_cancelled(socket: Path, cri: GrpcCri) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(silent, path=socket)
    call = asyncio.create_task(cri.version(timeout=60))
    await asyncio.sleep(0.05)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    server.close()


async def test_a_daemon_that_does_not_answer_is_told_apart(socket: Path, cri: GrpcCri) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(silent, path=socket)
    with pytest.raises(CriError) as caught:
        await cri.version(timeout=0.05)
    assert (caught.value.code, caught.value.connection) == (Code.DEADLINE_EXCEEDED, False)
    server.close()


def test_handlers_come_from_the_configuration_and_from_the_list_of_2_x() -> None:
    config = json.dumps({"containerd": {"runtimes": {"runc": {}}, "defaultRuntimeName": "runc"}, "registry": {}})
    assert serving({"config": config}, ["", "runc", "kata"]) == (("kata", "runc"), "runc")


def test_an_info_that_cannot_be_read_leaves_the_list() -> None:
    assert serving({"config": "{"}, ["runc"]) == (("runc",), "")

"""The transport on kubernetes-asyncio: where credentials come from, their renewal, advice in one line."""

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio.client import Configuration

from reconciler.kube.cluster import ClusterTransport, ConfigError, connect
from reconciler.kube.credentials import InCluster
from reconciler.kube.transport import TransportError


class FixedClock:
    def __init__(self) -> None:
        self.moment = datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0

    def now(self) -> datetime:
        return self.moment


def kubeconfig(path: Path, server: str, user: dict[str, Any]) -> str:
    """JSON is YAML."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(config))
    return str(path)


def plugin(path: Path, token_file: Path, expires: str) -> dict[str, Any]:
    """An exec plugin that prints what `token_file` holds."""
    version = "client.authentication.k8s.io/v1"
    path.write_text(
        "import json\n"
        f"token = open({str(token_file)!r}).read()\n"
        f"status = {{'token': token, 'expirationTimestamp': {expires!r}}}\n"
        f"print(json.dumps({{'apiVersion': {version!r}, 'kind': 'ExecCredential', 'status': status}}))\n"
    )
    return {"exec": {"apiVersion": version, "command": sys.executable, "args": [str(path)]}}


async def test_a_kubeconfig_with_a_token(token_server: Any, tmp_path: Path) -> None:
    server, url = token_server
    transport = await connect(kubeconfig(tmp_path / "config", url, {"token": "one"}))
    response = await transport.request("PATCH", "/a", query={"x": "1"}, body=b"{}")
    assert (response.status, response.body, response.headers["x-kind"]) == (200, b'{"good":true}', "A")
    async with transport.stream("/watch", timeout=5) as stream:
        assert b"".join([chunk async for chunk in stream]) == b"one\ntwo\n"
    await transport.close()
    assert [target for _, target, _ in server.seen] == ["/version", "/a?x=1", "/watch"]


async def test_an_exec_plugin_is_run_again_after_a_401_and_before_its_token_expires(
    token_server: Any, tmp_path: Path
) -> None:
    server, url = token_server
    token, clock = tmp_path / "token", FixedClock()
    token.write_text("one")
    user = plugin(tmp_path / "plugin.py", token, "2026-01-01T01:00:00Z")
    transport = await connect(kubeconfig(tmp_path / "config", url, user), clock=clock)

    server.token = "two"
    token.write_text("two")
    assert (await transport.request("GET", "/a")).status == 200
    assert [seen for _, _, seen in server.seen] == ["one", "one", "two"]

    server.token = "three"
    token.write_text("three")
    clock.moment += timedelta(minutes=59, seconds=30)
    assert (await transport.request("GET", "/a")).status == 200
    assert [seen for _, _, seen in server.seen][3:] == ["three"]
    await transport.close()


async def test_a_stream_is_tried_once_more_after_a_401(token_server: Any, tmp_path: Path) -> None:
    server, url = token_server
    token = tmp_path / "token"
    token.write_text("one")
    user = plugin(tmp_path / "plugin.py", token, "2126-01-01T01:00:00Z")
    transport = await connect(kubeconfig(tmp_path / "config", url, user))
    server.token = "two"
    token.write_text("two")
    async with transport.stream("/watch", timeout=5) as stream:
        assert stream.status == 200
    await transport.close()


async def test_a_pods_token_is_read_again_when_it_rotates(
    token_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, url = token_server
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("one")
    (tmp_path / "ca.crt").write_text("-")
    clock = FixedClock()
    credentials, configuration = InCluster(clock, directory=tmp_path), Configuration()
    await credentials.load(configuration)
    assert configuration.host == "https://10.0.0.1:443"
    assert configuration.ssl_ca_cert == str(tmp_path / "ca.crt")

    configuration.ssl_ca_cert = None  # the server of this test speaks plain HTTP
    configuration.host = url
    transport = ClusterTransport(Plain(credentials, url), configuration, clock)
    assert (await transport.request("GET", "/a")).status == 200
    server.token = "two"
    (tmp_path / "token").write_text("two")
    assert (await transport.request("GET", "/a")).status == 200
    assert [seen for _, _, seen in server.seen] == ["one", "one", "two"]
    await transport.close()


class Plain:
    """In-cluster credentials with another address."""

    def __init__(self, inner: InCluster, url: str) -> None:
        self.source = inner.source
        self._inner = inner
        self._url = url

    @property
    def expiry(self) -> datetime | None:
        return self._inner.expiry

    async def load(self, configuration: Any) -> None:
        await self._inner.load(configuration)
        configuration.host = self._url


async def test_no_cluster_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"^no cluster: .* --kubeconfig or \$KUBECONFIG$"):
        await connect()


async def test_the_environment_names_a_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "away"))
    with pytest.raises(ConfigError, match="away: no such file"):
        await connect()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "apiVersion: v1", "current-context: x\ncontexts: []\nclusters: []\nusers: []", "\x00", "a: b: c"],
)
async def test_a_broken_kubeconfig_is_one_line_of_advice(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(ConfigError) as caught:
        await connect(str(tmp_path / "config"))
    assert "\n" not in str(caught.value)
    assert "cannot be used" in str(caught.value)
    assert "--kubeconfig" in str(caught.value)


async def test_a_plugin_that_is_not_there(tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/no/such/plugin"}}
    with pytest.raises(ConfigError, match="/no/such/plugin is not there"):
        await connect(kubeconfig(tmp_path / "config", "http://127.0.0.1:9", user))


async def test_a_cluster_that_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cluster at http://127.0.0.1:9 does not answer .*kubectl cluster-info"):
        await connect(kubeconfig(tmp_path / "config", "http://127.0.0.1:9", {"token": "one"}))


async def test_a_cluster_that_refuses_the_credentials(token_server: Any, tmp_path: Path) -> None:
    _, url = token_server
    with pytest.raises(ConfigError, match="refuses the credentials"):
        await connect(kubeconfig(tmp_path / "config", url, {"token": "wrong"}))


async def test_deadlines_and_broken_connections_are_transport_errors(token_server: Any, tmp_path: Path) -> None:
    server, url = token_server
    transport = await connect(kubeconfig(tmp_path / "config", url, {"token": "one"}))
    with pytest.raises(TransportError, match="no answer"):
        await transport.request("GET", "/hang", timeout=1.0)
    with pytest.raises(TransportError, match="no answer"):
        async with transport.stream("/hang", timeout=1.0):
            raise AssertionError("no headers were sent")
    await transport.close()
    assert server.connections >= 2


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST", "PATCH"])
async def test_a_write_is_sent_once_also_when_its_kept_connection_breaks(
    token_server: Any, tmp_path: Path, method: str
) -> None:
    server, url = token_server
    transport = await connect(kubeconfig(tmp_path / "config", url, {"token": "one"}))
    server.drop_at = "/b"
    with pytest.raises(TransportError, match=f"{method} /b"):
        await transport.request(method, "/b", body=b"{}")
    await transport.close()
    assert [(method, target) for method, target, _ in server.seen] == [("GET", "/version"), (method, "/b")]
    assert server.connections == 1

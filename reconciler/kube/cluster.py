"""The controller's and the CLI's transport: kubernetes-asyncio finds the cluster and the credentials.

Its configuration loaders (kubeconfig with exec plugins, in-cluster) and its connection are used; bodies are
passed as raw bytes, past its models. Credentials are renewed before they expire and after a 401.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes_asyncio.client import ApiClient, Configuration
from yarl import URL

from reconciler.api.clock import Clock, SystemClock
from reconciler.kube.credentials import SERVICE_ACCOUNT, ConfigError, Credentials, InCluster, Kubeconfig
from reconciler.kube.transport import JSON, ByteStream, Response, Transport, TransportError

__all__ = ["ClusterTransport", "ConfigError", "connect"]

DEFAULT_KUBECONFIG = Path("~/.kube/config")
LOAD_DEADLINE = 60.0
"""Seconds for the first credentials: an exec plugin may talk to an identity provider."""
FIRST_ANSWER = 10.0
RENEW_BEFORE = timedelta(seconds=60)
"""Credentials are renewed when they have less than this left."""


class ClusterTransport:
    """Use `connect`. Requests of one process share the connection pool of the library's client."""

    def __init__(self, credentials: Credentials, configuration: Any, clock: Clock) -> None:
        self._credentials = credentials
        self._configuration = configuration
        self._clock = clock
        self._renewing = asyncio.Lock()
        self._api: Any = _client(configuration)
        self._certificate = self._current_certificate()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        timeout: float = 10.0,
    ) -> Response:
        url = self._url(path, query)
        try:
            async with asyncio.timeout(timeout):
                sent = await self._authorization()
                response = await self._exchange(method, url, body, content_type, sent)
                if response.status == 401 and await self._renew(sent):
                    sent = await self._authorization()
                    response = await self._exchange(method, url, body, content_type, sent)
                return response
        except TimeoutError as error:
            raise TransportError(f"{method} {path}: no answer within {timeout:.0f} s") from error
        except (aiohttp.ClientError, OSError, ConfigError) as error:
            raise TransportError(f"{method} {path}: {error}") from error

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, timeout: float
    ) -> AsyncIterator[ByteStream]:
        url = self._url(path, query)
        answer: aiohttp.ClientResponse | None = None
        try:
            try:
                async with asyncio.timeout(timeout):
                    sent = await self._authorization()
                    answer = await self._open("GET", url, None, JSON, sent)
                    if answer.status == 401 and await self._renew(sent):
                        answer.close()
                        answer = await self._open("GET", url, None, JSON, await self._authorization())
            except TimeoutError as error:
                raise TransportError(f"GET {path}: no answer within {timeout:.0f} s") from error
            except (aiohttp.ClientError, OSError, ConfigError) as error:
                raise TransportError(f"GET {path}: {error}") from error
            yield _Stream(answer, path)
        finally:
            if answer is not None:
                answer.close()

    async def close(self) -> None:
        await self._api.close()

    async def _exchange(self, method: str, url: URL, body: bytes | None, kind: str, token: str) -> Response:
        answer = await self._open(method, url, body, kind, token)
        try:
            content = await answer.read()
        finally:
            answer.release()
        return Response(answer.status, _headers(answer), content)

    async def _open(self, method: str, url: URL, body: bytes | None, kind: str, token: str) -> aiohttp.ClientResponse:
        headers = {"accept": JSON, "user-agent": "runtime-reconciler"}
        if token:
            headers["authorization"] = token
        if body is not None:
            headers["content-type"] = kind
        rest = self._api.rest_client
        session: aiohttp.ClientSession = rest.pool_manager
        return await session.request(
            method,
            url,
            data=body,
            headers=headers,
            proxy=rest.proxy,
            proxy_headers=rest.proxy_headers,
            server_hostname=rest.server_hostname,
            timeout=aiohttp.ClientTimeout(total=None),  # the caller's deadline counts, and a watch has none
            allow_redirects=False,  # never carry the token elsewhere
        )

    def _url(self, path: str, query: Mapping[str, str] | None) -> URL:
        text = f"{self._configuration.host}{path}"
        return URL(f"{text}?{urlencode(query)}" if query else text, encoded=True)

    # --- credentials ---

    async def _authorization(self) -> str:
        """The header's value, renewed when it is about to expire; empty for client certificates."""
        expiry = self._credentials.expiry
        if expiry is not None and self._clock.now() >= expiry - RENEW_BEFORE:
            await self._renew(self._token())
        return self._token()

    def _token(self) -> str:
        return str(self._configuration.api_key.get("BearerToken", ""))

    async def _renew(self, used: str) -> bool:
        """Load credentials anew, once for all who failed with the `used` ones; whether trying again makes sense."""
        async with self._renewing:
            if self._token() != used:
                return True  # somebody else has renewed them already
            await self._credentials.load(self._configuration)
            certificate = self._current_certificate()
            if certificate != self._certificate:
                old, self._api = self._api, _client(self._configuration)
                self._certificate = certificate
                await old.close()  # watches on it break and are begun anew
                return True
            return self._token() != used

    def _current_certificate(self) -> tuple[Any, Any]:
        return (self._configuration.cert_file, self._configuration.key_file)


def _client(configuration: Any) -> Any:
    """The library's client, but aiohttp does not send a PUT or DELETE a second time when the connection breaks.

    It counts them among what may be repeated; here the first one may have taken effect, and the right to write
    may have ended since. It has no public switch; a test holds this one.
    """
    client: Any = ApiClient(configuration)
    client.rest_client.pool_manager._retry_connection = False
    return client


class _Stream:
    def __init__(self, answer: aiohttp.ClientResponse, path: str) -> None:
        self.status = answer.status
        self.headers: Mapping[str, str] = _headers(answer)
        self._answer = answer
        self._path = path

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._answer.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise TransportError(f"GET {self._path}: {error}") from error


async def connect(kubeconfig: str | None = None, *, context: str = "", clock: Clock | None = None) -> Transport:
    """A transport to the cluster of `kubeconfig`, of $KUBECONFIG, that we run in, or of ~/.kube/config, in this order.

    `context` names one of a kubeconfig's, so with it the cluster that we run in is not looked at.
    Raises ConfigError, one line with advice, when there is none, when it cannot be read, or when the
    cluster that a kubeconfig names does not answer. In-cluster nothing is asked yet: the API server may start later.
    """
    clock = clock or SystemClock()
    credentials = _find(kubeconfig, context, clock)
    configuration: Any = Configuration()
    try:
        async with asyncio.timeout(LOAD_DEADLINE):
            await credentials.load(configuration)
    except TimeoutError as error:
        raise ConfigError(f"{credentials.source}: no credentials within {LOAD_DEADLINE:.0f} s; {ADVICE}") from error
    try:
        transport = ClusterTransport(credentials, configuration, clock)
    except OSError as error:  # ssl.SSLError too: certificates that cannot be read
        raise ConfigError(f"{credentials.source}: certificates cannot be loaded: {error}; {ADVICE}") from error
    if isinstance(credentials, Kubeconfig):
        await _answers(transport, credentials.source, configuration.host)
    return transport


ADVICE = "check it with `kubectl cluster-info`, or name another with --kubeconfig"


async def _answers(transport: ClusterTransport, source: str, host: str) -> None:
    try:
        response = await transport.request("GET", "/version", timeout=FIRST_ANSWER)
    except TransportError as error:
        await transport.close()
        raise ConfigError(f"{source}: the cluster at {host} does not answer ({error}); {ADVICE}") from error
    if response.status == 401:
        await transport.close()
        raise ConfigError(f"{source}: the cluster at {host} refuses the credentials (401); {ADVICE}")


def _find(kubeconfig: str | None, context: str, clock: Clock) -> Credentials:
    named = kubeconfig or os.environ.get("KUBECONFIG", "")
    if named:
        return Kubeconfig(named, context)
    if not context and os.environ.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").exists():
        return InCluster(clock)
    if DEFAULT_KUBECONFIG.expanduser().exists():
        return Kubeconfig(str(DEFAULT_KUBECONFIG.expanduser()), context)
    raise ConfigError("no cluster: not in a pod, and no ~/.kube/config; name one with --kubeconfig or $KUBECONFIG")


def _headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}

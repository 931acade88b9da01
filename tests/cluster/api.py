"""A small client of the API server for the harness, on the standard library alone."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

from tests.cluster import controlplane, paths

Object = dict[str, Any]

NODE_RUNTIMES = "/apis/runtime-reconciler.io/v1alpha1/noderuntimes"
NODES = "/api/v1/nodes"
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
NAMESPACE = "runtime-reconciler"
OUR_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
REVISIONS = f"/apis/apps/v1/namespaces/{NAMESPACE}/controllerrevisions"
AGENT_REPORT = "agent.runtime-reconciler.io/report"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


_IDLE = 20.0
"""Seconds after which a kept connection is not trusted any more: the server ends idle ones, and a POST is sent once."""


def annotation(item: Object, name: str) -> Object:
    """A JSON annotation of an object, decoded; empty without one."""
    text = (item["metadata"].get("annotations") or {}).get(name)
    decoded: Object = json.loads(text) if text else {}
    return decoded


class ApiError(RuntimeError):
    """An answer that is not a success."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """Requests as `user` of the cluster's token file, or with a `bearer` token; a connection per thread."""

    def __init__(self, user: str = "", *, bearer: str = "") -> None:
        self._bearer = bearer or f"{user}-token"
        self._local = threading.local()

    def get(self, path: str) -> Object:
        return self._request("GET", path)

    def find(self, path: str) -> Object | None:
        """As get, None when there is no such object."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    def items(self, path: str) -> list[Object]:
        """Objects of a list; an unknown resource is an empty one."""
        answer = self.find(path)
        return list(answer["items"] or []) if answer else []

    def create(self, path: str, body: Object) -> Object:
        return self._request("POST", path, body)

    def patch(self, path: str, body: Any, *, kind: str = "merge") -> Object:
        return self._request("PATCH", path, body, content_type=f"application/{kind}-patch+json")

    def delete(self, path: str, *, propagation: str = "Background", grace: int | None = None) -> None:
        """Ask for the deletion; an object that is gone already is fine."""
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            self._request("DELETE", path, options)
        except ApiError as error:
            if error.status != 404:
                raise

    def watch(self, path: str, *, seconds: int) -> Iterator[Object]:
        """Events of `path` from now on, for `seconds`."""
        connection = self._connect(timeout=seconds + 30)
        join = "&" if "?" in path else "?"
        connection.request("GET", f"{path}{join}watch=1&timeoutSeconds={seconds}", headers=self._headers())
        with connection.getresponse() as answer:
            for line in answer:
                yield json.loads(line)
        connection.close()

    def _request(self, method: str, path: str, body: Any = None, *, content_type: str = "application/json") -> Object:
        payload = None if body is None else json.dumps(body)
        headers = self._headers() | {"Content-Type": content_type}
        for last in (False, True):
            try:
                connection = self._kept()
                connection.request(method, path, body=payload, headers=headers)
                answer = connection.getresponse()
                text = answer.read()
                break
            except (http.client.HTTPException, OSError):
                self._local.connection = None
                if last or method == "POST":
                    raise
        if answer.status >= 400:
            raise ApiError(answer.status, text.decode(errors="replace")[:600])
        decoded: Object = json.loads(text)
        return decoded

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._bearer}", "Accept": "application/json"}

    def _kept(self) -> http.client.HTTPSConnection:
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is not None and time.monotonic() - self._local.used > _IDLE:
            connection.close()
            connection = None
        if connection is None:
            connection = self._connect(timeout=30)
            self._local.connection = connection
        self._local.used = time.monotonic()
        return connection

    def _connect(self, *, timeout: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(paths.BRIDGE_ADDRESS, 6443, timeout=timeout, context=controlplane.tls())

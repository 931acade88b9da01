"""Watches all pods; at the moment when an object goes, looks whether anything of it still runs."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from tests.cluster.api import Api
from tests.cluster.cluster import nodes
from tests.cluster.observer import processes


@dataclass(frozen=True)
class Gone:
    """A pod object that went, and what was left of it then."""

    at: float
    namespace: str
    name: str
    uid: str
    node: str
    asked_at: float | None
    """When its deletion was first seen; None when it went without one."""
    remains: tuple[str, ...]


class PodWatch:
    """`gone` and `seen` grow while it runs; they may be read from other threads."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._stop = threading.Event()
        self._asked: dict[str, float] = {}
        self._nodes = {node.name: node for node in nodes()}
        self._thread = threading.Thread(target=self._run, daemon=True, name="pod-watch")
        self.gone: list[Gone] = []
        self.created: dict[str, tuple[float, dict[str, Any]]] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def since(self, moment: float) -> list[Gone]:
        return [gone for gone in self.gone if gone.at >= moment]

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                for event in self._api.watch("/api/v1/pods", seconds=600):
                    self._see(event)
            except OSError:
                time.sleep(0.5)

    def _see(self, event: dict[str, Any]) -> None:
        pod = event["object"]
        metadata = pod.get("metadata", {})
        uid, now = metadata.get("uid", ""), time.time()
        if event["type"] == "ADDED":
            self.created.setdefault(uid, (now, pod))
        if event["type"] != "DELETED":
            if metadata.get("deletionTimestamp"):
                self._asked.setdefault(uid, now)
            return
        node = self._nodes.get(pod["spec"].get("nodeName", ""))
        remains: list[str] = []
        if node is not None and node.running:
            remains = [f"process {p.exe}" for p in processes.of_pod(uid)]
            remains += [f"shim {p.pid}" for p in processes.shims(node, uid)]
        asked = self._asked.pop(uid, None)
        name = metadata["name"]
        gone = Gone(now, metadata["namespace"], name, uid, node.name if node else "", asked, tuple(remains))
        self.gone.append(gone)

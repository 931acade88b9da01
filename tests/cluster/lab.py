"""What every scenario gets: the nodes, the acting and the judging client, the observer's instruments."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.cluster import api as names
from tests.cluster import runtimes
from tests.cluster.api import Api, ApiError, Object
from tests.cluster.cluster import nodes
from tests.cluster.command import CommandFailed, wait_until
from tests.cluster.node import CONTAINERD_CONFIG, Node
from tests.cluster.observer import journal, processes, world
from tests.cluster.observer.pods import PodWatch
from tests.cluster.observer.probe import Probe

THOROUGH = 10
"""Loops from which on a run is a full one: below, scenarios leave combinations out that tell little more."""

_DEFAULT_PODS = "/api/v1/namespaces/default/pods"
_REPLACED = " (deleted)"
"""What /proc says of a binary whose file an upgrade has replaced under the running process."""
_STATE = "state.runtime-reconciler.io/"
_PHASE = "runtime-reconciler.io/phase"
_PRESENT = "runtime-reconciler.node-restriction.kubernetes.io/"


@dataclass
class Verdict:
    """What a scenario found: it passed when nothing failed and at least one thing was checked."""

    quiet: bool = False
    """A judgement that is itself under test is not printed."""
    failures: list[str] = field(default_factory=list)
    checked: int = 0
    facts: dict[str, Any] = field(default_factory=dict)

    def check(self, holds: object, what: str) -> bool:
        """Count a check; `what` says what is wrong when it does not hold."""
        self.checked += 1
        if not holds:
            self.failures.append(what)
            if not self.quiet:
                print(f"    FAILED: {what}", flush=True)
        return bool(holds)

    def measured(self, name: str, value: float) -> None:
        """Add a figure to the series `name`."""
        self.facts.setdefault(name, []).append(round(value, 2))

    @property
    def passed(self) -> bool:
        return self.checked > 0 and not self.failures


class Lab:
    """One cluster with the product on it, watched."""

    def __init__(self) -> None:
        self.nodes: list[Node] = nodes()
        self.admin = Api("admin")
        self.observer = Api("observer")
        self.probe = Probe()
        self.pods = PodWatch(self.observer)
        self.clean: world.World = world.World({}, frozenset(), {})

    def __enter__(self) -> Lab:
        self.probe.start()
        self.pods.start()
        wait_until(lambda: all(self.probe.serving(node.name) for node in self.nodes), 20, what="CRI serving")
        self._end_interrupted_run()
        self.clean = world.look(self.observer, self.nodes)
        return self

    def __exit__(self, *_: object) -> None:
        self.pods.stop()
        self.probe.stop()

    def _end_interrupted_run(self) -> None:
        """What a run that was cut short left must not become the picture of a clean cluster."""
        self.end_user_pods()
        for item in self.admin.items(names.NODE_RUNTIMES):
            self.delete(item["metadata"]["name"])
        wait_until(lambda: not self.observer.items(names.NODE_RUNTIMES), 90, what="NodeRuntimes of an earlier run gone")

    def create(self, runtime: Object) -> None:
        self.admin.create(names.NODE_RUNTIMES, runtime)

    def delete(self, name: str = runtimes.NAME, *, propagation: str = "Background") -> None:
        self.admin.delete(f"{names.NODE_RUNTIMES}/{name}", propagation=propagation)

    def runtime(self, name: str = runtimes.NAME) -> Object | None:
        return self.observer.find(f"{names.NODE_RUNTIMES}/{name}")

    def state(self, node: Node, name: str = runtimes.NAME) -> Object:
        """The product's own note of progress: what it claims, and where a fault is to be aimed."""
        item = self.observer.find(f"{names.NODES}/{node.name}") or {"metadata": {}}
        return names.annotation(item, _STATE + name)

    def stage(self, node: Node, name: str = runtimes.NAME) -> str:
        return str(self.state(node, name).get("stage", "absent"))

    def claims_ready(self, name: str = runtimes.NAME) -> bool:
        """Whether the product says that all nodes are ready."""
        counts = ((self.runtime(name) or {}).get("status") or {}).get("nodes") or {}
        return bool(counts.get("ready", 0) == counts.get("total", 0) == len(self.nodes))

    def wait_ready(self, timeout: float = 60, name: str = runtimes.NAME) -> float:
        """Seconds until the product says so. Raises TimeoutError with what it says instead."""
        return self._wait(lambda: self.claims_ready(name), timeout, "all nodes ready", name)

    def wait_gone(self, timeout: float = 60, name: str = runtimes.NAME) -> float:
        """Seconds until the NodeRuntime's object has gone. Raises TimeoutError with what it says instead."""
        return self._wait(lambda: self.runtime(name) is None, timeout, f"NodeRuntime {name} gone", name)

    def wait_stage(self, stage: str, timeout: float = 40, name: str = runtimes.NAME) -> None:
        """Until a node is in `stage`; stages shorter than a look may be missed, then the wait goes on."""
        what = f"a node in {stage}"
        self._wait(lambda: any(self.stage(node, name) == stage for node in self.nodes), timeout, what, name, every=0.02)

    def left_behind(self, *, settle: float = 2.0) -> list[str]:
        """What is not as it was in the beginning; endings under way get `settle` seconds."""
        deadline = time.monotonic() + settle
        while True:
            found = world.differences(self.clean, world.look(self.observer, self.nodes))
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.1)

    def handlers(self, node: Node) -> list[str]:
        """Handlers that the running CRI serves, asked through crictl."""
        info = json.loads(node.crictl("info"))
        return sorted(info["config"]["containerd"]["runtimes"])

    def served(self, node: Node) -> list[str]:
        """As `handlers`, and none while CRI does not answer: for waits, and for what is said of a failure."""
        try:
            return self.handlers(node)
        except CommandFailed:
            return []

    def serves(self, node: Node, handler: str = runtimes.HANDLER) -> bool:
        return handler in self.served(node)

    def refused(self, node: Node, handler: str = runtimes.HANDLER) -> bool:
        """Whether CRI refuses a sandbox of `handler`; one that it makes against expectation is taken away."""
        metadata = {"name": "probe", "namespace": "default", "uid": f"probe-{time.time()}", "attempt": 0}
        config = {"metadata": metadata, "linux": {"security_context": {"namespace_options": {"network": 2}}}}
        node.run("sh", "-c", "cat > /run/probe-sandbox.json", stdin=json.dumps(config))
        try:
            sandbox = node.crictl("runp", "-r", handler, "/run/probe-sandbox.json").split()[-1]
        except CommandFailed as error:
            return "no runtime for" in str(error) and handler in str(error)
        node.crictl("rmp", "-f", sandbox)
        return False

    def run_user_pods(self, verdict: Verdict) -> None:
        """A pod of the RuntimeClass on each node: it runs, and through the binary under /opt."""
        for node in self.nodes:
            self.admin.create(_DEFAULT_PODS, runtimes.user_pod(f"user-{node.name}", node.name))
        for node in self.nodes:
            self.check_user_pod(node, f"user-{node.name}", verdict)

    def check_user_pod(self, node: Node, name: str, verdict: Verdict) -> None:
        path = f"{_DEFAULT_PODS}/{name}"
        running = wait_until(lambda: phase_of(self.observer.find(path)) == "Running", 20, raises=False)
        pod = self.observer.find(path) or {"metadata": {"uid": "none"}}
        if verdict.check(running, f"{node.name}: the pod of the handler is {pod.get('status')}"):
            found = processes.shims(node, pod["metadata"]["uid"])
            holds = found and all(process.exe.removesuffix(_REPLACED).endswith(runtimes.SHIM) for process in found)
            verdict.check(holds, f"{node.name}: the pod's shim is {[process.exe for process in found]}")

    def end_user_pods(self) -> None:
        for item in self.admin.items(_DEFAULT_PODS):
            self.admin.delete(f"{_DEFAULT_PODS}/{item['metadata']['name']}", grace=1)
        wait_until(lambda: not self.observer.items(_DEFAULT_PODS), 40, what="the users' pods gone")

    def restarts(self, since: float) -> dict[str, int]:
        """Starts of containerd on each node since `since`."""
        return {node.name: len(journal.starts(node, since)) for node in self.nodes}

    def check_pods_gone(self, since: float, verdict: Verdict) -> None:
        """When a pod object went, nothing of it ran any more."""
        for gone in self.pods.since(since):
            verdict.check(not gone.remains, f"pod {gone.name} went while it still had {list(gone.remains)}")

    def label(self, node: Node, labels: dict[str, str | None]) -> None:
        """Set labels of the Node as an admin does; None takes one away."""
        self.admin.patch(f"{names.NODES}/{node.name}", {"metadata": {"labels": labels}})

    def phase_pods(self, node: Node, since: float) -> list[tuple[Object, str]]:
        """Phase pods made on `node` since then, oldest first, each with its phase."""
        made = sorted(self.pods.created.values(), key=lambda one: one[0])
        mine = [pod for at, pod in made if at >= since and pod["spec"].get("nodeName") == node.name]
        labelled = [(pod, (pod["metadata"].get("labels") or {}).get(_PHASE, "")) for pod in mine]
        return [(pod, phase) for pod, phase in labelled if phase]

    def check_no_overlap(self, node: Node, since: float, verdict: Verdict) -> None:
        """Each phase pod on `node` was made after the object of the one before had gone."""
        gone = {one.uid: one.at for one in self.pods.since(since)}
        before = ""
        for pod, phase in self.phase_pods(node, since):
            uid = pod["metadata"]["uid"]
            if before:
                ended = gone.get(before, float("inf"))
                made = self.pods.created[uid][0]
                verdict.check(ended <= made, f"{node.name}: {phase} was made {ended - made:.2f} s before the last went")
            before = uid

    def events(self, node: Node, since: float) -> list[str]:
        """`reason: note` of the product's Events regarding the Node."""
        found = self.observer.items("/apis/events.k8s.io/v1/namespaces/default/events")
        mine = [e for e in found if e["regarding"].get("kind") == "Node" and e["regarding"]["name"] == node.name]
        ours = [e for e in mine if "reconciler" in (e.get("reportingController") or "")]
        return [f"{e['reason']}: {e.get('note', '')}" for e in ours if _seconds(e) >= since - 1]

    def reset(self) -> list[str]:
        """Bring the product to rest whatever the scenario left; what it could not clean up in 60 s."""
        for node in self.nodes:
            node.start()
        self.end_user_pods()
        for item in self.admin.items(names.NODE_RUNTIMES):
            self.delete(item["metadata"]["name"])
        wait_until(lambda: not self.observer.items(names.NODE_RUNTIMES), 60, every=0.3, raises=False)
        return self.left_behind(settle=5)

    def force_clean(self) -> None:
        """By hand, after a scenario that failed: what was left is taken away, so that the next can be judged."""
        for item in self.admin.items(names.NODE_RUNTIMES):
            path = f"{names.NODE_RUNTIMES}/{item['metadata']['name']}"
            self.delete(item["metadata"]["name"])
            self._drop_finalizers(path)
        for pod in self.admin.items(f"{names.OUR_PODS}?labelSelector=runtime-reconciler.io/component%3Dphase"):
            self.admin.delete(f"{names.OUR_PODS}/{pod['metadata']['name']}", grace=0)
        for item in self.admin.items(names.NODES):
            self._unmark(item)
        for revision in self.admin.items(names.REVISIONS):
            if not revision["metadata"].get("ownerReferences"):
                self.admin.delete(f"{names.REVISIONS}/{revision['metadata']['name']}")
        for name in {f"RuntimeClass {i['metadata']['name']}" for i in self.admin.items(names.RUNTIME_CLASSES)}:
            if name not in self.clean.objects:
                self.admin.delete(f"{names.RUNTIME_CLASSES}/{name.split()[1]}")
        for node in self.nodes:
            restore(node)
        wait_until(lambda: all(self.probe.serving(node.name) for node in self.nodes), 60, what="CRI serving again")

    def _drop_finalizers(self, path: str) -> None:
        try:
            self.admin.patch(path, {"metadata": {"finalizers": None}})
        except ApiError as error:
            if error.status != 404:
                raise

    def _unmark(self, node: Object) -> None:
        metadata = node["metadata"]
        marks = [key for key in metadata.get("annotations") or {} if key.startswith(_STATE)]
        labels = [key for key in metadata.get("labels") or {} if "runtime-reconciler" in key]
        if marks or labels:
            body = {"metadata": {"annotations": dict.fromkeys(marks), "labels": dict.fromkeys(labels)}}
            self.admin.patch(f"{names.NODES}/{metadata['name']}", body)

    def _wait(self, holds: Callable[[], bool], timeout: float, what: str, name: str, *, every: float = 0.05) -> float:
        began = time.monotonic()
        try:
            wait_until(holds, timeout, every=every, what=what)
        except TimeoutError as error:
            stages = {node.name: self.state(node, name) for node in self.nodes}
            status = (self.runtime(name) or {}).get("status")
            raise TimeoutError(
                f"{error}; states {json.dumps(stages)[:900]}; status {json.dumps(status)[:1200]}"
            ) from None
        return time.monotonic() - began


def restore(node: Node) -> None:
    """containerd's configuration of the beginning and no payload, by hand."""
    (node.root / "etc/containerd/config.toml").write_text(CONTAINERD_CONFIG)
    node.sh(
        "rm -rf /opt/demo /usr/local/bin/containerd-shim-demo-v2 /var/lib/runtime-reconciler;"
        " systemctl reset-failed containerd; systemctl restart containerd"
    )


def phase_of(pod: Object | None) -> str:
    """`status.phase`, empty for none."""
    return str(((pod or {}).get("status") or {}).get("phase", ""))


def identity(pod: Object) -> tuple[str, ...]:
    """What stays the same while a pod and its containers go on as they were."""
    containers = pod["status"].get("containerStatuses", [])
    return (pod["metadata"]["uid"], *(f"{c['containerID']} {c['restartCount']}" for c in containers))


def _seconds(event: Object) -> float:
    """When it was observed last."""
    text = (event.get("series") or {}).get("lastObservedTime") or event.get("eventTime")
    text = text or event["metadata"]["creationTimestamp"]
    return datetime.fromisoformat(text).timestamp()

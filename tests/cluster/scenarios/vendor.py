"""Scenario 12: a vendor's script edits the configuration as text, again and again; with the guard, and without it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tests.cluster import api as names
from tests.cluster import editing, product, runtimes
from tests.cluster.api import ApiError, Object
from tests.cluster.command import CommandFailed, wait_until
from tests.cluster.lab import Lab, Verdict, phase_of
from tests.cluster.node import Node
from tests.cluster.observer import journal, world

_DEFAULT_PODS = "/api/v1/namespaces/default/pods"
_OUTAGE = 6.0
"""Seconds: a restart that does not come up (3 at most, as in scenario 1), and a put-back with its own restart."""
_PAYLOAD_RESTARTS = 2
"""The script's own, one in each half of a loop."""
_DEAD = 8.0
"""Seconds without CRI after which a node counts as dead: systemd has then tried once more by itself (RestartSec=5)."""
_POD_OVER = 30.0
"""Seconds for a pod of the control; one whose end containerd never told is deleted and not waited for."""
_BREAKS_IT = 2
"""Loops after which the script has broken each of the configurations at least once."""
_ENOUGH = 10
"""Loops of the control; it never needed more than two."""
_EXPECTED = (TimeoutError, CommandFailed, ApiError, OSError, LookupError)


def run(lab: Lab, verdict: Verdict, loops: int) -> None:
    for title, configuration in editing.STARTS.items():
        with _starting_with(lab, configuration):
            _guarded(lab, verdict, title, loops)
    with _starting_with(lab, editing.minimal):
        _contested(lab, verdict)
    with product.no_agents():
        for title, configuration in editing.STARTS.items():
            with _starting_with(lab, configuration):
                _unguarded(lab, verdict, title)


@contextmanager
def _starting_with(lab: Lab, configuration: Callable[[Node], str]) -> Iterator[None]:
    """All nodes with that configuration; afterwards they are as in the beginning, whatever happened."""
    for node in lab.nodes:
        editing.prepare(node, configuration(node))
    _wait_serving(lab)
    try:
        yield
    finally:
        for node in lab.nodes:
            editing.tidy(node)
        _wait_serving(lab)


def _guarded(lab: Lab, verdict: Verdict, title: str, loops: int) -> None:
    """Every loop ends by itself, and the node is Ready from the first to the last."""
    began, ready = time.time(), {node.name: world.ready_since(lab.observer, node) for node in lab.nodes}
    put_backs = 0
    for number in range(1, loops + 1):
        what = f"{title}, loop {number}"
        try:
            put_backs += _loop(lab, verdict, title, what)
        except _EXPECTED as error:
            verdict.check(False, f"{what}: {type(error).__name__}: {error}")
            lab.reset()
            break
    verdict.measured(f"{title}: loops", number)
    verdict.measured(f"{title}: put-backs on all nodes", put_backs)
    verdict.check(loops < _BREAKS_IT or put_backs > 0, f"{title}: the script broke nothing, so nothing was shown")
    for node in lab.nodes:
        since = world.ready_since(lab.observer, node)
        verdict.check(since == ready[node.name], f"{title}: {node.name}: Ready since {since}, not {ready[node.name]}")
        contested = [event for event in lab.events(node, began) if event.startswith("ConfigContested")]
        verdict.check(not contested, f"{title}: {node.name}: {contested}")
        verdict.check(editing.own_is_untouched(node), f"{title}: {node.name}: the administrator's file was changed")
        _check_starts_again(lab, verdict, node, title)


def _loop(lab: Lab, verdict: Verdict, title: str, what: str) -> int:
    """One install and uninstall of the vendor's payload; how often something was put back."""
    began, kept = time.time(), {node.name: _rejected(node) for node in lab.nodes}
    handler = {"name": runtimes.HANDLER, "runtimeType": "io.containerd.runc.v2", "writtenBy": "Payload"}
    lab.create(runtimes.runtime(phases=editing.phases(), handlers=[handler], bake=0))
    verdict.measured(f"{title}: install s", lab.wait_ready(60))
    for node in lab.nodes:
        verdict.check(lab.serves(node), f"{what}: {node.name}: said to be ready, but CRI does not serve the handler")
    lab.delete()
    verdict.measured(f"{title}: uninstall s", lab.wait_gone(60))
    _wait_serving(lab)
    put_backs = 0
    for node in lab.nodes:
        here = len(_rejected(node) - kept[node.name])
        put_backs += here
        _judge(lab, verdict, title, f"{what}: {node.name}", node, began, here)
    left = [text for text in lab.left_behind() if not _vendors(text)]
    verdict.check(not left, f"{what}: left behind: {left}")
    lab.check_pods_gone(began, verdict)
    return put_backs


def _judge(lab: Lab, verdict: Verdict, title: str, what: str, node: Node, began: float, put_backs: int) -> None:
    """The outages and the starts of one loop on one node."""
    for outage in lab.probe.outages(node.name, began):
        verdict.measured(f"{title}: CRI outage s", outage.seconds)
        verdict.check(outage.seconds <= _OUTAGE, f"{what}: CRI away for {outage.seconds:.1f} s ({outage.why})")
    starts, allowed = len(journal.starts(node, began)), _PAYLOAD_RESTARTS + put_backs
    verdict.measured(f"{title}: containerd starts per loop", starts)
    verdict.check(starts <= allowed, f"{what}: {starts} starts of containerd with {put_backs} put-backs")


def _check_starts_again(lab: Lab, verdict: Verdict, node: Node, title: str) -> None:
    """What lies on disk in the end is good for another start: no fault waits there for the next reboot."""
    node.run("systemctl", "restart", "containerd", check=False)
    served = wait_until(lambda: lab.serves(node, "runc"), 20, raises=False)
    verdict.check(served, f"{title}: {node.name}: at the end it does not start: {journal.last_words(node)}")


def _contested(lab: Lab, verdict: Verdict) -> None:
    """One pod that breaks it three times: put back twice, then a condition says so, until a person mends the file."""
    lab.create(runtimes.runtime(phases=editing.fight(), handlers=[], bake=0))
    for node in lab.nodes:
        wait_until(lambda node=node: _is_contested(lab, node) == "True", 60, what=f"{node.name} ConfigContested")
        times = len(_rejected(node))
        verdict.check(times == 2, f"contested: {node.name}: put back {times} times, not 2")
    for node in lab.nodes:
        editing.prepare(node, editing.minimal(node))
    for node in lab.nodes:
        settled = wait_until(lambda node=node: _is_contested(lab, node) == "False", 20, raises=False)
        verdict.check(settled, f"contested: {node.name}: mended, and ConfigContested is {_is_contested(lab, node)}")
    verdict.measured("contested: ready after the file was mended, s", lab.wait_ready(60))
    lab.delete()
    lab.wait_gone(60)
    verdict.check(not [text for text in lab.left_behind() if not _vendors(text)], "contested: something was left")


def _is_contested(lab: Lab, node: Node) -> str:
    conditions = lab.observer.get(f"{names.NODES}/{node.name}")["status"]["conditions"]
    return next((str(one["status"]) for one in conditions if one["type"] == "ConfigContested"), "")


def _unguarded(lab: Lab, verdict: Verdict, title: str) -> None:
    """The same script in pods that nobody watches over: the node dies, and the loop and the cause are told."""
    with ThreadPoolExecutor(len(lab.nodes)) as pool:
        ends = list(pool.map(lambda node: _live(lab, node), lab.nodes))
    for node, (number, phase, cause) in zip(lab.nodes, ends, strict=True):
        dead = verdict.check(cause, f"{title}: {node.name} outlived {number} loops without a guard")
        if dead:
            verdict.measured(f"{title}, no guard: dead in loop", number)
            verdict.facts[f"{title}, no guard: {node.name} died of"] = f"{phase} of loop {number}: {cause}"
    for node in lab.nodes:
        for phase in editing.phases():
            lab.admin.delete(f"{_DEFAULT_PODS}/{_name(node, phase)}", grace=0)


def _live(lab: Lab, node: Node) -> tuple[int, str, str]:
    """Loop, phase and containerd's last words when it died; no words when it lived."""
    for number in range(1, _ENOUGH + 1):
        for phase, spec in editing.phases().items():
            if not _survives(lab, node, phase, spec):
                return number, phase, journal.last_words(node) or "(nothing in the journal)"
    return _ENOUGH, "", ""


def _survives(lab: Lab, node: Node, phase: str, spec: Object) -> bool:
    """Whether CRI serves after one pod of the payload."""
    path, began = f"{_DEFAULT_PODS}/{_name(node, phase)}", time.time()
    pod = runtimes.user_pod(_name(node, phase), node.name, runtime_class=None)
    pod["spec"] |= {"restartPolicy": "Never", "hostPID": True, "volumes": spec["volumes"]}
    kept = ("image", "command", "env", "securityContext", "volumeMounts")
    pod["spec"]["containers"][0] |= {key: spec[key] for key in kept}
    lab.admin.create(_DEFAULT_PODS, pod)

    def down() -> bool:
        lasting = [o for o in lab.probe.outages(node.name, began) if o.ended is None]
        return any(outage.seconds > _DEAD for outage in lasting)

    def over() -> bool:
        return phase_of(lab.observer.find(path)) in ("Succeeded", "Failed") and lab.probe.serving(node.name)

    wait_until(lambda: over() or down(), _POD_OVER, raises=False)
    if down():
        return False
    lab.admin.delete(path, grace=0)
    wait_until(lambda: lab.observer.find(path) is None, 20, what=f"{path} gone")
    return True


def _name(node: Node, phase: str) -> str:
    return f"vendor-{phase}-{node.name}".lower()


def _wait_serving(lab: Lab) -> None:
    wait_until(lambda: all(lab.probe.serving(node.name) for node in lab.nodes), 30, what="CRI serving")


def _rejected(node: Node) -> set[str]:
    """Times of put-backs, by the names of the bytes that were kept."""
    return {path.name.partition("-")[0] for path in (node.root / "var/lib/runtime-reconciler/rejected").glob("*")}


def _vendors(difference: str) -> bool:
    """A difference that is the vendor's own, or a trace of what the guard kept of it."""
    return any(part in difference for part in ("/etc/containerd/", "/rejected/", "/put-back.json"))

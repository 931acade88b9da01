"""Rows in which the change does not hold: undone by the agent, undone by the host, or not to blame at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster import product, runtimes
from tests.cluster.api import Object
from tests.cluster.command import wait_until
from tests.cluster.node import Node
from tests.cluster.observer import journal
from tests.cluster.scenarios import agents
from tests.cluster.scenarios.daemons.rounds import Round, everywhere, payload

_UNDONE = 22.0
"""Seconds from the stop within which the old configuration serves again."""
_SPEC = "/opt/demo/spec.json"
_LIMIT = 5
"""systemd's starts in 10 s."""
_RESTARTS = 4
"""Of the payload: with that of the change and that of its undo one more than the limit."""
_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
_LIMITED = "max_user_instances"
_TAKES_THE_LAST = f"[Service]\nExecStartPre=/bin/sh -c 'echo 1 > {_INSTANCES}'\n"


def broken_at_start(here: Round) -> None:
    """A file that the handler names is no JSON: it parses, it dumps, and CRI dies of it. Undone by itself."""
    lab, began, ready = here.lab, time.time(), here.readiness()
    lab.create(_breaks_cri(restarts=_RESTARTS))
    here.stages("failed", 90)
    for node in here.nodes:
        starts = journal.starts(node, began)
        here.check(len(starts) == _RESTARTS + 2, node, f"{len(starts)} starts: the payload's, the change's, the undo's")
        near = len(starts) > _LIMIT and starts[-1].at - starts[-1 - _LIMIT].at < 10
        here.check(near, node, f"the start limit was not near: {[round(s.at - began, 1) for s in starts]}")
        seconds = here.outage(node, began)
        here.measured(node, "undo: from the stop until CRI serves again, s", seconds)
        here.check(seconds <= _UNDONE, node, f"CRI was away for {seconds:.1f} s")
        here.check(_as_before(here, node), node, f"undone, and CRI serves {lab.served(node)}")
        message = here.failure(node)
        here.check("spec" in message, node, f"the failure does not name its cause: {message!r}")
        here.check("not the cause" not in message, node, f"the change is not blamed: {message!r}")
    here.verdict.check(here.readiness() == ready, f"a node was NotReady: {ready} → {here.readiness()}")
    lab.delete()
    lab.wait_gone()


def no_inotify_instance(here: Round) -> None:
    """Seen before the change: nothing is restarted, the cause is named, and all goes on when it is gone."""
    lab, began, ready = here.lab, time.time(), here.readiness()
    with _instances("1"):
        lab.create(payload())
        here.seconds_until(lambda node: here.waits_for(node, _LIMITED), 60, "the missing instances named")
        for node in here.nodes:
            here.check(not journal.starts(node, began), node, "containerd was restarted with no instance left")
    here.stages("ready", 60)
    lab.wait_ready()
    lab.delete()
    lab.wait_gone()
    here.verdict.check(here.readiness() == ready, f"a node was NotReady: {ready} → {here.readiness()}")


def instances_gone_in_the_change(here: Round) -> None:
    """The last instance goes while containerd restarts: named, undone once, and not blamed on the change."""
    lab, began = here.lab, time.time()
    with _instances("") as give_back:
        for node in here.nodes:
            agents.drop_in(node, _TAKES_THE_LAST)
        try:
            lab.create(payload())
            # the limit is the machine's: the first node to restart makes the other one wait
            here.seconds_until(lambda node: here.failure(node) or here.waits_for(node, _LIMITED), 60, "a failure told")
            give_back()
            here.seconds_until(lambda node: here.failure(node) != "", 60, "both failures told")
        finally:
            for node in here.nodes:
                agents.drop_in(node, None)
    for node in here.nodes:
        message = here.failure(node)
        here.check(_LIMITED in message, node, f"the cause is not named: {message!r}")
        here.check("not the cause" in message, node, f"the change is blamed: {message!r}")
        starts = journal.starts(node, began)
        here.check(len(starts) == 2, node, f"{len(starts)} starts of containerd, the change's and its undo's are 2")
    everywhere(here.nodes, lambda node: node.run("systemctl", "restart", "containerd"))
    here.stages("failed", 60)
    for node in here.nodes:
        here.check(_as_before(here, node), node, f"undone, and CRI serves {lab.served(node)}")
    lab.delete()
    lab.wait_gone()


def agent_killed(here: Round) -> None:
    """The unit does not start with our handler and the agent dies meanwhile: the dead-man switch brings CRI back."""
    lab = here.lab
    product.refresh()
    for node in here.nodes:
        agents.refuse(node, True)
    try:
        with agents.Killers(lab, "containerd is down") as killers:
            lab.create(payload())
            killers.wait(here.verdict, "agent killed while CRI is down")
        for node in here.nodes:
            wait_until(lambda node=node: not lab.probe.serving(node.name), 10, what=f"CRI of {node.name} down")
        back = here.seconds_until(lambda node: lab.probe.serving(node.name), agents.BACK, "CRI back")
        for node in here.nodes:
            here.measured(node, "dead-man switch: serving again after s", back[node.name])
            here.check(_as_before(here, node), node, f"brought back, and CRI serves {lab.served(node)}")
        here.stages("failed", 90)
    finally:
        for node in here.nodes:
            agents.refuse(node, False)
    lab.delete()
    lab.wait_gone()


def _breaks_cri(*, restarts: int) -> Object:
    script = "echo no JSON > /host-opt/demo/spec.json"
    runtime = payload(then=f"{script}; for i in $(seq {restarts}); do {runtimes.RESTART}; done; sleep 1")
    runtime["spec"]["handlers"] = [{**runtimes.handler(), "extra": {"base_runtime_spec": _SPEC}}]
    return runtime


def _as_before(here: Round, node: Node) -> bool:
    served = here.lab.served(node)
    return "runc" in served and runtimes.HANDLER not in served


@contextmanager
def _instances(limit: str) -> Iterator[Callable[[], None]]:
    """At most `limit` inotify instances on this machine ("" leaves it), which is each node's: all count as root's.

    Gives the way back, which is gone also at the end.
    """
    before = _INSTANCES.read_text()

    def give_back() -> None:
        _INSTANCES.write_text(before)

    try:
        if limit:
            _INSTANCES.write_text(limit)
        yield give_back
    finally:
        give_back()

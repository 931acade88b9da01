"""Rows k, C and D: what others wrote in containerd's configuration."""

from __future__ import annotations

import time

from tests.cluster import api as names
from tests.cluster import runtimes
from tests.cluster.command import wait_until
from tests.cluster.lab import Lab, Verdict, phase_of
from tests.cluster.node import CONTAINERD_CONFIG, Node
from tests.cluster.observer import journal

_RUNTIMES = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes'
_FOREIGN = f'{_RUNTIMES}.runc]\nruntime_type = "io.containerd.runc.v2"\n{_RUNTIMES}.demo]\n' + (
    'runtime_type = "io.containerd.demo.v2"\n'
)
_LABEL = "example.com/demo-installed"
_OUTAGE = 10.0
_EXTRA = "etc/containerd/extra.d/10-own.toml"


def leftovers(lab: Lab, verdict: Verdict) -> None:
    """Another installer left its handler, its files and a label: said, nothing touched, and healed with the cause."""
    node, other = lab.nodes
    _configure(node, CONTAINERD_CONFIG + _FOREIGN)
    (node.root / "opt/demo").mkdir()
    (node.root / "opt/demo/old").write_text("left")
    lab.label(node, {_LABEL: "true"})
    began = time.time()
    lab.create(runtimes.full())
    wait_until(lambda: lab.stage(other) == "ready", 60, what=f"{other.name} ready beside it")
    said = wait_until(lambda: "HandlerConflict" in str((lab.runtime() or {}).get("status")), 60, raises=False)
    verdict.check(said, f"k1: the status does not say HandlerConflict: {(lab.runtime() or {}).get('status')}")
    verdict.check(not lab.claims_ready(), "k1: said to be ready with somebody else's handler")
    verdict.check(not journal.starts(node, began), f"k1: containerd was started: {journal.starts(node, began)}")
    text = (node.root / "etc/containerd/config.toml").read_text()
    verdict.check(text == CONTAINERD_CONFIG + _FOREIGN, f"k1: somebody else's configuration was changed: {text!r}")
    _configure(node, CONTAINERD_CONFIG)
    verdict.measured("k1: ready, s after the leftovers went", lab.wait_ready(90))
    lab.delete()
    lab.wait_gone()
    label = lab.observer.get(f"{names.NODES}/{node.name}")["metadata"]["labels"].get(_LABEL)
    verdict.check(label == "true", "k1: somebody else's label was taken away")
    lab.label(node, {_LABEL: None})


def imports(lab: Lab, verdict: Verdict) -> None:
    for pattern in ("/etc/containerd/extra.d/*.toml", f"/{_EXTRA}"):
        main = f'imports = ["{pattern}"]\n{CONTAINERD_CONFIG}'
        for node in lab.nodes:
            (node.root / _EXTRA).parent.mkdir(exist_ok=True)
            (node.root / _EXTRA).write_text("oom_score = -900\n")
            _configure(node, main)
        for _ in range(2):
            lab.create(runtimes.full())
            lab.wait_ready()
            for node in lab.nodes:
                served = lab.handlers(node)
                verdict.check(served == ["demo", "runc"], f"C: {node.name}: with imports CRI serves {served}")
            lab.delete()
            lab.wait_gone()
            for node in lab.nodes:
                found = ((node.root / "etc/containerd/config.toml").read_text(), (node.root / _EXTRA).read_text())
                verdict.check(found == (main, "oom_score = -900\n"), f"C: {node.name}: afterwards {found}")
    for node in lab.nodes:
        _configure(node, CONTAINERD_CONFIG)
        (node.root / _EXTRA).unlink()
        (node.root / _EXTRA).parent.rmdir()


def no_runtimes(lab: Lab, verdict: Verdict) -> None:
    """Ours is the first table: the built-in runc, which it hides, is still served, and starts pods."""
    lab.create(runtimes.full())
    lab.wait_ready()
    for node in lab.nodes:
        verdict.check(lab.handlers(node) == ["demo", "runc"], f"D: {node.name}: CRI serves {lab.handlers(node)}")
        path = "/api/v1/namespaces/default/pods"
        lab.admin.create(path, runtimes.user_pod(f"plain-{node.name}", node.name, runtime_class=None))
        pod = f"{path}/plain-{node.name}"
        running = wait_until(lambda pod=pod: phase_of(lab.observer.find(pod)) == "Running", 20, raises=False)
        verdict.check(running, f"D: {node.name}: a pod of the default runtime does not run")
    lab.end_user_pods()
    lab.delete()
    lab.wait_gone()
    for node in lab.nodes:
        verdict.check(lab.handlers(node) == ["runc"], f"D: {node.name}: afterwards CRI serves {lab.handlers(node)}")


def written_anew(lab: Lab, verdict: Verdict) -> None:
    """Configuration management puts its own file back and restarts containerd: the handler is put in again, once."""
    node = lab.nodes[0]
    lab.create(runtimes.full())
    lab.wait_ready()
    began = time.time()
    _configure(node, CONTAINERD_CONFIG)
    served = wait_until(lambda: lab.serves(node), 60, every=0.2, raises=False)
    verdict.measured("drift: served again after s", time.time() - began)
    verdict.check(served, f"drift: the handler did not come back: {lab.state(node)}")
    lab.wait_ready()
    starts = len(journal.starts(node, began))
    verdict.check(starts == 2, f"drift: {starts} starts of containerd, theirs and ours are 2")
    lab.delete()
    lab.wait_gone()


_ON_HOST = "nsenter -t 1 -m -p -u -i -n -- sh -c"
_BREAKS = f"""{_ON_HOST} 'echo "imports = [ , ]" >> /etc/containerd/config.toml'"""
_FOLDER = "var/lib/runtime-reconciler"


def payload_breaks_it(lab: Lab, verdict: Verdict) -> None:
    """A payload leaves a configuration that would not start, unread at first; then one that restarts containerd."""
    for restarts in (False, True):
        what = "guard: broken and restarted" if restarts else "guard: broken"
        script = f"{runtimes.INSTALL}; {_BREAKS}; " + (f"{runtimes.RESTART} || true; " if restarts else "") + "sleep 8"
        runtime = runtimes.full()
        runtime["spec"]["phases"]["install"] = runtimes.phase(script)
        began = time.time()
        lab.create(runtime)
        lab.wait_ready(90)
        for node in lab.nodes:
            rejected = [path.read_text() for path in (node.root / _FOLDER / "rejected").glob("*")]
            verdict.check(
                rejected == [f"{CONTAINERD_CONFIG}imports = [ , ]\n"], f"{what}: {node.name}: kept {rejected}"
            )
            for outage in lab.probe.outages(node.name, began):
                verdict.measured(f"{what}: CRI outage s", outage.seconds)
                verdict.check(outage.seconds <= _OUTAGE, f"{what}: {node.name}: CRI away for {outage.seconds:.1f} s")
            said = [e for e in lab.events(node, began) if e.startswith("ConfigPutBack")]
            verdict.check(len(said) == 1, f"{what}: {node.name}: Events {lab.events(node, began)}")
        lab.delete()
        lab.wait_gone()
        for node in lab.nodes:
            text = (node.root / "etc/containerd/config.toml").read_text()
            verdict.check(text == CONTAINERD_CONFIG, f"{what}: {node.name}: afterwards the configuration is {text!r}")
            node.sh(f"rm -rf /{_FOLDER}/rejected /{_FOLDER}/put-back.json")


def _configure(node: Node, text: str) -> None:
    (node.root / "etc/containerd/config.toml").write_text(text)
    node.run("systemctl", "restart", "containerd")

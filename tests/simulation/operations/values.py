"""What each field of the spec is set to. A field of the schema that has no row here fails a test.

`good`: every node gets there. `told`: the schema lets it through, the controller says what is wrong and starts
nothing. `failing`: only a node can find out. `accepted`: too long to be lived through; the API server takes it.
What the schema refuses is made from the schema (`fields.refused`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.operations.model import GONE, STARTING, handler, phase, shim, snapshotter, work

ACCOUNT = "payload"
"""The ServiceAccount that there is."""
PHASES = ("preInstall", "install", "uninstall", "postUninstall")


@dataclass(frozen=True)
class Value:
    """A value, and what else must be changed in the same write for it to make sense (path → value)."""

    value: Any
    beside: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """Values of one field; those that are no Value need nothing else."""

    good: tuple[Any, ...] = ()
    told: tuple[Any, ...] = ()
    failing: tuple[Any, ...] = ()
    accepted: tuple[Any, ...] = ()


def rows(runtime: str) -> dict[str, Row]:
    """Path → values, for a NodeRuntime of that name. Items of lists are given by their first one."""
    found = {**_handlers(runtime), **_selectors("nodeSelector"), **_rollout(), **_rest(runtime)}
    for name in PHASES:
        found.update(_phase(runtime, name))
    return found


def _handlers(r: str) -> dict[str, Row]:
    first = handler(r)
    longest = f"{r}-{'a' * (62 - len(r))}"
    served = {"name": "runc", "writtenBy": "Payload"}
    own = {"handlers[0].name": f"{r}-own"}
    bare = {key: value for key, value in first.items() if key != "runtimeClass"}
    return {
        "handlers": Row(
            good=([], [first], [first, handler(r, 1)], [handler(r, 1), first], [bare], GONE),
            told=([first, {**handler(r, 1), "runtimeClass": first["runtimeClass"]}],),
        ),
        "handlers[]": Row(good=(first, {"name": f"{r}-bare"})),
        "handlers[].name": Row(
            good=(
                f"{r}-other",
                Value(longest, {"handlers[0].runtimeClass": GONE}),
                Value(f"{r}.v2", {"handlers[0].runtimeClass": GONE}),
            ),
            told=(Value(f"{r}.v2", {"handlers[0].runtimeClass.name": f"{r}-qemu"}),),
            failing=("runc",),
        ),
        "handlers[].runtimeType": Row(good=(f"io.containerd.{r}.v3", "io.containerd.runc.v2", GONE), failing=("",)),
        "handlers[].runtimePath": Row(good=(f"{shim(r)}-2", GONE)),
        "handlers[].snapshotter": Row(
            good=("overlayfs", Value(f"{r}-nydus-0", {"snapshotters": [snapshotter(r)]}), GONE)
        ),
        "handlers[].podAnnotations": Row(good=([], [f"io.{r}.*"], ["a", "b"], GONE)),
        "handlers[].podAnnotations[]": Row(good=(f'odd "quoted" \\ {r}.*',)),
        "handlers[].privilegedWithoutHostDevices": Row(good=(True, False, GONE)),
        "handlers[].options": Row(
            good=({}, {"ConfigPath": f"/opt/{r}/config.toml"}, {"Deep": {"List": [1, 2], "Flag": True}}, GONE)
        ),
        "handlers[].extra": Row(
            good=({}, {"cni_max_conf_num": 2}, {"cni_conf_dir": "/etc/cni/other"}, GONE),
            failing=({"no_such_key": 1}, {"base_runtime_spec": "/etc/nowhere.json"}),
        ),
        "handlers[].writtenBy": Row(
            good=(
                Value("Agent", own),
                Value("Payload", {"handlers": [served]}) if r == "kata" else Value("Agent", own),
                Value(GONE, own),
            ),
            failing=("Payload",),
        ),
        "handlers[].runtimeClass": Row(good=({"name": f"{r}-class"}, GONE), told=({"name": "Not_A_Name"},)),
        "handlers[].runtimeClass.name": Row(good=(f"{r}-other", f"{r}.dotted"), told=("Not_A_Name",)),
        "handlers[].runtimeClass.overhead": Row(
            good=({"podFixed": {"memory": "160Mi"}}, {"podFixed": {"memory": "160Mi", "cpu": "250m"}}, GONE),
            told=({"podFixed": {"memory": "plenty"}},),
        ),
    }


def _selectors(path: str) -> dict[str, Row]:
    term = {"key": "pool", "operator": "Exists"}
    chosen = {"key": "pool", "operator": "In", "values": ["a"]}
    holder = f"{path}.matchExpressions[]"
    first = holder.replace("[]", "[0]")
    return {
        path: Row(good=({}, {"matchLabels": {"pool": "a"}, "matchExpressions": [term]}, GONE)),
        f"{path}.matchLabels": Row(good=({}, {"pool": "a"}, {"pool": "b"}, GONE)),
        f"{path}.matchExpressions": Row(
            good=([], [term], [chosen], GONE), told=([{"key": "pool", "operator": "In", "values": []}],)
        ),
        holder: Row(good=(term, chosen)),
        f"{holder}.key": Row(good=("pool", "kubernetes.io/hostname")),
        f"{holder}.operator": Row(
            good=(
                Value("Exists", {f"{first}.values": GONE}),
                Value("DoesNotExist", {f"{first}.values": GONE}),
                Value("In", {f"{first}.values": ["a", "b"]}),
                Value("NotIn", {f"{first}.values": ["b"]}),
            ),
            told=(Value("Exists", {f"{first}.values": ["a"]}), Value("In", {f"{first}.values": GONE})),
        ),
        f"{holder}.values": Row(
            good=(Value(["a"], {f"{first}.operator": "In"}), Value(GONE, {f"{first}.operator": "Exists"}))
        ),
        f"{holder}.values[]": Row(good=(Value("b", {f"{first}.operator": "In"}),)),
    }


def _rollout() -> dict[str, Row]:
    order = {
        (key if key != "rollout.order[0]" else "rollout.order[]").replace("[0]", "[]"): row
        for key, row in _selectors("rollout.order[0]").items()
    }
    groups = [{"matchLabels": {"pool": "b"}}, {"matchLabels": {"pool": "a"}}]
    return {
        "rollout": Row(good=({}, {"maxUnavailable": "100%", "canary": {"count": 0}, "bakeSeconds": 0}, GONE)),
        "rollout.maxUnavailable": Row(good=(1, 5, "1%", "50%", "100%", "200%", GONE)),
        "rollout.canary": Row(good=({}, {"count": 0}, GONE)),
        "rollout.canary.count": Row(good=(0, 1, 100, GONE)),
        "rollout.canary.pause": Row(good=(True, False, GONE)),
        "rollout.bakeSeconds": Row(good=(0, 1, 90, GONE), accepted=(86400,)),
        "rollout.errorBudget": Row(good=(0, 1, "0%", "100%", GONE)),
        "rollout.order": Row(good=([], groups, GONE)),
        **{key: Row(row.good, row.told) for key, row in order.items() if key != "rollout.order[]"},
        "rollout.order[]": Row(good=({}, groups[0])),
    }


def _rest(r: str) -> dict[str, Row]:
    taint = {"key": STARTING + r, "effect": "NoSchedule"}
    first, second = snapshotter(r), snapshotter(r, 1)
    return {
        "paused": Row(good=(True, False, GONE)),
        "snapshotters": Row(
            good=([], [first], [first, second], GONE), told=([first, {**second, "address": first["address"]}],)
        ),
        "snapshotters[]": Row(good=(first,), failing=({"name": f"{r}-silent", "address": "/run/nobody-listens.sock"},)),
        "snapshotters[].name": Row(good=(f"{r}-stargz",)),
        "snapshotters[].address": Row(good=(second["address"],)),
        "startupTaints": Row(good=([], [taint], [taint, {**taint, "effect": "NoExecute"}], GONE)),
        "startupTaints[]": Row(good=(taint,)),
        "startupTaints[].key": Row(good=(taint["key"], "sim/other")),
        "startupTaints[].effect": Row(good=("NoSchedule", "PreferNoSchedule", "NoExecute")),
        "startupTaints[].value": Row(good=("yes", GONE)),
        "phases": Row(good=({name: phase(r, name) for name in PHASES}, {}, GONE)),
        "imagePullSecrets": Row(good=([], [{"name": "registry"}], GONE)),
        "imagePullSecrets[]": Row(good=({"name": "other"},)),
        "imagePullSecrets[].name": Row(good=("third",)),
        "upgrade": Row(good=({}, {"strategy": "Reinstall"}, GONE)),
        "upgrade.strategy": Row(good=("InPlace", "Reinstall", GONE)),
        "uninstall": Row(good=({}, {"whenInUse": "Force"}, GONE)),
        "uninstall.whenInUse": Row(good=("Wait", "Force", GONE)),
    }


def _phase(r: str, name: str) -> dict[str, Row]:
    path, does = f"phases.{name}", work(r, name)
    label = {"key": f"sim/{r}", "value": "yes"}
    signal = {f"{path}.args": [*does, f"label=sim/{r}=yes", "hang", "ignore-term"]}
    other = {f"{path}.args": [*does, f"label=sim/{r}-2=yes", "hang"], f"{path}.completion.nodeLabel.value": "yes"}
    plain = {f"{path}.args": does}
    no_signal = {f"{path}.completion": GONE}
    host = {"name": "host", "hostPath": {"path": "/"}}
    mount = {"name": "host", "mountPath": "/host"}
    fails = [*does, "exit=3"] if name in ("preInstall", "install") else None
    pulled = ("registry.example/none:1",) if name in ("preInstall", "install") else ()
    return {
        path: Row(good=(phase(r, name), {**phase(r, name), "hostPID": True}, GONE)),
        f"{path}.image": Row(good=("sim/payload:1", "sim/payload:2"), failing=pulled),
        f"{path}.imagePullPolicy": Row(good=("Always", "IfNotPresent", "Never", GONE)),
        f"{path}.command": Row(good=(["/bin/payload"], [], GONE)),
        f"{path}.command[]": Row(good=("/bin/other",)),
        f"{path}.args": Row(
            good=(Value([*does, "more"], no_signal), Value(GONE, no_signal)),
            failing=() if fails is None else (Value(fails, no_signal),),
        ),
        f"{path}.args[]": Row(good=("seconds=0.3",)),
        f"{path}.env": Row(good=([], [{"name": "A", "value": "b"}], GONE)),
        f"{path}.env[]": Row(good=({"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},)),
        f"{path}.volumes": Row(
            good=([host], [host, {"name": "more", "emptyDir": {}}], Value(GONE, {f"{path}.volumeMounts": GONE}))
        ),
        f"{path}.volumes[]": Row(good=(host,)),
        f"{path}.volumeMounts": Row(
            good=([], Value([mount], {f"{path}.volumes": [host]}), GONE),
            told=([{"name": "nowhere", "mountPath": "/nowhere"}],),
        ),
        f"{path}.volumeMounts[]": Row(good=(Value(mount, {f"{path}.volumes": [host]}),)),
        f"{path}.resources": Row(good=({}, {"limits": {"memory": "64Mi"}}, GONE)),
        f"{path}.securityContext": Row(good=({}, {"privileged": True}, GONE)),
        f"{path}.hostPID": Row(good=(True, False, GONE)),
        f"{path}.hostNetwork": Row(good=(True, False, GONE)),
        f"{path}.serviceAccountName": Row(good=(ACCOUNT, GONE), told=("nobody",)),
        f"{path}.lifecycle": Row(good=({"preStop": {"exec": {"command": ["true"]}}}, GONE)),
        f"{path}.terminationGracePeriodSeconds": Row(good=(0, 1, 30, GONE)),
        f"{path}.completion": Row(good=(Value({}, plain), Value({"nodeLabel": label}, signal), Value(GONE, plain))),
        f"{path}.completion.nodeLabel": Row(good=(Value(label, signal), Value(GONE, plain))),
        f"{path}.completion.nodeLabel.key": Row(good=(Value(label["key"], signal), Value(f"sim/{r}-2", other))),
        f"{path}.completion.nodeLabel.value": Row(
            good=(Value("yes", {**signal, f"{path}.completion.nodeLabel.key": label["key"]}),)
        ),
        f"{path}.timeoutSeconds": Row(good=(60, 86400, GONE), accepted=(1,)),
    }

"""Specs of NodeRuntimes as vendors and admins write them: payloads of every manner that the simulation knows."""

from __future__ import annotations

import random
from typing import Any

from reconciler.sim.kinds import Object
from reconciler.sim.loops import phase

TIMEOUTS = (60, 60, 60, 300)
"""`timeoutSeconds` of a phase: one that hangs is to be seen within a run."""


def binary(runtime: str) -> str:
    return f"/opt/{runtime}/bin/containerd-shim-{runtime}-v2"


def prepared(runtime: str) -> str:
    return f"/opt/{runtime}/prepared"


def body(runtime: str, rng: random.Random) -> Object:
    """A NodeRuntime that can become ready on every node, as often as it is asked for."""
    handlers = [_handler(runtime, runtime, rng)]
    if rng.random() < 0.3:
        handlers.append(_handler(runtime, f"{runtime}-more", rng))
    rollout: dict[str, Any] = {
        "maxUnavailable": rng.choice((1, 1, 2, "50%", "100%")),
        "canary": {"count": rng.choice((0, 1, 1))},
        "bakeSeconds": rng.choice((0, 1, 5, 20)),
        "errorBudget": rng.choice((0, 1, "100%")),
    }
    spec = {
        "handlers": handlers,
        "rollout": rollout,
        "upgrade": {"strategy": rng.choice(("InPlace", "Reinstall"))},
        "uninstall": {"whenInUse": rng.choice(("Wait", "Force"))},
        "phases": _phases(runtime, rng),
    }
    return {"metadata": {"name": runtime}, "spec": spec}


def _handler(runtime: str, name: str, rng: random.Random) -> Object:
    handler: Object = {
        "name": name,
        "runtimeType": f"io.containerd.{runtime}.v2",
        "runtimePath": binary(runtime),
        "options": {"ConfigPath": f"/opt/{runtime}/{rng.choice(('a', 'b'))}.toml"},
    }
    if rng.random() < 0.5:
        handler["runtimeClass"] = {"name": name}
    return handler


def _phases(runtime: str, rng: random.Random) -> Object:
    """Each uninstall takes what any revision may have brought: an upgrade in place runs no uninstall of the old."""
    takes = (f"take={binary(runtime)}", f"take={prepared(runtime)}")
    phases = {
        "install": _phase(rng, f"drop={binary(runtime)}", done=f"sim/{runtime}=installed"),
        "uninstall": _phase(rng, *takes, done=f"sim/{runtime}=removed"),
    }
    if rng.random() < 0.4:
        phases["preInstall"] = _phase(rng, f"drop={prepared(runtime)}", done=f"sim/{runtime}=prepared")
        phases["postUninstall"] = _phase(rng, *takes, done=f"sim/{runtime}=tidied")
    return phases


def _phase(rng: random.Random, *work: str, done: str) -> Object:
    arguments = [*work, f"seconds={rng.choice((0.3, 1, 4))}"]
    if rng.random() < 0.15:
        arguments.append("restart=1")
    if rng.random() < 0.1:
        arguments.append("restart-kubelet")
    sleeps = rng.random() < 0.4
    found = phase(
        *arguments,
        done=done if sleeps else "",
        grace=rng.choice((0, 1, 5)),
        hook=("restart",) if rng.random() < 0.1 else (),
        deaf=rng.random() < 0.5,
    )
    return {**found, "timeoutSeconds": rng.choice(TIMEOUTS)}

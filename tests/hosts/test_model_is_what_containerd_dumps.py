"""What the engine's model says of a configuration is what the real containerd dumps, on generated hosts.

`DUMP_EXAMPLES` says how many are tried per release.
"""

from __future__ import annotations

import asyncio
import copy
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hostconfig_shapes import LOADS
from hostconfig_trees import GVISOR, IMAGES, KATA, Tree, read, trees, write
from hypothesis import HealthCheck, given, settings

from reconciler.hostconfig import HostConfig, Verdict
from reconciler.hostconfig.checks import examine
from reconciler.hostconfig.cri_section import images_id, runtime_id, runtime_section, written_runtimes
from reconciler.hostconfig.dump import BinaryDump, DumpRefused
from reconciler.hostconfig.effective import Effective, load
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.version import parse

EXAMPLES = int(os.environ.get("DUMP_EXAMPLES", "60"))
ANY = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
SHAPES = {
    "nothing": {},
    "empty": {"/etc/containerd/config.toml": b""},
    "snapshotter without runtimes is lost by the migration": {
        "/etc/containerd/config.toml": b'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd]\n'
        b'snapshotter = "native"\n'
    },
    "bin_dir": {
        "/etc/containerd/config.toml": b'version = 2\n[plugins."io.containerd.grpc.v1.cri".cni]\nbin_dir = "/b"\n'
    },
    "sockets": {
        "/etc/containerd/config.toml": b'version = 2\n[grpc]\naddress = "/run/x.sock"\nuid = 7\n[metrics]\n'
        b'address = "127.0.0.1:0"\n[debug]\naddress = "/run/d.sock"\nlevel = "warn"\n'
    },
    "sandbox mode": {
        "/etc/containerd/config.toml": b'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.x]\n'
        b'runtime_type = "io.x.v1"\nsandbox_mode = "shim"\n'
    },
}


def pruned(value: Any) -> Any:
    """Without what says nothing: zero values, and the name of the default sandboxer."""
    if not isinstance(value, dict):
        return value
    kept = {key: pruned(one) for key, one in value.items()}
    return {
        key: one
        for key, one in kept.items()
        if one not in ("", 0, False, [], {})
        and (key, one) not in (("sandboxer", "podsandbox"), ("sandbox_mode", "podsandbox"))
    }


def laid_over(default: Any, written: Any) -> Any:
    """The default with what is written in the keys that this release knows; an empty default is a map of anything."""
    if written is None:
        return default
    if not (isinstance(default, dict) and default and isinstance(written, dict)):
        return written
    return {key: laid_over(one, written.get(key)) for key, one in default.items()}


def expected(effective: Effective, default: dict[str, Any], plugin: str) -> Any:
    """One plugin's settings as the model has them."""
    if plugin == IMAGES:
        images = default["plugins"][IMAGES]  # a map that is nil is not dumped
        images.setdefault("runtime_platforms", {})
        images.setdefault("registry", {}).setdefault("mirrors", {})
    return laid_over(default["plugins"].get(plugin, {}), effective.document.get("plugins", {}).get(plugin))


def runtimes(effective: Effective, default: dict[str, Any]) -> dict[str, Any]:
    """The table of runtimes: on 1.x a written one replaces the default, on 2.x it joins it."""
    built_in = default["plugins"][runtime_id(effective)]["containerd"]["runtimes"]
    known = set(built_in["runc"])
    written = {
        name: {key: value for key, value in table.items() if key in known}
        for name, table in written_runtimes(effective).items()
    }
    if effective.containerd.one:
        return written or built_in
    out = {**built_in, **written}
    if "runc" in written:
        out["runc"] = laid_over(built_in["runc"], written["runc"])
    return out


@cache
def default_of(binary: Path) -> dict[str, Any]:
    """What `binary` dumps where there are no files."""
    with tempfile.TemporaryDirectory() as nothing:
        return BinaryDump(Path(nothing), binary)("", {})


def agrees(root: Path, release: str, binary: Path, config: str = "") -> None:
    """Assert that the model and the binary make the same of the files."""
    host = HostRoot(root)
    effective = load(host, config, parse(release))
    loads = examine(effective, host).loads
    dump = BinaryDump(root, binary)
    try:
        real = dump(config, {})
    except DumpRefused as error:
        assert not loads, error
        return
    assert loads
    default = copy.deepcopy(default_of(binary))
    runtime, images = runtime_id(effective), images_id(effective)
    if runtime == "cri":
        runtime = images = "io.containerd.grpc.v1.cri"
        effective.document["plugins"] = {runtime: runtime_section(effective)}
        effective.merged["version"] = 2
    seen = real["plugins"][runtime]
    wanted = expected(effective, default, runtime)
    assert pruned(seen["containerd"].pop("runtimes")) == pruned(runtimes(effective, default))
    wanted.setdefault("containerd", {}).pop("runtimes", None)
    assert pruned(seen) == pruned(wanted)
    for plugin in {
        images,
        "io.containerd.grpc.v1.cri",
        "io.containerd.server.v1.grpc",
        "io.containerd.server.v1.debug",
    }:
        if plugin in default["plugins"] and plugin != runtime:
            assert pruned(real["plugins"][plugin]) == pruned(expected(effective, default, plugin))
    for key in ("debug", "timeouts", "grpc", "metrics"):
        written = effective.document.get(key, {})
        assert pruned(real.get(key, {})) == pruned({**default.get(key, {}), **written})
    assert pruned(real.get("proxy_plugins", {})) == pruned(effective.document.get("proxy_plugins", {}))
    assert real["oom_score"] == effective.document.get("oom_score", 0)


@pytest.mark.parametrize(("shape", "release"), [(name, one) for name in LOADS for one in LOADS[name].releases])
def test_of_shapes_of_the_field(shape: str, release: str, containerd: Path, tmp_path: Path) -> None:
    about = LOADS[shape]
    write(tmp_path, about.files)
    agrees(tmp_path, release, containerd, about.config)


@pytest.mark.parametrize("shape", SHAPES)
def test_of_known_shapes(shape: str, release: str, containerd: Path, tmp_path: Path) -> None:
    write(tmp_path, SHAPES[shape])
    agrees(tmp_path, release, containerd)


def test_of_any_host_before_with_and_after_our_handlers(release: str, containerd: Path) -> None:
    @ANY
    @given(trees(parse(release)))
    def check(tree: Tree) -> None:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            write(root, tree)
            agrees(root, release, containerd)
            host = HostConfig(root, "", release)
            if asyncio.run(host.apply("kata", "uid", KATA)).verdict is not Verdict.CHANGED:
                return
            asyncio.run(host.apply("gvisor", "uid", GVISOR))
            agrees(root, release, containerd)
            asyncio.run(host.remove("kata"))
            asyncio.run(host.remove("gvisor"))
            assert read(root) == tree

    check()

"""The real containerd binaries that the engine is held against, built or found once and kept by version.

1.6 is Debian 12's package; the others are built from the Go modules. Kept in
`~/.cache/runtime-reconciler/containerd-<version>/containerd` (`RECONCILER_CACHE` names another place).
`python tests/hosts/containerds.py` makes what is missing and prints NAME=PATH of each.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

CACHE = Path(os.environ.get("RECONCILER_CACHE", "~/.cache/runtime-reconciler")).expanduser()
PACKAGED = "1.6.20"
"""Of Debian 12: older than the check of `version`, so it misreads what later ones refuse."""
MODULES = {
    "1.7.34": ("github.com/containerd/containerd", "h1:Q35B4FUECxcoaMz9QrOlqp+0s72w8/0NWawVMhVdf5g="),
    "2.0.11": ("github.com/containerd/containerd/v2", "h1:N36I2b4nnf5zTVYph0x3hhjkFtoTgPTkDIu1+UOnkOQ="),
    "2.2.9": ("github.com/containerd/containerd/v2", "h1:ddw9THGOXhcKnHORjkKoXtazPjwtcPwmqk8AVyRpfZw="),
    "2.3.4": ("github.com/containerd/containerd/v2", "h1:c2PJo/9UGVdiiw8SwrxuLxWGY+9b3jQ6Xp9zntneIvI="),
}
"""Version → module and the hash of its source."""
VERSIONS = (PACKAGED, *MODULES)
DAEMON, SHIM = "containerd", "containerd-shim-runc-v2"
BUILD_TIMEOUT = 1800
"""Seconds for one build on a slow machine; about 90 on two cores with an empty cache."""


class Unavailable(RuntimeError):
    """A binary that can be neither found nor made; the message says what to do."""


def ensure(version: str, program: str = DAEMON) -> Path:
    """`program` of `version`, made when it is missing. Raises Unavailable."""
    target = CACHE / f"containerd-{version}" / program
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_suffix(".unfinished")
        if version == PACKAGED:
            _from_package(version, program, unfinished)
        else:
            _build(version, program, unfinished)
        unfinished.replace(target)
    return target


def said_version(binary: str | Path) -> str:
    """The version that `binary`, a daemon or a shim, names; "" when it does not run."""
    try:
        done = subprocess.run([binary, "-v"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.split()[2].lstrip("v")


def _from_package(version: str, program: str, target: Path) -> None:
    installed = shutil.which(program)
    if installed and said_version(installed).startswith(version):
        shutil.copy2(installed, target)
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            _run(["apt-get", "update", "-q"], folder)
            _run(["apt-get", "download", "-q", "containerd"], folder)
            (package,) = Path(folder).glob("containerd_*.deb")
            _run(["dpkg-deb", "--extract", str(package), folder], folder)
        except (OSError, ValueError) as error:
            raise Unavailable(f"containerd {version} is Debian 12's package: {error}") from error
        shutil.copy2(Path(folder, "usr/bin", program), target)
    if not said_version(target).startswith(version):
        raise Unavailable(f"this machine's package is not containerd {version}; put that binary at {target.parent}")


def _build(version: str, program: str, target: Path) -> None:
    module, digest = MODULES[version]
    if shutil.which("go") is None:
        raise Unavailable(f"containerd {version} is not in {CACHE} and cannot be built: no `go` on PATH")
    found = json.loads(_run(["go", "mod", "download", "-json", f"{module}@v{version}"], "/"))
    if found["Sum"] != digest:
        raise Unavailable(f"the source of {module} v{version} is not the pinned one: {found['Sum']}")
    print(f"building {program} {version} …", flush=True)
    flags = f"-s -w -X {module}/version.Version=v{version}"
    argv = ["go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-tags", "no_btrfs no_devmapper"]
    _run([*argv, "-ldflags", flags, "-o", str(target), f"./cmd/{program}"], found["Dir"])


def _run(argv: list[str], folder: str) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0"}
    done = subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=BUILD_TIMEOUT, check=False
    )
    if done.returncode:
        raise Unavailable(f"{' '.join(argv)[:120]}: exit {done.returncode}\n{(done.stderr or done.stdout)[-1500:]}")
    return done.stdout


if __name__ == "__main__":
    for one in VERSIONS:
        print(f"{one}={ensure(one)}", flush=True)

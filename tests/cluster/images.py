"""Images of our own without a registry: docker archives of a static busybox, and of a payload that drops a runtime."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

PAUSE = "localhost/pause:1"
BUSYBOX = "localhost/busybox:1"
PAYLOAD = "localhost/payload:1"
PAYLOAD_2 = "localhost/payload:2"

_SLEEP = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"


def write_all(folder: Path, node_root: Path) -> None:
    """The images that every node gets; the payload carries the runc and the shim of `node_root`."""
    folder.mkdir(parents=True, exist_ok=True)
    runtime = {
        "payload/runc": (node_root / "usr/sbin/runc").read_bytes(),
        "payload/containerd-shim-demo-v2": (node_root / "usr/bin/containerd-shim-runc-v2").read_bytes(),
    }
    write(folder / "pause.tar", PAUSE, entrypoint=["/bin/sh", "-c", _SLEEP])
    write(folder / "busybox.tar", BUSYBOX)
    write(folder / "payload-1.tar", PAYLOAD, files={**runtime, "payload/version": b"1\n"})
    write(folder / "payload-2.tar", PAYLOAD_2, files={**runtime, "payload/version": b"2\n"})


def write(path: Path, name: str, *, entrypoint: Sequence[str] = (), files: Mapping[str, bytes] | None = None) -> None:
    """A docker archive at `path` of busybox and `files` (name in the image → content)."""
    layer = _layer(files or {})
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Entrypoint": list(entrypoint) or None},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
        "history": [{"created_by": "tests/cluster/images.py"}],
    }
    text = json.dumps(config).encode()
    config_name = hashlib.sha256(text).hexdigest() + ".json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as archive:
        for member, data in (
            (config_name, text),
            ("layer.tar", layer),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            _add_file(archive, member, data, mode=0o644)


def _layer(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for folder in ("bin", "etc", "tmp", "proc", "sys", "dev", "run", "var", "payload"):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            layer.addfile(info)
        _add_file(layer, "bin/busybox", Path("/bin/busybox").read_bytes())
        for applet in subprocess.check_output(["/bin/busybox", "--list"], text=True).split():
            if applet != "busybox":
                info = tarfile.TarInfo(f"bin/{applet}")
                info.type, info.linkname = tarfile.SYMTYPE, "busybox"
                layer.addfile(info)
        _add_file(layer, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\n", mode=0o644)
        for name, data in files.items():
            _add_file(layer, name, data)
    return buffer.getvalue()


def _add_file(archive: tarfile.TarFile, name: str, data: bytes, *, mode: int = 0o755) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    archive.addfile(info, io.BytesIO(data))

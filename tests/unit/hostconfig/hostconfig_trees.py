"""Generated hosts: configurations as people and tools write them, for any release of containerd.

`trees(version)` draws files that mostly load; what is drawn: layout, imports, versions and ids of each
file, quoting, style (headers, dotted keys, inline tables), comments, indents, line ends, foreign handlers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from reconciler.api.noderuntime import Handler, RevisionData, Snapshotter
from reconciler.hostconfig.version import Version

MAIN = "/etc/containerd/config.toml"
FOLDER = "/etc/containerd/conf.d"
OLD, RUNTIME, IMAGES = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images"

KATA = RevisionData(
    handlers=(
        Handler(
            name="kata-qemu",
            runtime_type="io.containerd.kata-qemu.v2",
            snapshotter="nydus",
            pod_annotations=("io.katacontainers.*", 'quote"d\\'),
            privileged_without_host_devices=True,
        ),
        Handler(name="kata.fc", runtime_type="io.containerd.kata-fc.v2", options={"ConfigPath": "/opt/fc.toml"}),
    ),
    snapshotters=(Snapshotter(name="nydus", address="/run/nydus.sock"),),
)
GVISOR = RevisionData(handlers=(Handler(name="runsc", runtime_type="io.containerd.runsc.v1"),))

Leaf = tuple[tuple[str, ...], Any]
Tree = dict[str, bytes]


@dataclass(frozen=True)
class Style:
    quote: str
    end: str
    indent: str
    layout: str
    comments: bool


def write(root: Path, tree: Tree) -> None:
    """Lay `tree` down below `root`."""
    for path, data in tree.items():
        local = root / path.lstrip("/")
        local.parent.mkdir(parents=True, exist_ok=True)
        local.write_bytes(data)


def read(root: Path) -> Tree:
    """Every file below `root`, but for our own state."""
    found = {f"/{path.relative_to(root)}": path for path in root.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith("/var/lib/runtime-rec")}


def folders(root: Path) -> set[str]:
    """Every directory below `root`, but for that of our own state."""
    found = {f"/{path.relative_to(root)}" for path in root.rglob("*") if path.is_dir()}
    return {name for name in found if not name.startswith("/var")}


@st.composite
def trees(draw: st.DrawFn, version: Version) -> Tree:
    """The files of one host."""
    if draw(st.integers(0, 19)) == 0:
        return {}
    tree: Tree = {}
    number = draw(st.integers(0, 3))
    names = draw(st.permutations(["10-a.toml", "20-b.toml", "9-c.toml", ".d.toml"]))[:number]
    own = draw(st.sampled_from(_versions(version)))
    family = _family(draw, own, version)
    imports = draw(st.sampled_from([None, [], [f"{FOLDER}/*.toml"], ["conf.d/*"], "explicit"]))
    if imports == "explicit":
        imports = [f"{FOLDER}/{name}" for name in names]
    tree[MAIN] = _file(draw, _leaves(draw, family, first=True), own, imports)
    for name in names:
        drop_in = draw(st.sampled_from([0, own])) if own != 1 else 0
        other = family
        if not version.one and draw(st.integers(0, 3)) == 0:
            other, drop_in = draw(st.sampled_from([OLD, RUNTIME])), draw(st.sampled_from([0, 2, 3]))
        tree[f"{FOLDER}/{name}"] = _file(draw, _leaves(draw, other, first=False), drop_in, None)
    return tree


def _versions(version: Version) -> list[int]:
    if version.one:
        return [2, 2, 2, 1, 0]
    return [2, 2, 3, 3, 0] + ([4] if version.config_version_max == 4 else [])


def _family(draw: st.DrawFn, own: int, version: Version) -> str:
    if version.one:
        return "cri" if own < 2 else OLD
    return RUNTIME if own >= 3 else draw(st.sampled_from([OLD, OLD, RUNTIME]))


def _leaves(draw: st.DrawFn, family: str, *, first: bool) -> list[Leaf]:
    images = IMAGES if family == RUNTIME else family
    pause = ("pinned_images", "sandbox") if family == RUNTIME else ("sandbox_image",)
    leaves: list[Leaf] = []

    def maybe(path: tuple[str, ...], *values: Any, odds: int = 2) -> None:
        if draw(st.integers(0, odds)) == 0:
            leaves.append((path, draw(st.sampled_from(values))))

    maybe(("debug", "level"), "info", "warn")
    maybe(("oom_score",), -999, 0)
    maybe(("timeouts", "io.containerd.timeout.task.state"), "3s", "4s", odds=4)
    maybe(("proxy_plugins", "stargz", "address"), "/run/stargz.sock", odds=4)
    if leaves and leaves[-1][0][0] == "proxy_plugins":
        leaves.append((("proxy_plugins", "stargz", "type"), "snapshot"))
    maybe(("plugins", images, *pause), "p:1", 'p:"2"')
    maybe(("plugins", images, "registry", "config_path"), "/certs", "/certs:/more")
    maybe(("plugins", family, "max_container_log_line_size"), 16384, 0, odds=3)
    maybe(("plugins", family, "cni", "conf_dir"), "/etc/cni/net.d", odds=3)
    maybe(("plugins", family, "containerd", "default_runtime_name"), "runc", odds=3)
    maybe(("plugins", images, *(() if family == RUNTIME else ("containerd",)), "snapshotter"), "native", odds=3)
    handlers = draw(st.lists(st.sampled_from(["crun", "vendor.x", "gpu"]), unique=True, max_size=2))
    if first and (handlers or draw(st.booleans())):
        handlers.append("runc")
    for name in handlers:
        path = ("plugins", family, "containerd", "runtimes", name)
        leaves.append(((*path, "runtime_type"), "io.containerd.runc.v2"))
        maybe((*path, "options", "SystemdCgroup"), True, False, odds=1)
        maybe((*path, "pod_annotations"), ["a.*", "b"], [], odds=3)
        maybe((*path, "privileged_without_host_devices"), True, False, odds=3)
    return leaves


def _file(draw: st.DrawFn, leaves: list[Leaf], version: int, imports: list[str] | None) -> bytes:
    style = Style(
        quote=draw(st.sampled_from(['"', "'"])),
        end=draw(st.sampled_from(["\n", "\n", "\n", "\r\n"])),
        indent=draw(st.sampled_from(["", "  ", "\t"])),
        layout=draw(st.sampled_from(["headers", "headers", "headers", "dotted", "mixed", "inline"])),
        comments=draw(st.booleans()),
    )
    top = [f"version{draw(st.sampled_from([' = ', '=']))}{version}"] if version else []
    if imports is not None:
        top.append(
            f"{draw(st.sampled_from(['imports', chr(34) + 'imports' + chr(34)]))} = {_list(draw, imports, style)}"
        )
    plain = [leaf for leaf in leaves if len(leaf[0]) == 1]
    nested = [leaf for leaf in leaves if len(leaf[0]) > 1]
    top += [f"{key} = {_value(value, style)}" for (key,), value in plain]
    lines = list(draw(st.permutations(top)))
    if style.comments:
        lines.insert(draw(st.integers(0, len(lines))), '# imports = ["/x"] and [plugins] of yesterday')
    lines += _tables(draw, nested, style)
    ending = draw(st.sampled_from([style.end, style.end, "", style.end * 2])) if lines else ""
    return (style.end.join(lines) + ending).encode()


def _list(draw: st.DrawFn, entries: list[str], style: Style) -> str:
    words = [_value(entry, style) for entry in entries]
    if words and draw(st.booleans()):
        return f"[{style.end}  " + f",{style.end}  ".join(words) + draw(st.sampled_from(["", ","])) + f"{style.end}]"
    return "[" + ", ".join(words) + draw(st.sampled_from(["]", " ]", "] # site"]))


def _tables(draw: st.DrawFn, leaves: list[Leaf], style: Style) -> list[str]:
    if style.layout == "inline":
        tables: dict[str, Any] = {}
        for path, value in leaves:
            here = tables
            for key in path[:-1]:
                here = here.setdefault(key, {})
            here[path[-1]] = value
        return [f"{key} = {_value(value, style)}" for key, value in tables.items()]
    dotted = [leaf for leaf in leaves if style.layout == "dotted"]
    lines = [f"{_path(path, style)} = {_value(value, style)}" for path, value in dotted]
    groups: dict[tuple[str, ...], list[str]] = {}
    for path, value in leaves if style.layout != "dotted" else []:
        cut = len(path) - 1
        if style.layout == "mixed" and cut > 2 and path[-2] == "options":
            cut -= 1
        groups.setdefault(path[:cut], []).append(f"{_path(path[cut:], style)} = {_value(value, style)}")
    for table in draw(st.permutations(list(groups))):
        margin = style.indent * (len(table) - 1)
        lines.append(f"{margin}[{_path(table, style)}]" + (" # one" if style.comments else ""))
        lines += [f"{margin}{style.indent}{line}" for line in groups[table]]
    return lines


def _path(path: tuple[str, ...], style: Style) -> str:
    return ".".join(key if key.replace("_", "").isalnum() else f"{style.quote}{key}{style.quote}" for key in path)


def _value(value: Any, style: Style) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_path((key,), style)} = {_value(one, style)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_value(one, style) for one in value) + "]"
    if isinstance(value, str) and style.quote == "'":
        return f"'{value}'"
    return json.dumps(value)

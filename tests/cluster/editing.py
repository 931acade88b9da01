"""A vendor's payload that edits containerd's configuration as text, and the configurations it starts from.

It does what such scripts are seen to do in the field: `imports` is edited as a string, a drop-in is written and
removed, tables are appended by `cat` and cut out by `awk`, and containerd is restarted from within the pod.
"""

from __future__ import annotations

from tests.cluster import runtimes
from tests.cluster.api import Object
from tests.cluster.command import run
from tests.cluster.node import CONTAINERD_CONFIG, Node

OWN = "etc/containerd/extra.d/10-own.toml"
"""A file that an administrator imports: the vendor's script must leave it alone."""
_OWN_TEXT = "oom_score = -900\n"
CONFIG = "etc/containerd/config.toml"
_FOLDER = "/etc/containerd"

_NAMES = (
    f"conf=/{CONFIG}; part={_FOLDER}/vendor.toml; cri='plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes'\n"
)
_INSTALL = (
    _NAMES
    + f"""
cp "$conf" "$conf.before-vendor"
printf '[proxy_plugins.vendor]\\ntype = "snapshot"\\naddress = "/run/vendor/vendor.sock"\\n' > "$part"
if grep -q '^imports' "$conf"; then
  sed -i "s|^imports = \\[|&\\"$part\\", |" "$conf"
else
  sed -i "1i imports = [\\"$part\\"]" "$conf"
fi
for handler in runc {runtimes.HANDLER}; do
  grep -q "runtimes.$handler]" "$conf" ||
    printf '[%s.%s]\\nruntime_type = "io.containerd.runc.v2"\\n' "$cri" "$handler" >> "$conf"
done
systemctl restart containerd && sleep 1
exit 0
"""
)
_UNINSTALL = (
    _NAMES
    + f"""
sed -i "s|\\"$part\\"||" "$conf"
awk '/^ *\\[/ {{ ours = /runtimes\\.{runtimes.HANDLER}\\]/ }} !ours' "$conf" > "$conf.new" && cat "$conf.new" > "$conf"
rm -f "$part" "$conf.new"
systemctl restart containerd && sleep 1
exit 0
"""
)
"""The entry goes and its comma stays: `imports = [, …]`. What `systemctl` says does not end the script, as is usual.
The second that follows keeps the pod's own end out of containerd's start: 1.6 can lose the exit of a container there.
"""
_ON_HOST = 'sleep 1; nsenter -t 1 -m -p -u -i -n -- sh -c "$EDIT"'
"""Begins a second late: a container whose script restarts containerd before its own start was answered is taken by
kubelet for one that did not start, and runs twice.
"""


def phases() -> Object:
    """Install and uninstall of the vendor's payload."""
    return {"install": _phase(f"{runtimes.INSTALL}; ", _INSTALL), "uninstall": _phase("", _UNINSTALL, after=_CLEAN)}


_CLEAN = f"; {runtimes.UNINSTALL}"
_FIGHT = (
    _NAMES
    + """
for round in 1 2 3; do
  until systemctl is-active -q containerd; do sleep 0.2; done
  sleep 3
  echo 'imports = [ , ]' >> "$conf"
  systemctl restart containerd
done
exit 0
"""
)


def fight() -> Object:
    """An install that breaks the configuration again as soon as containerd is back, three times in all."""
    return {"install": _phase("", _FIGHT), "uninstall": runtimes.phase("true")}


def _phase(before: str, script: str, *, after: str = "") -> Object:
    return runtimes.phase(f"{before}{_ON_HOST}{after}", env=[{"name": "EDIT", "value": script}])


def minimal(node: Node) -> str:
    """No imports and no table of runtimes."""
    return CONTAINERD_CONFIG


def own_import(node: Node) -> str:
    """An import of the administrator's own."""
    return f'imports = ["/{OWN}"]\n{CONTAINERD_CONFIG}'


def config_default(node: Node) -> str:
    """What `containerd config default` prints, with what a node of this cluster cannot do without."""
    text = run(["nsenter", "-t", str(node.leader()), "-a", "containerd", "config", "default"])
    for line in CONTAINERD_CONFIG.splitlines():
        key, found, _ = line.partition(" = ")
        if found and key.startswith(" "):
            text = "\n".join(_set(old, key.strip(), line.strip()) for old in text.split("\n"))
    return text


def _set(line: str, key: str, wanted: str) -> str:
    """`wanted` in the place of a line that sets `key`, indented as that is."""
    if line.partition(" = ")[0].strip() != key:
        return line
    return line[: len(line) - len(line.lstrip())] + wanted


STARTS = {"minimal": minimal, "an import of its own": own_import, "config default": config_default}


def prepare(node: Node, text: str) -> None:
    """The node with `text` for its configuration, as read by a containerd that serves with it."""
    own = node.root / OWN
    if f"/{OWN}" in text:
        own.parent.mkdir(exist_ok=True)
        own.write_text(_OWN_TEXT)
    (node.root / CONFIG).write_text(text)
    node.sh("systemctl reset-failed containerd; systemctl restart containerd")


def tidy(node: Node) -> None:
    """Nothing of the vendor or of the guard on the disk, and the configuration of the beginning in use."""
    node.sh(
        f"cd {_FOLDER}; rm -rf vendor.toml config.toml.before-vendor config.toml.new extra.d;"
        " rm -rf /var/lib/runtime-reconciler/rejected /var/lib/runtime-reconciler/put-back.json;"
        f" {runtimes.UNINSTALL.replace('/host-opt', '/opt').replace('/host-bin', '/usr/local/bin')}"
    )
    prepare(node, CONTAINERD_CONFIG)


def own_is_untouched(node: Node) -> bool:
    """Whether the administrator's file is as it was, where there is one."""
    own = node.root / OWN
    return not own.parent.exists() or own.read_text() == _OWN_TEXT

"""Keys of a handler's table that a containerd knows: it drops all others without a word.

Read off `config default` of 1.6.20, 1.7.34, 2.0.11, 2.2.9 and 2.3.4 and the sources between them.
"""

from __future__ import annotations

from reconciler.api.noderuntime import Handler
from reconciler.hostconfig.model import Code, Refused
from reconciler.hostconfig.version import Version

_ALWAYS = frozenset(
    {
        "base_runtime_spec",
        "cni_conf_dir",
        "cni_max_conf_num",
        "container_annotations",
        "options",
        "pod_annotations",
        "privileged_without_host_devices",
        "runtime_path",
        "runtime_type",
    }
)
_SINCE = {
    "privileged_without_host_devices_all_devices_allowed": Version(1, 7),
    "sandbox_mode": Version(1, 7),
    "snapshotter": Version(1, 7),
    "io_type": Version(2, 0),
    "sandboxer": Version(2, 0),
    "cgroup_writable": Version(2, 1),
}
_UNTIL_2 = {"runtime_engine", "runtime_root", "sandbox_mode"}


def known(key: str, version: Version) -> bool:
    """True when containerd `version` reads `key`."""
    if key in _UNTIL_2 and not version.one:
        return False
    return key in _ALWAYS | _UNTIL_2 if key not in _SINCE else version >= _SINCE[key]


def check_extra(handlers: list[Handler], version: Version) -> None:
    """Raises Refused(UnsupportedVersion) on a key of `extra` that would be dropped."""
    for handler in handlers:
        for key in handler.extra:
            if not known(key, version):
                text = f"containerd {version} does not know the key {key!r} (`extra` of handler {handler.name})"
                raise Refused(Code.UNSUPPORTED_VERSION, text)

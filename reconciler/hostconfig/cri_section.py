"""The CRI plugin's settings in a merged configuration: under which ids they are, and what they serve."""

from __future__ import annotations

from reconciler.hostconfig.dialects import CRI_IMAGES, CRI_RUNTIME, CRI_V1, CRI_V2, Table, table
from reconciler.hostconfig.effective import Effective

RUNC = "runc"
RUNC_TYPE = "io.containerd.runc.v2"


def runtime_id(effective: Effective) -> str:
    """The id under which this containerd reads runtimes."""
    if not effective.containerd.one:
        return CRI_RUNTIME
    return CRI_V1 if effective.version == 1 and effective.exists else CRI_V2


def images_id(effective: Effective) -> str:
    """The id under which this containerd reads the snapshotter, the pause image and registries."""
    return runtime_id(effective) if effective.containerd.one else CRI_IMAGES


def plugin(effective: Effective, name: str) -> Table:
    return table(table(effective.document, "plugins"), name)


def runtime_section(effective: Effective) -> Table:
    return plugin(effective, runtime_id(effective))


def images_section(effective: Effective) -> Table:
    return plugin(effective, images_id(effective))


def containerd_section(effective: Effective) -> Table:
    return table(runtime_section(effective), "containerd")


def written_runtimes(effective: Effective) -> dict[str, Table]:
    """The runtimes table as written and in force."""
    found = table(containerd_section(effective), "runtimes")
    return {name: one for name, one in found.items() if isinstance(one, dict)}


def served_runtimes(effective: Effective) -> dict[str, Table]:
    """What CRI would name.

    The built-in `runc` is hidden by any other runtime on 1.x and always there on 2.x; 1.x knows two
    deprecated entries besides.
    """
    written = written_runtimes(effective)
    built_in: Table = {"runtime_type": RUNC_TYPE}
    if not effective.containerd.one:
        return {RUNC: built_in} | {name: {**built_in, **one} if name == RUNC else one for name, one in written.items()}
    served = dict(written) or {RUNC: built_in}
    for key, name in (("untrusted_workload_runtime", "untrusted"), ("default_runtime", "default")):
        old = table(containerd_section(effective), key)
        if old.get("runtime_type"):
            served[name] = old
    return served


def default_runtime(effective: Effective) -> str:
    """Its name; "" when the files set it to nothing."""
    section = containerd_section(effective)
    if effective.containerd.one and table(section, "default_runtime").get("runtime_type"):
        return "default"
    return str(section.get("default_runtime_name", RUNC))


def default_snapshotter(effective: Effective) -> str:
    section = containerd_section(effective) if effective.containerd.one else images_section(effective)
    return str(section.get("snapshotter", "overlayfs"))


def systemd_cgroup(effective: Effective) -> bool:
    """The cgroup setting of the default runtime, which handlers of type runc must share."""
    default = served_runtimes(effective).get(default_runtime(effective), {})
    return bool(table(default, "options").get("SystemdCgroup"))

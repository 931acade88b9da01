"""containerd's configuration on one host: read, predict, edit, restart, prove, undo (design section 6).

May import `cri`, `systemd` and `api`. The public names are those of `__all__`.
"""

from reconciler.hostconfig.causes import HostCauses
from reconciler.hostconfig.discovery import Daemon, discover, installed
from reconciler.hostconfig.distribution import socket_of
from reconciler.hostconfig.dump import BinaryDump
from reconciler.hostconfig.engine import BOOT_ID, Fence, HostConfig
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.model import (
    Code,
    FileChange,
    Finding,
    Findings,
    HostConfigError,
    Outcome,
    Refused,
    Timing,
    Verdict,
)
from reconciler.hostconfig.processes import LinuxProcesses

__all__ = [
    "BOOT_ID",
    "BinaryDump",
    "Code",
    "Daemon",
    "Fence",
    "FileChange",
    "Finding",
    "Findings",
    "HostCauses",
    "HostConfig",
    "HostConfigError",
    "HostRoot",
    "LinuxProcesses",
    "Outcome",
    "Refused",
    "Timing",
    "Verdict",
    "discover",
    "installed",
    "socket_of",
]

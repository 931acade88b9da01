"""Versions of containerd, and what changed between them that matters here."""

from __future__ import annotations

import re
from dataclasses import dataclass

from reconciler.hostconfig.model import Code, Refused

_PATTERN = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, order=True)
class Version:
    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @property
    def one(self) -> bool:
        """The 1.x line: a later file's plugin section replaces the whole earlier one."""
        return self.major == 1

    @property
    def checks_config_version(self) -> bool:
        """From 1.6.32 and 1.7.17 on a `version` above 2 is fatal; older ones accept and misread it."""
        return self.patch >= (17 if self.minor == 7 else 32)

    @property
    def resolves_relative_globs(self) -> bool:
        """Before 1.6.29 and 1.7.14 a relative pattern was taken from the daemon's own directory, `/`."""
        return self.patch >= (14 if self.minor == 7 else 29)


def parse(text: str) -> Version:
    """`1.6.20~ds1`, `v2.0.11-k3s1` → Version. Raises Refused(UnsupportedVersion) on anything else."""
    match = _PATTERN.search(text)
    if match is None:
        raise Refused(Code.UNSUPPORTED_VERSION, f"not a version of containerd: {text!r}")
    major, minor, patch = match.groups()
    return Version(int(major), int(minor), int(patch or 0))


def supported(version: Version) -> None:
    """Raises Refused(UnsupportedVersion) for a containerd whose configuration is not understood."""
    if not version.one or version.minor not in (6, 7):
        raise Refused(Code.UNSUPPORTED_VERSION, f"containerd {version} is not supported; 1.6 and 1.7 are")

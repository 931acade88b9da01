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
        """The 1.x line: plugin sections are replaced whole, and only version 2 ids are known."""
        return self.major == 1

    @property
    def config_version_max(self) -> int:
        """Highest `version` of a configuration file that it knows."""
        if self.one:
            return 2
        return 4 if self.migrates_each_file else 3

    @property
    def checks_config_version(self) -> bool:
        """From 1.6.32 and 1.7.17 on a `version` above the known is fatal; older ones accept and misread it."""
        if not self.one:
            return True
        return self.patch >= (17 if self.minor == 7 else 32)

    @property
    def resolves_relative_globs(self) -> bool:
        """Before 1.6.29 and 1.7.14 a relative pattern was taken from the daemon's own directory, `/`."""
        if not self.one:
            return True
        return self.patch >= (14 if self.minor == 7 else 29)

    @property
    def migrates_each_file(self) -> bool:
        """From 2.3 on each file is migrated before the merge; 2.0 to 2.2 merge as written and migrate once."""
        return self >= Version(2, 3)

    @property
    def refuses_newer_drop_ins(self) -> bool:
        """An import whose `version` is above the main file's is fatal (containerd#12891, 2.3)."""
        return self.migrates_each_file

    @property
    def renames_bin_dir(self) -> bool:
        """`cni.bin_dir` becomes the list `cni.bin_dirs` in the migration."""
        return self >= Version(2, 1)

    @property
    def k3s_extends_its_template(self) -> bool:
        """The k3s and rke2 that ship it know `{{ template "base" . }}`, which draws in their own template."""
        return self >= Version(1, 7)


def parse(text: str) -> Version:
    """`1.6.20~ds1`, `v2.0.11-k3s1` → Version. Raises Refused(UnsupportedVersion) on anything else."""
    match = _PATTERN.search(text)
    if match is None:
        raise Refused(Code.UNSUPPORTED_VERSION, f"not a version of containerd: {text!r}")
    major, minor, patch = match.groups()
    return Version(int(major), int(minor), int(patch or 0))


def supported(version: Version) -> None:
    """Raises Refused(UnsupportedVersion) for a containerd whose configuration is not understood."""
    if not Version(1, 6) <= version < Version(2, 4) or Version(1, 8) <= version < Version(2, 0):
        text = f"containerd {version} is not supported; 1.6, 1.7 and 2.0 to 2.3 are"
        raise Refused(Code.UNSUPPORTED_VERSION, text)

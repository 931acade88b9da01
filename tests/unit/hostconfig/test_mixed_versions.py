"""What each containerd makes of a main file and a drop-in in other dialects.

A letter per thing that is in force: P the pause image, S runc's SystemdCgroup and R the registry
directory of the main file, K the drop-in's runtime; `-` for what is lost, `x` for a file set that does not
load. The values are those that `config dump` of the real releases printed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.hostconfig.checks import examine
from reconciler.hostconfig.cri_section import images_section, runtime_section, served_runtimes
from reconciler.hostconfig.effective import Effective, load
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.version import Version, parse

V2 = 'plugins."io.containerd.grpc.v1.cri"'
RUNTIME, IMAGES = "plugins.'io.containerd.cri.v1.runtime'", "plugins.'io.containerd.cri.v1.images'"
IMPORT = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'
OLD_IDS = f"""[{V2}]
sandbox_image = "p:1"
[{V2}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
options = {{ SystemdCgroup = true }}
[{V2}.registry]
config_path = "/certs"
"""
NEW_IDS = f"""[{IMAGES}]
pinned_images = {{ sandbox = "p:1" }}
registry = {{ config_path = "/certs" }}
[{RUNTIME}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
options = {{ SystemdCgroup = true }}
"""
OLD_DROP_IN = f'[{V2}.containerd.runtimes.kata]\nruntime_type = "io.containerd.kata.v2"\n'
NEW_DROP_IN = f'[{RUNTIME}.containerd.runtimes.kata]\nruntime_type = "io.containerd.kata.v2"\n'
VERSION_1 = OLD_IDS.replace('"io.containerd.grpc.v1.cri"', "cri")
RELEASES = ("1.6.39", "1.7.34", "2.0.11", "2.2.9", "2.3.4")

ROWS = {
    "2 + old ids": (2, OLD_IDS, 0, OLD_DROP_IN, "---K ---K PSRK PSRK PSRK"),
    "2 + old ids, version 2": (2, OLD_IDS, 2, OLD_DROP_IN, "---K ---K PSRK PSRK PSRK"),
    "2 + new ids, version 3": (2, OLD_IDS, 3, NEW_DROP_IN, "x x ---K ---K x"),
    "2 + new ids": (2, OLD_IDS, 0, NEW_DROP_IN, "PSR- PSR- P-RK P-RK PSRK"),
    "3 + new ids, version 3": (3, NEW_IDS, 3, NEW_DROP_IN, "x x PSRK PSRK PSRK"),
    "3 + new ids": (3, NEW_IDS, 0, NEW_DROP_IN, "x x PSRK PSRK PSRK"),
    "3 + new ids, version 2": (3, NEW_IDS, 2, NEW_DROP_IN, "---- ---- PSRK PSRK PSRK"),
    "3 + old ids, version 2": (3, NEW_IDS, 2, OLD_DROP_IN, "---K ---K PSR- PSR- PSRK"),
    "3 + old ids, version 3": (3, NEW_IDS, 3, OLD_DROP_IN, "x x PSR- PSR- PSRK"),
    "3 + old ids": (3, NEW_IDS, 0, OLD_DROP_IN, "x x PSR- PSR- PSRK"),
    "4 + new ids, version 3": (4, NEW_IDS, 3, NEW_DROP_IN, "x x PSRK PSRK PSRK"),
    "3 + version 4": (3, NEW_IDS, 4, NEW_DROP_IN, "x x x x x"),
    "2 with new ids + old ids": (2, NEW_IDS, 0, OLD_DROP_IN, "---K ---K PSR- PSR- PSRK"),
    "2 with new ids + new ids": (2, NEW_IDS, 0, NEW_DROP_IN, "---- ---- PSRK PSRK PSRK"),
    "2 with both ids": (2, NEW_IDS + OLD_DROP_IN, 0, "", "---K ---K PSR- PSR- PSR-"),
    "none with old ids": (0, OLD_IDS, 0, "", "---- ---- ---- ---- PSR-"),
    "1": (0, VERSION_1, 0, "", "PSR- PSR- ---- ---- PSR-"),
    "none, empty + new ids, version 3": (0, "", 3, NEW_DROP_IN, "x x ---K ---K ---K"),
    "none, empty + new ids": (0, "", 0, NEW_DROP_IN, "---- ---- ---K ---K ---K"),
}


def seen(effective: Effective) -> str:
    runtimes, images, section = served_runtimes(effective), images_section(effective), runtime_section(effective)
    pause = images.get("pinned_images", {}).get("sandbox") or section.get("sandbox_image")
    return "".join(
        letter if there else "-"
        for letter, there in {
            "P": pause == "p:1",
            "S": runtimes.get("runc", {}).get("options", {}).get("SystemdCgroup") is True,
            "R": images.get("registry", {}).get("config_path") == "/certs",
            "K": "kata" in runtimes,
        }.items()
    )


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("row", ROWS)
def test_what_is_in_force(row: str, release: str, tmp_path: Path) -> None:
    main_version, main, own, drop_in, expected = ROWS[row]
    folder = tmp_path / "etc/containerd/conf.d"
    folder.mkdir(parents=True)
    head = f"version = {main_version}\n" if main_version else ""
    (folder.parent / "config.toml").write_text(head + IMPORT + main)
    (folder / "10.toml").write_text((f"version = {own}\n" if own else "") + drop_in)
    host = HostRoot(tmp_path)
    effective = load(host, "", parse(release))
    got = seen(effective) if examine(effective, host).loads else "x"
    assert got == expected.split()[RELEASES.index(release)]


def test_debians_1_6_20_misreads_what_later_ones_refuse(tmp_path: Path) -> None:
    config = tmp_path / "etc/containerd/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("version = 3\n" + NEW_IDS)
    host = HostRoot(tmp_path)
    findings = examine(load(host, "", Version(1, 6, 20)), host)
    assert (findings.loads, findings.handlers) == (True, ("runc",))
    assert [finding.code for finding in findings.findings] == ["DialectMismatch"]
    assert not examine(load(host, "", Version(1, 6, 32)), host).loads

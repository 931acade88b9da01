"""`repair` mends what is known to be mendable, and leaves everything else as it is."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hostconfig_shapes import ALL, BROKEN, CONF_D, ONE, PLAIN, RUNC, TWO, one
from hostconfig_trees import FOLDER, GVISOR, MAIN, Tree, read, write

from reconciler.hostconfig import Code, HostConfig, Verdict

OURS = f"{FOLDER}/runtime-reconciler-site.toml"
MENDABLE: dict[str, tuple[Tree, Tree]] = {
    "a lone comma": (one("imports = [ , ]\n" + PLAIN), one("imports = [ ]\n" + PLAIN)),
    "a comma before the entries": (
        {**one('imports = [, "/etc/a.toml"]\n' + PLAIN), "/etc/a.toml": b""},
        {**one('imports = ["/etc/a.toml"]\n' + PLAIN), "/etc/a.toml": b""},
    ),
    "a comma too many between entries": (
        {**one('imports = ["/etc/a.toml", , "/etc/b,,.toml"]\n' + PLAIN), "/etc/a.toml": b"", "/etc/b,,.toml": b""},
        {**one('imports = ["/etc/a.toml", "/etc/b,,.toml"]\n' + PLAIN), "/etc/a.toml": b"", "/etc/b,,.toml": b""},
    ),
    "a second list of an installer": (
        {
            **one('imports = ["/opt/kata/kata-deploy.toml"]\nimports = ["/etc/a.toml"] # site\n' + PLAIN),
            "/etc/a.toml": b"",
            "/opt/kata/kata-deploy.toml": b"",
        },
        {
            **one('imports = ["/etc/a.toml", "/opt/kata/kata-deploy.toml"] # site\n' + PLAIN),
            "/etc/a.toml": b"",
            "/opt/kata/kata-deploy.toml": b"",
        },
    ),
    "a second list that says the same": (
        {**one('imports = ["/etc/a.toml"]\nversion = 2\nimports = ["/etc/a.toml"]\n' + RUNC), "/etc/a.toml": b""},
        {**one('imports = ["/etc/a.toml"]\nversion = 2\n' + RUNC), "/etc/a.toml": b""},
    ),
    "an empty import": (one('imports = [""]\n' + PLAIN), one("imports = []\n" + PLAIN)),
    "an import that an installer left, twice": (
        {
            **one('imports = ["/opt/kata/kata-deploy.toml", "/etc/a.toml", "/opt/kata/kata-deploy.toml"]\n'),
            "/etc/a.toml": b"",
        },
        {**one('imports = ["/etc/a.toml"]\n'), "/etc/a.toml": b""},
    ),
    "a broken drop-in of ours": (
        {**one(CONF_D + PLAIN), OURS: b"[["},
        {**one(CONF_D + PLAIN), "/etc/containerd/runtime-reconciler-site.toml.0ec5c5ea.set-aside": b"[["},
    ),
}


@pytest.mark.parametrize("release", ALL)
@pytest.mark.parametrize("shape", MENDABLE)
def test_what_is_mendable(shape: str, release: str, tmp_path: Path) -> None:
    broken, mended = MENDABLE[shape]
    write(tmp_path, broken)
    host = HostConfig(tmp_path, "", release)
    findings = host.check()
    assert not findings.loads and findings.findings[0].repairable
    outcome = asyncio.run(host.repair())
    assert (outcome.verdict, outcome.handlers) == (Verdict.REPAIRED, ("runc",))
    assert read(tmp_path) == mended
    assert asyncio.run(host.repair()).verdict is Verdict.UNCHANGED


@pytest.mark.parametrize("release", ALL)
def test_a_doubled_import_of_a_known_installer_is_taken_out_once(release: str, tmp_path: Path) -> None:
    entries = ["/opt/kata-deploy.toml", "/etc/a.toml", "/etc/a.toml"]
    files = {"/opt/kata-deploy.toml": b"[debug]\n", "/etc/a.toml": b""}
    write(tmp_path, {**one(f"imports = {json.dumps([*entries, entries[0]])}\n{PLAIN}"), **files})
    assert asyncio.run(HostConfig(tmp_path, "", release).repair()).verdict is Verdict.REPAIRED
    assert read(tmp_path) == {**one(f"imports = {json.dumps(entries)}\n{PLAIN}"), **files}


@pytest.mark.parametrize(
    "shape", [name for name in BROKEN if name not in ("a list that begins with a comma", "two import lists")]
)
def test_everything_else_stays(shape: str, tmp_path: Path) -> None:
    code, files, releases = BROKEN[shape]
    write(tmp_path, files)
    outcome = asyncio.run(HostConfig(tmp_path, "", releases[0]).repair())
    assert (outcome.verdict, outcome.reason) == (Verdict.REFUSED, code)
    assert outcome.message.startswith("not ours to mend: ")
    assert read(tmp_path) == files


@pytest.mark.parametrize("release", TWO)
def test_apply_heals_a_broken_drop_in_of_its_own(release: str, tmp_path: Path) -> None:
    files = one(CONF_D + PLAIN)
    write(tmp_path, {**files, OURS: b"[["})
    host = HostConfig(tmp_path, "", release)
    assert asyncio.run(host.apply("site", "uid", GVISOR)).verdict is Verdict.CHANGED
    assert asyncio.run(host.remove("site")).verdict is Verdict.CHANGED
    assert read(tmp_path) == files


@pytest.mark.parametrize(
    ("text", "release", "code", "path", "line"),
    [
        ('imports = []\nimports = ["x"]\n', "2.2.9", Code.INVALID_TOML, MAIN, 2),
        (CONF_D + "version = 2\n[proxy_plugins.s]\n", "2.2.9", Code.INCOMPLETE_PROXY_PLUGIN, MAIN, 3),
        ('[debug]\nlevel = ""\nimports = ["/gone.toml"]\n', "2.2.9", None, "", None),
        ('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n', "1.7.34", Code.CRI_DISABLED, MAIN, 2),
        ("# one\nversion = 9\n", "2.0.11", Code.UNSUPPORTED_VERSION, MAIN, 2),
    ],
)
def test_findings_name_file_and_line(
    text: str, release: str, code: Code | None, path: str, line: int | None, tmp_path: Path
) -> None:
    write(tmp_path, one(text))
    findings = HostConfig(tmp_path, "", release).check().findings
    if code is None:
        assert findings == ()
    else:
        assert (findings[0].code, findings[0].path, findings[0].line) == (code, path, line)


def test_a_dangling_import_says_who_imports_it_and_where(tmp_path: Path) -> None:
    write(tmp_path, one('version = 2\nimports = [\n  "gone.toml",\n]\n'))
    (finding,) = HostConfig(tmp_path, "", ONE[1]).check().findings
    assert finding.message == (
        "/etc/containerd/gone.toml is imported by /etc/containerd/config.toml:3 and is not there: "
        "take the entry out or put the file back"
    )

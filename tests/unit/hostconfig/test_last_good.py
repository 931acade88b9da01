"""A main file that vanished, or of which half is left, is put back by `repair` when it is known what it was."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hostconfig_shapes import ALL, PLAIN, one
from hostconfig_trees import GVISOR, KATA, MAIN, read, write

from reconciler.hostconfig import Code, HostConfig, Outcome, Verdict

COPY = "var/lib/runtime-reconciler/last-good.json"


@pytest.fixture(params=ALL)
def host(request: pytest.FixtureRequest, tmp_path: Path) -> HostConfig:
    """A host with a runtime of ours."""
    write(tmp_path, one(PLAIN))
    (tmp_path / MAIN.lstrip("/")).chmod(0o600)
    host = HostConfig(tmp_path, "", request.param)
    assert asyncio.run(host.apply("gvisor", "uid", GVISOR)).verdict is Verdict.CHANGED
    return host


def main_of(root: Path) -> Path:
    return root / MAIN.lstrip("/")


def repair(host: HostConfig) -> Outcome:
    return asyncio.run(host.repair())


@pytest.mark.parametrize("left", ["nothing", "an empty file", "half of a file"])
def test_it_is_put_back_as_it_was(left: str, host: HostConfig, tmp_path: Path) -> None:
    tree, main = read(tmp_path), main_of(tmp_path)
    main.unlink()
    if left != "nothing":
        main.write_bytes(b"" if left == "an empty file" else tree[MAIN][: len(PLAIN) - 8])
        main.chmod(0o600)
    assert [one.code for one in host.check().findings if one.repairable] == [Code.MISSING_CONFIG]
    outcome = repair(host)
    assert (outcome.verdict, outcome.handlers) == (Verdict.REPAIRED, ("runc", "runsc"))
    assert read(tmp_path) == tree
    assert main.stat().st_mode & 0o777 == 0o600
    assert repair(host).verdict is Verdict.UNCHANGED


def test_what_is_written_by_somebody_else_is_never_replaced(host: HostConfig, tmp_path: Path) -> None:
    main_of(tmp_path).write_bytes(b"version = 2\n[[\n")
    assert repair(host).verdict is Verdict.REFUSED
    assert main_of(tmp_path).read_bytes() == b"version = 2\n[[\n"


def test_a_file_without_us_was_put_back_on_purpose(host: HostConfig, tmp_path: Path) -> None:
    main_of(tmp_path).write_text(PLAIN)
    assert repair(host).verdict is Verdict.UNCHANGED
    assert main_of(tmp_path).read_text() == PLAIN


@pytest.mark.parametrize("before", [None, b""])
@pytest.mark.parametrize("release", ALL)
def test_a_file_that_held_nothing_but_ours_is_no_loss(before: bytes | None, release: str, tmp_path: Path) -> None:
    write(tmp_path, {} if before is None else {MAIN: before})
    host = HostConfig(tmp_path, "", release)
    asyncio.run(host.apply("gvisor", "uid", GVISOR))
    main_of(tmp_path).unlink()
    if before is not None:
        main_of(tmp_path).write_bytes(before)
    assert repair(host).verdict is Verdict.UNCHANGED


def test_the_copy_is_for_root_alone_and_goes_with_the_last_runtime(host: HostConfig, tmp_path: Path) -> None:
    asyncio.run(host.apply("kata", "uid", KATA))
    asyncio.run(host.remove("gvisor"))
    assert (tmp_path / COPY).stat().st_mode & 0o777 == 0o600
    asyncio.run(host.remove("kata"))
    assert not (tmp_path / COPY).exists()
    main_of(tmp_path).unlink()
    assert repair(host).verdict is Verdict.UNCHANGED


def test_the_copy_is_of_the_last_change(host: HostConfig, tmp_path: Path) -> None:
    asyncio.run(host.apply("kata", "uid", KATA))
    asyncio.run(host.remove("gvisor"))
    tree = read(tmp_path)
    main_of(tmp_path).unlink()
    assert repair(host).handlers == ("kata-qemu", "kata.fc", "runc")
    assert read(tmp_path) == tree


def test_an_edit_of_somebody_is_in_the_copy_once_it_was_looked_at(host: HostConfig, tmp_path: Path) -> None:
    main_of(tmp_path).write_bytes(b"# site\n" + main_of(tmp_path).read_bytes())
    assert asyncio.run(host.apply("gvisor", "uid", GVISOR)).verdict is Verdict.UNCHANGED
    main_of(tmp_path).unlink()
    repair(host)
    assert main_of(tmp_path).read_bytes().startswith(b"# site\n")


@pytest.mark.parametrize("copy", [b"{", b'{"path":"/etc/other.toml","data":"","mode":420}'])
def test_a_copy_that_cannot_be_read_or_is_of_another_file_is_none(copy: bytes, tmp_path: Path) -> None:
    write(tmp_path, one(PLAIN))
    host = HostConfig(tmp_path, "", "2.2.9")
    asyncio.run(host.apply("gvisor", "uid", GVISOR))
    (tmp_path / COPY).write_bytes(copy)
    main_of(tmp_path).unlink()
    assert repair(host).verdict is Verdict.UNCHANGED

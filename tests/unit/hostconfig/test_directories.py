"""Directories that we had to make go with the last file of ours, and no others."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from hostconfig_shapes import PLAIN, TWO, one
from hostconfig_trees import FOLDER, GVISOR, KATA, folders, read, write

from reconciler.hostconfig import HostConfig, Verdict

STATE = "var/lib/runtime-reconciler"


@pytest.fixture
def host(tmp_path: Path) -> HostConfig:
    """A containerd 2.2 without a directory of drop-ins."""
    write(tmp_path, one(PLAIN))
    return HostConfig(tmp_path, "", "2.2.9")


def change(host: HostConfig, *, add: str = "", remove: str = "") -> None:
    work = host.apply(add, "uid", GVISOR if add == "gvisor" else KATA) if add else host.remove(remove)
    assert asyncio.run(work).verdict is Verdict.CHANGED


def forget(root: Path) -> None:
    """The state directory is lost."""
    for path in (root / STATE).glob("*.json"):
        path.unlink()


def test_it_goes_with_the_last_drop_in_of_ours(host: HostConfig, tmp_path: Path) -> None:
    change(host, add="kata")
    change(host, add="gvisor")
    change(host, remove="kata")
    assert FOLDER in folders(tmp_path)
    change(host, remove="gvisor")
    assert (read(tmp_path), folders(tmp_path)) == (one(PLAIN), {"/etc", "/etc/containerd"})


@pytest.mark.parametrize("release", TWO)
def test_where_there_was_nothing_nothing_stays(release: str, tmp_path: Path) -> None:
    host = HostConfig(tmp_path, "", release)
    change(host, add="gvisor")
    change(host, remove="gvisor")
    assert (read(tmp_path), folders(tmp_path)) == ({}, set())


def test_one_that_was_there_empty_stays(host: HostConfig, tmp_path: Path) -> None:
    (tmp_path / FOLDER.lstrip("/")).mkdir()
    change(host, add="kata")
    change(host, remove="kata")
    assert folders(tmp_path) == {"/etc", "/etc/containerd", FOLDER}


def test_one_that_others_use_by_now_stays(host: HostConfig, tmp_path: Path) -> None:
    change(host, add="kata")
    write(tmp_path, {f"{FOLDER}/site.bak": b""})
    change(host, remove="kata")
    assert folders(tmp_path) == {"/etc", "/etc/containerd", FOLDER}


def test_by_its_mark_where_the_journal_is_lost(host: HostConfig, tmp_path: Path) -> None:
    change(host, add="kata")
    forget(tmp_path)
    change(host, remove="kata")
    assert (read(tmp_path), folders(tmp_path)) == (one(PLAIN), {"/etc", "/etc/containerd"})


def test_by_the_journal_where_there_are_no_attributes(
    host: HostConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "setxattr", refused)
    change(host, add="kata")
    change(host, remove="kata")
    assert folders(tmp_path) == {"/etc", "/etc/containerd"}


def test_without_journal_and_mark_it_may_be_anybodys(host: HostConfig, tmp_path: Path) -> None:
    change(host, add="kata")
    forget(tmp_path)
    os.removexattr(tmp_path / FOLDER.lstrip("/"), "user.runtime-reconciler.made")
    change(host, remove="kata")
    assert folders(tmp_path) == {"/etc", "/etc/containerd", FOLDER}

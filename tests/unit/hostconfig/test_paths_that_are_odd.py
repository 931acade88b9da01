"""A path that is not what it should be is a finding or a refusal, never a crash."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hostconfig_shapes import ALL, PLAIN_3, one
from hostconfig_trees import FOLDER, GVISOR, MAIN, read, write

from reconciler.hostconfig import Code, HostConfig, Verdict


@pytest.mark.parametrize("release", ALL)
def test_a_main_file_that_is_a_directory(release: str, tmp_path: Path) -> None:
    (tmp_path / MAIN.lstrip("/")).mkdir(parents=True)
    host = HostConfig(tmp_path, "", release)
    assert [finding.code for finding in host.check().findings] == [Code.DIRECTORY_IN_DROP_INS]
    assert asyncio.run(host.apply("site", "uid", GVISOR)).verdict is Verdict.REFUSED


@pytest.mark.parametrize("release", ALL)
def test_a_link_that_leads_to_itself(release: str, tmp_path: Path) -> None:
    main = tmp_path / MAIN.lstrip("/")
    main.parent.mkdir(parents=True)
    main.symlink_to("config.toml")
    host = HostConfig(tmp_path, "", release)
    assert [finding.code for finding in host.check().findings] == [Code.DANGLING_IMPORT]
    assert asyncio.run(host.apply("site", "uid", GVISOR)).verdict is Verdict.REFUSED


@pytest.mark.parametrize("release", ALL)
def test_a_drop_in_that_links_to_itself(release: str, tmp_path: Path) -> None:
    write(tmp_path, one('imports = ["/etc/containerd/conf.d/*.toml"]\n'))
    (tmp_path / FOLDER.lstrip("/")).mkdir()
    (tmp_path / FOLDER.lstrip("/") / "a.toml").symlink_to("a.toml")
    host = HostConfig(tmp_path, "", release)
    assert [finding.code for finding in host.check().findings] == [Code.DANGLING_IMPORT]
    assert asyncio.run(host.apply("site", "uid", GVISOR)).reason is Code.DANGLING_IMPORT


def test_a_file_where_our_directory_would_be(tmp_path: Path) -> None:
    files = {**one(PLAIN_3), FOLDER: b"not a directory"}
    write(tmp_path, files)
    outcome = asyncio.run(HostConfig(tmp_path, "", "2.2.9").apply("site", "uid", GVISOR))
    assert (outcome.verdict, outcome.reason) == (Verdict.REFUSED, Code.NOT_WRITABLE)
    assert read(tmp_path) == files


def test_a_directory_that_is_empty_after_a_reboot_is_not_used(tmp_path: Path) -> None:
    files = one('imports = ["/run/containerd/*.toml"]\n' + PLAIN_3)
    write(tmp_path, files)
    host = HostConfig(tmp_path, "", "2.2.9")
    assert asyncio.run(host.apply("site", "uid", GVISOR)).verdict is Verdict.CHANGED
    assert f"{FOLDER}/runtime-reconciler-site.toml" in read(tmp_path)
    asyncio.run(host.remove("site"))
    assert read(tmp_path) == files

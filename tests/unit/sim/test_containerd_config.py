"""The simulated containerd reads its files as a 1.6 does (facts of real daemons)."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.sim import config

CRI = 'plugins."io.containerd.grpc.v1.cri"'
RUNC = f'[{CRI}.containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
KATA = f'[{CRI}.containerd.runtimes.kata]\nruntime_type = "io.containerd.kata.v2"\n'


def write(root: Path, path: str, text: str) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def load(root: Path, main: str, **others: str) -> config.Loaded:
    write(root, "etc/containerd/config.toml", main)
    for name, text in others.items():
        write(root, f"etc/containerd/conf.d/{name}.toml", text)
    return config.load(root)


def test_no_file_at_all_serves_the_built_in_runc(tmp_path: Path) -> None:
    assert config.load(tmp_path) == config.Loaded(handlers=("runc",))


def test_handlers_are_those_of_the_table(tmp_path: Path) -> None:
    assert load(tmp_path, "version = 2\n" + RUNC + KATA).handlers == ("kata", "runc")


def test_a_table_without_runc_hides_the_built_in_one_and_cri_is_gone(tmp_path: Path) -> None:
    loaded = load(tmp_path, "version = 2\n" + KATA)
    assert loaded.error == ""
    assert "default_runtime_name" in loaded.cri_error


def test_a_drop_in_replaces_the_whole_section(tmp_path: Path) -> None:
    main = 'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n' + RUNC
    assert load(tmp_path, main, kata="version = 2\n" + KATA).cri_error != ""


@pytest.mark.parametrize("imports", ["[ , ]", '[, "x"]', '[""]', '["/etc/containerd/gone.toml"]'])
def test_what_uninstallers_leave_behind_does_not_start(tmp_path: Path, imports: str) -> None:
    assert load(tmp_path, f"version = 2\nimports = {imports}\n").error != ""


def test_a_glob_that_matches_nothing_starts(tmp_path: Path) -> None:
    assert load(tmp_path, 'version = 2\nimports = ["/etc/containerd/none/*.toml"]\n').error == ""


def test_a_disabled_plugin_is_cri_missing_and_not_a_failed_start(tmp_path: Path) -> None:
    loaded = load(tmp_path, 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
    assert (loaded.error, loaded.cri_error) == ("", "unknown service runtime.v1.RuntimeService")

"""Faults of disks and edits of config.toml do what they say, and are over when they end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reconciler.api.names import stage_label
from reconciler.hostconfig.lock import host_lock
from reconciler.hostconfig.model import Refused
from reconciler.kube.resources import NODERUNTIMES
from reconciler.sim import kinds
from reconciler.sim.agents import real_agent
from reconciler.sim.judge import LOCK
from reconciler.sim.loops import HANDLER, RUNTIME, manifest
from reconciler.sim.node import CONFIG
from tests.unit.sim.bench import Bench, drive

MAIN = "etc/containerd/config.toml"


def config(bench: Bench) -> str:
    return (bench.node.root / MAIN).read_text()


def texts(bench: Bench) -> list[str]:
    return [thing.what for thing in bench.world.foreign]


async def installed(bench: Bench) -> None:
    await bench.cluster.admin.create(NODERUNTIMES, manifest())
    await bench.until(lambda: HANDLER in bench.node.daemon.loaded.handlers)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_runtime_of_an_admin_is_there_for_a_while(tmp_path: Path, seed: int) -> None:
    async def main(bench: Bench) -> None:
        fault = bench.begin("own-runtime", seed)
        await bench.until(lambda: texts(bench) != [])
        assert texts(bench)[0] in config(bench)
        assert "containerd.runtimes.site-" in config(bench)
        await fault
        assert texts(bench) == []
        assert config(bench) == CONFIG
        await bench.until(lambda: bench.node.daemon.loaded.handlers == ("runc",), 5)

    drive(tmp_path, main)


def test_a_runtime_of_an_admin_is_taken_away_from_among_ours(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        fault = bench.begin("own-runtime", 3)
        await installed(bench)
        await fault
        assert "site-" not in config(bench)
        assert HANDLER in config(bench)

    drive(tmp_path, main, agent=real_agent, controllers=1)


def test_an_import_of_an_admin_is_there_for_a_while(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        fault = bench.begin("own-import")
        await bench.until(lambda: texts(bench) != [])
        assert config(bench) == 'imports = ["/etc/containerd/site.d/*.toml"]\n' + CONFIG
        await bench.cause("own-import", 2)  # a second one would be a second key
        await fault
        assert texts(bench) == []
        assert config(bench) == CONFIG

    drive(tmp_path, main)


def test_a_comment_stays(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        await bench.cause("comment")
        assert texts(bench) == [config(bench).replace(CONFIG, "")]
        assert texts(bench)[0].startswith("# note ")

    drive(tmp_path, main)


def test_a_reformatted_config_says_the_same_and_so_does_what_stands_in_it(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        fault = bench.begin("own-runtime", 4)
        await bench.until(lambda: texts(bench) != [])
        await bench.cause("reformatted", 2)
        assert "\n " not in config(bench)
        assert texts(bench)[0] in config(bench)
        await fault
        assert texts(bench) == []
        assert "site-" not in config(bench)
        assert bench.node.daemon.loaded.error == ""

    drive(tmp_path, main)


def test_a_rewrite_by_a_vendor_takes_everybodys_lines(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        await installed(bench)
        await bench.cause("comment")
        fault = bench.begin("vendor-rewrite", 5)
        await bench.until(lambda: config(bench) == CONFIG)
        assert texts(bench) == []
        await fault
        await bench.until(lambda: HANDLER in config(bench))  # and we put ours back

    drive(tmp_path, main, agent=real_agent, controllers=1)


def test_a_broken_config_is_put_right(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        down = 0
        for seed in range(6):
            fault = bench.begin("config-invalid", seed)
            await bench.until(lambda: config(bench) != CONFIG)
            await asyncio.sleep(2)
            down += not bench.node.daemon.serving
            await fault
            assert config(bench) == CONFIG
            await bench.node.daemon.served()
        assert down == 1

    drive(tmp_path, main)


def test_an_edit_may_come_in_the_middle_of_a_change_of_ours(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        faults = [bench.begin("comment", seed) for seed in range(8)]
        await installed(bench)
        await asyncio.wait(faults)
        assert [line for line in bench.said if "before the agent's step" in line] != []
        assert not [line for line in bench.said if "rename" in line or "unlink" in line]
        assert all(text in config(bench) for text in texts(bench))
        assert len(texts(bench)) == 8

    drive(tmp_path, main, agent=real_agent, controllers=1)


@pytest.mark.parametrize(
    ("name", "step", "why"),
    [
        ("disk-full", "keep", "No space left on device"),
        ("disk-read-only", "journal gone", "Read-only file system"),
        ("fsync", "sync /etc", "Input/output error"),
    ],
)
def test_steps_fail_for_a_while(tmp_path: Path, name: str, step: str, why: str) -> None:
    async def main(bench: Bench) -> None:
        fault = bench.begin(name, 3)
        await asyncio.sleep(1)
        failed = []
        for _ in range(8):
            for hook in bench.node.on_step:
                try:
                    hook(step)
                except OSError as error:
                    failed.append(error.strerror)
        assert failed != []
        assert set(failed) == {why}
        for hook in bench.node.on_step:
            hook("restart")
            hook("forget")
        await fault
        assert bench.node.on_step == []

    drive(tmp_path, main)


def test_a_full_disk_lets_go_what_needs_no_space(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        fault = bench.begin("disk-full", 3)
        await asyncio.sleep(1)
        for _ in range(8):
            for hook in bench.node.on_step:
                for step in ("journal gone", "rename /etc/containerd/config.toml", "unlink /x", "sync /x"):
                    hook(step)
        await fault

    drive(tmp_path, main)


def test_the_lock_is_held_for_a_while(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        fault = bench.begin("lock-held")
        await asyncio.sleep(1)
        with pytest.raises(Refused, match="another change holds"):
            async with host_lock(bench.node.root / LOCK, wait=1):
                pass
        await fault
        async with host_lock(bench.node.root / LOCK, wait=1):
            assert bench.said == ["lock-held: that of node-1, for 53 s"]

    drive(tmp_path, main)


@pytest.mark.parametrize("name", ["disk-full", "disk-read-only", "fsync", "lock-held"])
def test_an_install_ends_and_leaves_nothing_once_the_disk_is_well(tmp_path: Path, name: str) -> None:
    async def main(bench: Bench) -> None:
        for seed in range(4):
            bench.begin(name, seed)
        await bench.cluster.admin.create(NODERUNTIMES, manifest())
        await bench.until(
            lambda: bench.of_node()["metadata"]["labels"].get(stage_label(RUNTIME)) in ("ready", "failed")
        )
        assert (HANDLER in config(bench)) == (bench.of_node()["metadata"]["labels"][stage_label(RUNTIME)] == "ready")
        await bench.cluster.admin.delete(NODERUNTIMES, RUNTIME)
        await bench.until(lambda: bench.there(kinds.NODERUNTIMES, RUNTIME) is None, 300)
        assert config(bench) == CONFIG

    drive(tmp_path, main, agent=real_agent, controllers=1)

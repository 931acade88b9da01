"""What was proven is remembered, and takes the place of what would not start; rejected bytes are kept."""

from __future__ import annotations

import os

from hostconfig_bench import KATA, MAIN, Bench

from reconciler.hostconfig import Code, HostConfig, Outcome, Verdict

BROKEN = MAIN + b'imports = [ , "/etc/containerd/gone.toml"]\n'
GOOD = MAIN.replace(b"version = 2\n", b"version = 2\noom_score = -5\n")


def written_before_the_start(bench: Bench) -> HostConfig:
    """The running containerd began a second after the files were written (the machine's clock is its own)."""
    bench.machine.boot()
    began = bench.machine.wall(bench.machine.started)
    os.utime(bench.config, (began - 1, began - 1))
    bench.machine.starts = 0
    return bench.engine()


def rejected(bench: Bench) -> list[bytes]:
    folder = bench.root / "var/lib/runtime-reconciler/rejected"
    return [path.read_bytes() for path in sorted(folder.iterdir())] if folder.exists() else []


async def test_what_would_not_start_is_put_back_without_a_restart_while_the_old_one_serves(bench: Bench) -> None:
    engine = written_before_the_start(bench)
    assert await engine.rescue.remember()
    bench.config.write_bytes(BROKEN)
    outcome = await engine.rescue.put_back(failed=False, during="pod-1")
    assert (outcome.verdict, [c.path for c in outcome.files]) == (Verdict.CHANGED, ["/etc/containerd/config.toml"])
    assert bench.config.read_bytes() == MAIN
    assert rejected(bench) == [BROKEN]
    assert bench.machine.starts == 0


async def test_a_daemon_that_failed_with_it_is_started_once(bench: Bench) -> None:
    engine = written_before_the_start(bench)
    assert await engine.rescue.remember()
    bench.config.write_bytes(BROKEN)
    bench.machine.active, bench.machine.result = "failed", "exit-code"
    outcome = await engine.rescue.put_back(failed=True, during="pod-1")
    assert (outcome.verdict, outcome.restarted) == (Verdict.CHANGED, True)
    assert (bench.machine.starts, bench.machine.active) == (1, "active")


async def test_a_daemon_that_a_person_stopped_is_not_started(bench: Bench) -> None:
    engine = written_before_the_start(bench)
    assert await engine.rescue.remember()
    bench.config.write_bytes(BROKEN)
    bench.machine.active, bench.machine.result = "inactive", "success"
    assert (await engine.rescue.put_back(failed=False, during="pod-1")).verdict is Verdict.CHANGED
    assert (bench.machine.starts, bench.machine.active) == (0, "inactive")


async def test_an_edit_that_loads_is_respected(bench: Bench) -> None:
    engine = written_before_the_start(bench)
    assert await engine.rescue.remember()
    bench.config.write_bytes(GOOD)
    assert (await engine.rescue.put_back(failed=False, during="pod-1")).verdict is Verdict.UNCHANGED
    assert bench.config.read_bytes() == GOOD


async def test_an_edit_that_loads_and_was_not_started_yet_is_not_proven(bench: Bench) -> None:
    engine = written_before_the_start(bench)
    later = bench.machine.wall(bench.machine.started) + 5
    os.utime(bench.config, (later, later))
    assert not await engine.rescue.remember()


async def test_a_broken_drop_in_is_set_aside(bench: Bench) -> None:
    folder = bench.root / "etc/containerd/extra.d"
    folder.mkdir()
    bench.config.write_bytes(b'imports = ["/etc/containerd/extra.d/*.toml"]\n' + MAIN)
    engine = written_before_the_start(bench)
    assert await engine.rescue.remember()
    (folder / "10-vendor.toml").write_bytes(b"[plugins\n")
    outcome = await engine.rescue.put_back(failed=False, during="pod-1")
    assert [(c.path, c.action) for c in outcome.files] == [("/etc/containerd/extra.d/10-vendor.toml", "deleted")]
    assert rejected(bench) == [b"[plugins\n"]


async def test_a_config_that_was_taken_away_and_whose_absence_does_not_start_is_no_case(bench: Bench) -> None:
    """No config.toml is a good configuration: the defaults."""
    engine = written_before_the_start(bench)
    assert await engine.rescue.remember()
    bench.config.unlink()
    assert (await engine.rescue.put_back(failed=False, during="pod-1")).verdict is Verdict.UNCHANGED


async def test_a_file_that_is_open_for_writing_is_waited_for(bench: Bench) -> None:
    engine = written_before_the_start(bench)
    assert await engine.rescue.remember()
    with bench.config.open("wb") as file:
        file.write(BROKEN)
        file.flush()
        outcome = await engine.rescue.put_back(failed=False, during="pod-1")
        assert (outcome.verdict, outcome.reason) == (Verdict.REFUSED, Code.BUSY)
    assert (await engine.rescue.put_back(failed=False, during="pod-1")).verdict is Verdict.CHANGED


async def test_the_third_time_around_one_pod_it_is_contested(bench: Bench) -> None:
    engine = written_before_the_start(bench)
    for _ in range(2):
        assert await engine.rescue.remember()
        bench.config.write_bytes(BROKEN)
        assert (await engine.rescue.put_back(failed=False, during="pod-1")).verdict is Verdict.CHANGED
        began = bench.machine.wall(bench.machine.started)
        os.utime(bench.config, (began - 1, began - 1))
    bench.config.write_bytes(BROKEN)
    outcome = await engine.rescue.put_back(failed=False, during="pod-1")
    assert (outcome.verdict, outcome.reason) == (Verdict.REFUSED, Code.CONTESTED)
    assert bench.config.read_bytes() == BROKEN
    bench.machine.time += 3601
    assert (await engine.rescue.put_back(failed=False, during="pod-1")).verdict is Verdict.CHANGED


async def break_and_put_back(bench: Bench, engine: HostConfig, during: str) -> Outcome:
    assert await engine.rescue.remember()
    bench.config.write_bytes(BROKEN)
    outcome = await engine.rescue.put_back(failed=False, during=during)
    if outcome.verdict is Verdict.CHANGED:
        began = bench.machine.wall(bench.machine.started)
        os.utime(bench.config, (began - 1, began - 1))
    return outcome


async def test_a_payload_that_breaks_it_in_each_of_fifty_loops_is_put_back_each_time(bench: Bench) -> None:
    engine = written_before_the_start(bench)
    for number in range(50):
        assert (await break_and_put_back(bench, engine, f"pod-{number}")).verdict is Verdict.CHANGED
        assert bench.config.read_bytes() == MAIN


async def test_when_nobody_knows_the_pod_all_put_backs_of_the_hour_count(bench: Bench) -> None:
    engine = written_before_the_start(bench)
    for during in ("pod-1", "pod-2"):
        await break_and_put_back(bench, engine, during)
    assert (await break_and_put_back(bench, engine, "")).reason is Code.CONTESTED
    assert not await engine.rescue.loads()
    bench.config.write_bytes(GOOD)
    assert await engine.rescue.loads()


async def test_our_own_change_makes_what_was_proven_void(bench: Bench) -> None:
    engine = written_before_the_start(bench)
    assert await engine.rescue.remember()
    await engine.apply("kata", "uid-1", KATA)
    bench.config.write_bytes(BROKEN)
    outcome = await engine.rescue.put_back(failed=False, during="pod-1")
    assert (outcome.verdict, outcome.reason) == (Verdict.REFUSED, Code.NOT_OURS)


async def test_a_start_that_failed_with_the_proven_files_is_not_theirs(bench: Bench) -> None:
    engine = written_before_the_start(bench)
    assert await engine.rescue.remember()
    outcome = await engine.rescue.put_back(failed=True, during="pod-1")
    assert (outcome.verdict, outcome.reason) == (Verdict.REFUSED, Code.NOT_OURS)


async def test_the_window_leaves_nothing(bench: Bench) -> None:
    engine = written_before_the_start(bench)
    assert await engine.rescue.remember()
    await engine.rescue.forget()
    assert bench.leftovers() == []
    assert not (bench.root / "run/runtime-reconciler").exists()


async def test_kept_bytes_are_for_root_alone(bench: Bench) -> None:
    """A configuration may hold the passwords of registries."""
    engine = written_before_the_start(bench)
    assert await engine.rescue.remember()
    assert {path.stat().st_mode & 0o777 for path in (bench.root / "run/runtime-reconciler/proven").iterdir()} == {0o600}

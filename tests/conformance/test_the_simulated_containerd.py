"""The simulated containerd, a 1.6.20, says of CRI what the table says that real ones are held to as well."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from reconciler.cri.api import CriError
from reconciler.sim import clock
from reconciler.sim.containerd import VERSION, Daemon
from reconciler.sim.runtime import Runtime, SimCri
from tests.conformance.containerd_answers import STATES, Answer


class Host:
    """A node on which no payload runs."""

    def __init__(self, root: Path) -> None:
        self.root = root

    async def restart_containerd(self, initiator: str) -> None: ...
    async def restart_kubelet(self) -> None: ...
    async def label(self, key: str, value: str) -> None: ...


async def said(cri: SimCri) -> tuple[Answer | None, tuple[str, ...]]:
    """The refusal, or the handlers that are served."""
    try:
        return None, (await cri.status(timeout=4.0)).handlers
    except CriError as error:
        return Answer(error.code, error.connection, error.message), ()


@pytest.mark.parametrize("state", [name for name in STATES if VERSION in STATES[name].releases])
def test_cri_says_what_the_table_says(state: str, tmp_path: Path) -> None:
    expected = STATES[state]
    (tmp_path / "etc/containerd").mkdir(parents=True)
    (tmp_path / "etc/containerd/config.toml").write_text(expected.main)

    async def main() -> tuple[Answer | None, tuple[str, ...]]:
        async with asyncio.TaskGroup() as tasks:
            daemon = Daemon(tmp_path, rng=random.Random(1))
            daemon.tasks = tasks
            runtime = Runtime(daemon, host=Host(tmp_path), clock=clock.VirtualClock(), rng=random.Random(2))
            assert (await daemon.start("boot") == "done") == expected.starts
            await asyncio.sleep(1)
            if expected.end == "TERM":
                await daemon.stop()
            elif expected.end == "KILL":
                daemon.crash()
            try:
                return await said(SimCri(runtime))
            finally:
                daemon.power_off()

    answer, handlers = clock.run(main())
    if answer is None or expected.answer is None:
        assert answer == expected.answer
        assert handlers == expected.handlers
        return
    assert (answer.code, answer.connection) == (expected.answer.code, expected.answer.connection)
    assert expected.answer.words in answer.words

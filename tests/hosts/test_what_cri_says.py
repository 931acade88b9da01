"""Real containerds say of CRI what the table says that the simulated one is held to as well."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from hostconfig_trees import MAIN, write

from reconciler.cri.api import CriError
from reconciler.cri.client import GrpcCri
from reconciler.hostconfig import BinaryDump
from tests.conformance.containerd_answers import STATES, Answer

DIRECTORY = "/tmp/d"
STARTED = 30.0
"""Seconds until it has a socket or has ended."""
INITIALISED = 10.0
"""Seconds in which CRI says something else than that it is not initialised."""


async def said(socket: Path) -> tuple[Answer | None, tuple[str, ...]]:
    """The refusal, or the handlers that are served."""
    cri, until = GrpcCri(str(socket)), time.monotonic() + INITIALISED
    try:
        while True:
            try:
                return None, (await cri.status(timeout=4.0)).handlers
            except CriError as error:
                if "not initialized" not in error.message or time.monotonic() > until:
                    return Answer(error.code, error.connection, error.message), ()
    finally:
        cri.close()


@pytest.mark.parametrize(("state", "release"), [(name, one) for name in STATES for one in STATES[name].releases])
def test_cri_says_what_the_table_says(state: str, release: str, containerd: Path, tmp_path: Path) -> None:
    expected = STATES[state]
    write(tmp_path, {MAIN: expected.main.encode()})
    folder = tmp_path / DIRECTORY.lstrip("/")
    folder.mkdir(parents=True)
    flags = ["--root", f"{DIRECTORY}/root", "--state", f"{DIRECTORY}/state", "--address", f"{DIRECTORY}/s"]
    with tempfile.TemporaryDirectory(prefix="d") as work:
        argv = [*BinaryDump(tmp_path, containerd).argv(Path(work), {}), *flags]
        daemon = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        directory = Path(f"/proc/{daemon.pid}/root{DIRECTORY}")
        try:
            until = time.monotonic() + STARTED
            while daemon.poll() is None and not (directory / "s").exists() and time.monotonic() < until:
                time.sleep(0.05)
            assert (daemon.poll() is None) == expected.starts
            if not expected.starts:
                return
            answer, handlers = asyncio.run(said(directory / "s"))
            if not expected.end:
                check(answer, expected.answer)
                assert set(expected.handlers) <= set(handlers) if answer is None else handlers == ()
                return
            assert answer is None
            handle = open_directory(directory)
            daemon.send_signal(getattr(signal, f"SIG{expected.end}"))
            daemon.wait(20)
            check(asyncio.run(said(Path(f"/proc/self/fd/{handle}/s")))[0], expected.answer)
        finally:
            daemon.kill()
            daemon.wait(20)


def open_directory(path: Path) -> int:
    """A descriptor that outlives the daemon's mount namespace; it goes with this process."""
    return os.open(path, os.O_PATH | os.O_DIRECTORY)


def check(answer: Answer | None, expected: Answer | None) -> None:
    if answer is None or expected is None:
        assert answer == expected
        return
    assert (answer.code, answer.connection) == (expected.code, expected.connection)
    assert expected.words in answer.words

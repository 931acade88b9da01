"""`reconciler simulate --virtual-time`, below its command line."""

from __future__ import annotations

import io

from rich.console import Console

from reconciler.sim import session
from reconciler.sim.agents import real_agent
from reconciler.sim.session import Session


def test_a_rollout_that_takes_longer_than_most_is_waited_for() -> None:
    asked = Session(
        nodes=3,
        loops=1,
        faults=(),
        seed=1,
        pace=5.0,
        bake=200,
        max_unavailable=1,
        controllers=1,
        virtual_time=True,
        port=0,
    )
    ended = session.run(asked, real_agent, Console(file=io.StringIO()))
    assert ended.clean
    (took,) = ended.loops.summary.installs
    assert 3 * 200 < took < 3 * 200 + 60

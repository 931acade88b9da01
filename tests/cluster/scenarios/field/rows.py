"""Which rows there are; each is played from a clean cluster, and one that fails does not hide the next."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.cluster.api import ApiError
from tests.cluster.command import CommandFailed
from tests.cluster.lab import Lab, Verdict
from tests.cluster.scenarios.field import configs, deletions, marks, payloads

Row = Callable[[Lab, Verdict], None]

ROWS: dict[str, Row] = {
    "a2: deleted when one of two nodes is done": deletions.one_of_two_done,
    "a3: deleted during pre-install, installed again": deletions.in_pre_install,
    "b2: the uninstall payload restarts containerd": payloads.uninstall_restarts,
    "b3: every phase restarts containerd, one kubelet too": payloads.every_phase_restarts,
    "c1: installed again as soon as the delete is through": deletions.again_at_once,
    "d1: a node NotReady during uninstall": marks.not_ready,
    "e1: the present label removed by hand": marks.present_label,
    "e2: the selector label removed by hand": marks.selector_label,
    "e3: stage label and state removed by hand": marks.progress,
    "f1: a node joins late": marks.joins_late,
    "g1: the payload's image edited": payloads.image_edited,
    "h3: leader killed as the object goes": deletions.leader_killed_at_the_end,
    "h4: leader killed at the last signal": deletions.leader_killed_at_the_last_signal,
    "k1: leftovers of another installer": configs.leftovers,
    "C: a configuration with imports of its own": configs.imports,
    "D: a configuration without a table of runtimes": configs.no_runtimes,
    "drift: the configuration written anew by somebody": configs.written_anew,
    "guard: a payload leaves a configuration that would not start": configs.payload_breaks_it,
}
"""Of the others, a1 is scenario 5, b1 scenario 2, h1 and h2 scenario 6."""

_EXPECTED = (TimeoutError, CommandFailed, ApiError, OSError, LookupError)


def run(lab: Lab, verdict: Verdict, loops: int) -> None:
    for name, row in ROWS.items():
        began = time.time()
        try:
            row(lab, verdict)
        except _EXPECTED as error:
            verdict.check(False, f"{name}: {type(error).__name__}: {error}")
        left = lab.reset()
        if not verdict.check(not left, f"{name}: left behind: {left}"):
            lab.force_clean()
        lab.check_pods_gone(began, verdict)
        verdict.facts[f"{name}: s"] = [round(time.time() - began, 1)]

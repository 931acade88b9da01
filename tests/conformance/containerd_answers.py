"""What containerd's CRI says in each state of the daemon: one table, for the simulated one and for real ones.

`tests/conformance/test_the_simulated_containerd.py` runs it in `make test`, `tests/hosts` with each real release.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reconciler.cri.api import Code

_CRI = 'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd'
RUNC = f'{_CRI}.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'


@dataclass(frozen=True)
class Answer:
    """How a call of CRI fails: its code, whether the connection is what failed, and words of its message."""

    code: Code
    connection: bool
    words: str


@dataclass(frozen=True)
class State:
    """A daemon with this configuration, `end`ed by that signal; `answer` None: CRI serves `handlers`."""

    main: str
    starts: bool = True
    answer: Answer | None = None
    handlers: tuple[str, ...] = ("runc",)
    end: str = ""
    releases: tuple[str, ...] = field(default=("1.6.20", "1.7.34", "2.0.11", "2.2.9", "2.3.4"))


NO_SOCKET = Answer(Code.UNAVAILABLE, True, "No such file or directory")
REFUSED = Answer(Code.UNAVAILABLE, True, "Connection refused")


def without_cri(words: str) -> Answer:
    return Answer(Code.UNIMPLEMENTED, False, words)


STATES = {
    "a plain configuration": State(RUNC),
    "no runtimes named": State("version = 2\n"),
    "ended by systemd": State(RUNC, end="TERM", answer=NO_SOCKET),
    "killed": State(RUNC, end="KILL", answer=REFUSED),
    "a comma without an entry": State("version = 2\nimports = [ , ]\n", starts=False, answer=NO_SOCKET),
    "an import that is gone": State('version = 2\nimports = ["/etc/x.toml"]\n', starts=False, answer=NO_SOCKET),
    "an empty import": State('version = 2\nimports = [""]\n', starts=False, answer=NO_SOCKET),
    "CRI disabled": State(
        'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n',
        answer=without_cri("unknown service runtime.v1.RuntimeService"),
        releases=("1.6.20", "1.7.34"),
    ),
    "a default that no runtime has": State(
        f'{_CRI}]\ndefault_runtime_name = "none"\n',
        answer=without_cri(
            "no corresponding runtime configured in `containerd.runtimes` for `containerd` "
            '`default_runtime_name = "none"'
        ),
    ),
    "only a runtime that is no default": State(
        f'{_CRI}.runtimes.kata]\nruntime_type = "io.containerd.kata.v2"\n',
        answer=without_cri(
            "no corresponding runtime configured in `containerd.runtimes` for `containerd` "
            '`default_runtime_name = "runc"'
        ),
        releases=("1.6.20", "1.7.34"),
    ),
    "a runtime without a type": State(
        f"{RUNC}{_CRI.removeprefix('version = 2')}.runtimes.kata]\n", handlers=("kata", "runc")
    ),
    "a snapshotter that is not there": State(
        f'{_CRI}]\nsnapshotter = "none"\n',
        answer=without_cri('failed to find snapshotter "none"'),
        releases=("1.6.20", "1.7.34"),
    ),
}

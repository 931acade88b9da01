"""What the host's own binary dumps is held against the prediction."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from hostconfig_trees import GVISOR, MAIN, Tree, read, write

from reconciler.hostconfig import Code, HostConfig, Verdict
from reconciler.hostconfig.dialects import Table
from reconciler.hostconfig.dump import Dump, DumpRefused, DumpUnavailable, Overlay

CRI = "io.containerd.cri.v1.runtime"
BEFORE: Table = {
    "version": 3,
    "plugins": {CRI: {"containerd": {"runtimes": {"runc": {"runtime_type": "io.containerd.runc.v2"}}}}},
}
TREE = {MAIN: b"version = 3\n"}


def after(**settings: object) -> Table:
    """The dump once our handler is there, with `settings` of CRI that changed besides."""
    document = copy.deepcopy(BEFORE)
    section = document["plugins"][CRI]
    section["containerd"]["runtimes"]["runsc"] = {"runtime_type": "io.containerd.runsc.v1"}
    section.update(settings)
    return document


def answers(before: Table | Exception, then: Table | Exception) -> Dump:
    """A binary that says `before` of the files and `then` of any change to them."""

    def dump(config_path: str, overlay: Overlay) -> Table:
        answer = then if overlay else before
        if isinstance(answer, Exception):
            raise answer
        return answer

    return dump


async def apply(root: Path, tree: Tree, dump: Dump) -> tuple[Verdict, Code | None, str]:
    write(root, tree)
    outcome = await HostConfig(root, "", "2.2.9", dump=dump).apply("gvisor", "uid", GVISOR)
    if outcome.verdict is Verdict.REFUSED:
        assert read(root) == tree
    return outcome.verdict, outcome.reason, outcome.message


async def test_one_that_agrees_is_gone_on_with(tmp_path: Path) -> None:
    verdict, _, _ = await apply(tmp_path, TREE, answers(BEFORE, after(enable_cdi=False)))
    assert verdict is Verdict.CHANGED


@pytest.mark.parametrize(
    ("then", "code", "message"),
    [
        (DumpRefused("boom"), Code.UNSUPPORTED_SYNTAX, "containerd would refuse the result: boom"),
        (BEFORE, Code.SHADOWED_BY_IMPORT, "containerd would have the handlers ['runc'], not ['runc', 'runsc']"),
        (
            after(enable_selinux=True),
            Code.UNSUPPORTED_SYNTAX,
            "by containerd's own dump the edit would change settings of others",
        ),
    ],
)
async def test_one_that_sees_another_difference_stops_the_change(
    tmp_path: Path, then: Table | Exception, code: Code, message: str
) -> None:
    assert await apply(tmp_path, TREE, answers(BEFORE, then)) == (Verdict.REFUSED, code, message)


async def test_a_binary_that_refuses_the_files_as_they_are_stops_the_change(tmp_path: Path) -> None:
    refusal = DumpRefused("no type")
    assert await apply(tmp_path, TREE, answers(refusal, BEFORE)) == (
        Verdict.REFUSED,
        Code.INVALID_TOML,
        "containerd refuses it: no type",
    )


async def test_what_only_our_parser_refuses_is_not_touched(tmp_path: Path) -> None:
    verdict, code, message = await apply(tmp_path, {MAIN: b"# \x07\n"}, answers(BEFORE, BEFORE))
    assert (verdict, code) == (Verdict.REFUSED, Code.UNSUPPORTED_SYNTAX)
    assert message.startswith("containerd loads it, our parser does not, so it is not touched: ")
    outcome = await HostConfig(tmp_path, "", "2.2.9", dump=answers(BEFORE, BEFORE)).repair()
    assert (outcome.verdict, outcome.reason) == (Verdict.REFUSED, Code.UNSUPPORTED_SYNTAX)


async def test_without_an_answer_the_model_decides(tmp_path: Path) -> None:
    gone = DumpUnavailable("not root")
    verdict, _, _ = await apply(tmp_path, TREE, answers(gone, gone))
    assert verdict is Verdict.CHANGED

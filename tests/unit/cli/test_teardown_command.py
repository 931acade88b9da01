"""`reconciler teardown`: statuses and lines, as a Job's log shows them."""

from __future__ import annotations

from typing import Any

from reconciler.kube.resources import NODERUNTIMES

KATA = {"metadata": {"name": "kata"}, "spec": {}}


def test_with_no_runtime_it_ends_well(served: Any) -> None:
    ended = served.run("teardown")
    assert ended.exit_code == 0
    assert ended.stderr.splitlines()[0] == "no NodeRuntime is left"


def test_one_that_nobody_deleted_is_status_1_and_one_line(served: Any) -> None:
    served.ask(lambda admin: admin.create(NODERUNTIMES, KATA))
    ended = served.run("teardown")
    assert ended.exit_code == 1
    assert ended.stderr.startswith("reconciler: still wanted: NodeRuntime kata. ")
    assert ended.stderr.count("\n") == 1


def test_a_refusal_says_how_to_keep_the_product(served: Any) -> None:
    served.ask(lambda admin: admin.create(NODERUNTIMES, KATA))
    ended = served.run("teardown", "--keep", "helm rollback x 3")
    assert ended.stderr.endswith("kubectl delete noderuntime kata. To keep the product: helm rollback x 3\n")


def test_delete_deletes(served: Any) -> None:
    served.ask(lambda admin: admin.create(NODERUNTIMES, KATA))
    ended = served.run("teardown", "--delete")
    assert ended.exit_code == 0
    assert ended.stderr.splitlines()[:2] == ["NodeRuntime kata is deleted", "waiting for kata"]
    assert served.ask(lambda admin: admin.list(NODERUNTIMES))[0] == []

"""Install, upgrade and uninstall of a release on a real API server. No controller runs there, so no hook either."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.api import crd
from tests.chart import base
from tests.chart.apiserver import ApiServer
from tests.cluster.command import CommandFailed
from tests.cluster.release import CHART
from tests.cluster.release import helm as run_helm

KINDS = (
    "clusterroles",
    "clusterrolebindings",
    "roles",
    "rolebindings",
    "serviceaccounts",
    "deployments",
    "daemonsets",
    "poddisruptionbudgets",
    "resourcequotas",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "crds",
)
CRD = "customresourcedefinition.apiextensions.k8s.io/noderuntimes.runtime-reconciler.io"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """A server of its own: without a namespace controller a namespace that is deleted never goes."""
    with ApiServer(tmp_path_factory.mktemp("apiserver")) as server:
        yield server


def helm(api: ApiServer, verb: str, namespace: str, *argv: str, chart: Path = CHART) -> str:
    where = ["rr", "--namespace=kube-system", *argv]
    if verb == "uninstall":
        return run_helm("uninstall", *where, config=api.config)
    return run_helm(verb, "rr", str(chart), *where[1:], f"--set=namespace.name={namespace}", config=api.config)


def columns(api: ApiServer) -> list[str]:
    definition: dict[str, Any] = json.loads(api.kubectl("get", CRD, "-ojson"))
    return [column["name"] for column in definition["spec"]["versions"][0]["additionalPrinterColumns"]]


def older(folder: Path) -> Path:
    """A chart whose CRD lacks the last column of today's."""
    chart = shutil.copytree(CHART, folder / "chart")
    definition: dict[str, Any] = crd.definition()
    version = definition["spec"]["versions"][0]
    version["additionalPrinterColumns"] = version["additionalPrinterColumns"][:-1]
    (chart / "files/crd.yaml").write_text(crd.as_yaml(definition))
    return chart


def test_an_upgrade_upgrades_the_crd_and_an_uninstall_leaves_nothing(api: ApiServer, tmp_path: Path) -> None:
    before = api.names(*KINDS)
    helm(api, "install", "one", chart=older(tmp_path))
    assert columns(api) == [column["name"] for column in _columns()[:-1]]
    helm(api, "upgrade", "one")
    assert columns(api) == [column["name"] for column in _columns()]
    helm(api, "uninstall", "one", "--no-hooks")
    api.kubectl("wait", "--for=delete", CRD, "--timeout=30s")
    assert api.names(*KINDS) == before


def test_a_crd_that_is_kept_stays_and_is_taken_over_again(api: ApiServer) -> None:
    helm(api, "install", "two", "--set=crd.keep=true")
    helm(api, "uninstall", "two", "--no-hooks")
    assert CRD in api.names("crds")
    helm(api, "install", "three")
    helm(api, "uninstall", "three", "--no-hooks")
    api.kubectl("wait", "--for=delete", CRD, "--timeout=30s")


def test_what_kustomize_installed_is_taken_over(api: ApiServer) -> None:
    before = api.names(*KINDS)
    api.kubectl("apply", "-k", str(base.BASE))
    installed = api.names(*KINDS)
    helm(api, "upgrade", "runtime-reconciler", "--install", "--take-ownership", "--force-conflicts")
    assert api.names(*KINDS) == installed
    helm(api, "uninstall", "runtime-reconciler", "--no-hooks")
    api.kubectl("wait", "--for=delete", CRD, "--timeout=30s")
    assert api.names(*KINDS) == before


def test_after_an_uninstall_that_failed_its_own_words_bring_the_release_back(api: ApiServer) -> None:
    """Nothing runs the Job here, so the hook fails by its timeout."""
    helm(api, "install", "four")
    with pytest.raises(CommandFailed):
        helm(api, "uninstall", "four", "--timeout=1s")
    with pytest.raises(CommandFailed, match="has no deployed releases"):
        helm(api, "upgrade", "four")
    job = json.loads(api.kubectl("get", "job", "teardown", "-n", "four", "-ojson"))
    (said,) = [word for word in job["spec"]["template"]["spec"]["containers"][0]["args"] if word.startswith("--keep=")]
    assert said == "--keep=helm rollback rr 1 --namespace kube-system"
    _, verb, *words = said.removeprefix("--keep=").split()
    run_helm(verb, *words, config=api.config)
    helm(api, "upgrade", "four")
    helm(api, "uninstall", "four", "--no-hooks")
    api.kubectl("wait", "--for=delete", CRD, "--timeout=30s")


def _columns() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = crd.definition()["spec"]["versions"][0]["additionalPrinterColumns"]
    return found

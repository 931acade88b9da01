"""helm, and manifests, as the pages beside the chart's own say, against a real API server."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chart.apiserver import ApiServer
from tests.chart.test_readme import NO_JOBS
from tests.cluster.release import CHART, helm
from tests.pages import PAGES, ROOT, Place, commands, manifest

WITH_HELM = [
    page
    for page in PAGES
    if not page.is_relative_to(CHART) and any(command.place is Place.CHART for command in commands(page))
]
INSTALL = next(command.text for command in commands(ROOT / "README.md") if command.text.startswith("helm install"))
UNINSTALL = "helm uninstall runtime-reconciler --namespace kube-system"


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[ApiServer]:
    """Without a controller manager a namespace that goes stays half there: one server for each test."""
    with ApiServer(tmp_path) as server:
        yield server


def carry_out(text: str, api: ApiServer) -> None:
    _, verb, *words = shlex.split(text)
    words = [str(CHART) if word == "deploy/chart" else word for word in words]
    helm(verb, *words, *NO_JOBS.get(verb, []), config=api.config)


@pytest.mark.parametrize("page", WITH_HELM, ids=lambda page: str(page.relative_to(ROOT)))
def test_helm_does_what_a_page_says(fresh: ApiServer, page: Path) -> None:
    found = [one.text for one in commands(page) if one.place is Place.CHART]
    if not found[0].startswith("helm install"):
        carry_out(INSTALL, fresh)
    for text in found:
        carry_out(text, fresh)
    if not found[-1].startswith("helm uninstall"):
        carry_out(UNINSTALL, fresh)
    assert fresh.names("deployments", "daemonsets") == set()


def test_the_manifest_of_the_readme_is_one_and_kubectl_explains_its_fields(fresh: ApiServer) -> None:
    fresh.kubectl("apply", "-f", str(ROOT / "deploy/base/crd.yaml"))
    fresh.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    assert "created" in fresh.kubectl(
        "apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=manifest(ROOT / "README.md")
    )

    said = " ".join(fresh.kubectl("explain", "noderuntime.spec.rollout.bakeSeconds").split())
    assert "Seconds that a node must stay healthy, with its handlers served, before it counts as done." in said

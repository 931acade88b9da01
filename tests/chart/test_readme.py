"""The commands of the chart's README, in their order, against a real API server."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest
import yaml

from tests.chart.apiserver import ApiServer
from tests.cluster import paths
from tests.cluster.command import run
from tests.cluster.release import CHART, helm
from tests.pages import commands, manifest

PAGE = CHART / "README.md"
NO_JOBS = {"uninstall": ["--no-hooks"]}
"""No kubelet runs here, so no Job ends."""


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with ApiServer(tmp_path_factory.mktemp("apiserver")) as server:
        yield server


def test_every_command_works(api: ApiServer) -> None:
    done = []
    for command in commands(PAGE):
        program, verb, *words = shlex.split(command.text)
        if program == "helm":
            words = [str(CHART) if word == "deploy/chart" else word for word in words]
            helm(verb, *words, *NO_JOBS.get(verb, []), config=api.config)
        else:
            assert program == "kubectl"
            api.kubectl(verb, *words)
        done.append(f"{program} {verb}")
    assert done == ["helm install", "helm upgrade", "helm upgrade", "kubectl delete", "helm uninstall"]


def test_the_overlay_names_the_image_of_both(api: ApiServer) -> None:
    overlay = manifest(PAGE)
    folder = paths.PROJECT / "build" / "overlay"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kustomization.yaml").write_text(overlay.replace("../deploy/base", "../../deploy/base"))
    built = yaml.safe_load_all(run([paths.KUBECTL, "kustomize", folder]))
    workloads = [one for one in built if one["kind"] in ("Deployment", "DaemonSet")]
    images = [one["spec"]["template"]["spec"]["containers"][0]["image"] for one in workloads]
    assert images == ["registry.example.com/runtime-reconciler:0.1.0"] * 2


def test_every_value_that_it_names_is_there() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    named = re.findall(r"`((?:\w+\.)+\w+)(?:`|:)", PAGE.read_text())
    assert {"agent.distribution", "crd.keep", "uninstall.deleteNodeRuntimes"} <= set(named)
    for path in named:
        if path.endswith(".yaml"):
            continue
        found = values
        for key in path.split("."):
            assert key in found, path
            found = found[key]

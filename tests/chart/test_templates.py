"""What the chart renders: objects that a real API server accepts for each set of values, nothing for a wrong one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.api import crd, names
from reconciler.hostconfig.distribution import KINDS, SOCKETS
from tests.chart import base
from tests.chart.apiserver import ApiServer
from tests.cluster.command import CommandFailed
from tests.cluster.release import CHART, helm

VALUES = sorted((Path(__file__).parent / "values").glob("*.yaml"), key=lambda path: path.stem)
DEFAULT = {
    "ClusterRole/runtime-reconciler-agent",
    "ClusterRole/runtime-reconciler-controller",
    "ClusterRoleBinding/runtime-reconciler-agent",
    "ClusterRoleBinding/runtime-reconciler-controller",
    "CustomResourceDefinition/noderuntimes.runtime-reconciler.io",
    "DaemonSet/agent",
    "Deployment/controller",
    "Namespace/runtime-reconciler",
    "PodDisruptionBudget/controller",
    "ResourceQuota/critical-pods",
    "Role/agent",
    "Role/controller",
    "RoleBinding/agent",
    "RoleBinding/controller",
    "ServiceAccount/agent",
    "ServiceAccount/controller",
    "ValidatingAdmissionPolicy/runtime-reconciler-agent",
    "ValidatingAdmissionPolicyBinding/runtime-reconciler-agent",
}
TEARDOWN = {
    "ClusterRole/runtime-reconciler-teardown",
    "ClusterRoleBinding/runtime-reconciler-teardown",
    "Job/teardown",
    "Role/teardown",
    "RoleBinding/teardown",
    "ServiceAccount/teardown",
}
KEEP = "--keep=helm rollback runtime-reconciler 1 --namespace kube-system"
MONITORED = {"runtime-reconciler-agent", "runtime-reconciler-controller"}


def documents(*argv: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(base.template(*argv)) if document]


def named(*argv: str) -> dict[str, dict[str, Any]]:
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in documents(*argv)}


def pod(kind_and_name: str, *argv: str) -> dict[str, Any]:
    found: dict[str, Any] = named(*argv)[kind_and_name]["spec"]["template"]["spec"]
    return found


def sets(**values: str) -> list[str]:
    return [word for key, value in values.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]


def test_lint_has_nothing_to_say() -> None:
    for path in VALUES:
        assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART), "--values", str(path))


def test_the_base_is_the_chart_with_its_default_values() -> None:
    found = {path.name: path.read_text() for path in base.BASE.glob("*.yaml") if path.name != "kustomization.yaml"}
    assert found == dict(base.files()), "run `make docs`"


def test_the_kustomize_base_builds_and_is_accepted(api: ApiServer) -> None:
    answer = api.kubectl("apply", "--dry-run=server", "--validate=strict", "-k", str(base.BASE))
    assert len(answer.splitlines()) == len(DEFAULT)


def test_what_is_there_by_default() -> None:
    assert named().keys() == DEFAULT | TEARDOWN


@pytest.mark.parametrize("path", VALUES, ids=lambda path: path.stem)
def test_a_real_server_accepts(api: ApiServer, path: Path) -> None:
    rendered = base.template("--values", str(path))
    answer = api.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=rendered)
    lines = answer.splitlines()
    assert len(lines) == len([one for one in yaml.safe_load_all(rendered) if one])
    assert all(line.endswith("(server dry run)") for line in lines)


def test_everything_comes_out_where_it_belongs() -> None:
    found = named("--values", str(Path(__file__).parent / "values/everything.yaml"))
    monitors = {f"PodMonitor/{name}" for name in MONITORED}
    assert found.keys() == DEFAULT | TEARDOWN | monitors | {"NetworkPolicy/controller"}
    controller = found["Deployment/controller"]["spec"]
    agent = found["DaemonSet/agent"]["spec"]
    for workload in (controller, agent, found["Job/teardown"]["spec"]):
        (container,) = workload["template"]["spec"]["containers"]
        assert container["image"] == "registry.example.com/tools/runtime-reconciler@sha256:" + "0123456789abcdef" * 4
        assert container["imagePullPolicy"] == "Always"
        assert workload["template"]["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert controller["replicas"] == 3
    assert controller["template"]["metadata"]["annotations"] == {"example.com/owner": "platform"}
    assert controller["template"]["metadata"]["labels"] == {"team": "platform", names.COMPONENT_LABEL: "controller"}
    assert controller["template"]["spec"]["containers"][0]["args"] == ["--port", "19440", "--log-level", "debug"]
    assert agent["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 5}
    assert agent["template"]["spec"]["containers"][0]["args"] == [
        *("--socket", "/run/other/containerd.sock", "--unit", "other-containerd.service"),
        *("--port", "19441", "--log-level", "warning"),
    ]
    assert found["PodMonitor/runtime-reconciler-agent"]["metadata"]["labels"] == {"release": "prometheus"}
    definition = found["CustomResourceDefinition/noderuntimes.runtime-reconciler.io"]
    assert definition["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert definition["spec"] == crd.definition()["spec"]
    assert found["Job/teardown"]["spec"]["template"]["spec"]["containers"][0]["args"] == [
        "--timeout=1800",
        KEEP,
        "--delete",
    ]


def test_bare_leaves_everything_out_that_can_be() -> None:
    left_out = {
        "CustomResourceDefinition/noderuntimes.runtime-reconciler.io",
        "Namespace/runtime-reconciler",
        "PodDisruptionBudget/controller",
        "ResourceQuota/critical-pods",
    }
    assert named("--values", str(Path(__file__).parent / "values/bare.yaml")).keys() == (DEFAULT | TEARDOWN) - left_out


def test_a_service_monitor_has_a_service_that_it_selects() -> None:
    found = named(*sets(metrics__monitor="ServiceMonitor"))
    for component, port in (("controller", 9440), ("agent", 9441)):
        service, monitor = (
            found[f"Service/{component}-metrics"],
            found[f"ServiceMonitor/runtime-reconciler-{component}"],
        )
        assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
        assert service["spec"]["selector"] == {names.COMPONENT_LABEL: component}
        assert [(one["name"], one["port"]) for one in service["spec"]["ports"]] == [("metrics", port)]
        assert [one["port"] for one in monitor["spec"]["endpoints"]] == ["metrics"]


def test_each_distribution_has_the_socket_that_the_agent_knows() -> None:
    rke2, k3s = "rke2", SOCKETS[1]
    sockets = {"k3s": k3s, rke2: k3s, "microk8s": SOCKETS[3]}
    for kind in KINDS:
        if kind.restarts_itself:
            with pytest.raises(CommandFailed, match=f"{kind.name} restarts containerd by itself"):
                base.template(*sets(agent__distribution=kind.name))
            continue
        (container,) = pod("DaemonSet/agent", *sets(agent__distribution=kind.name))["containers"]
        assert container["args"] == ["--socket", sockets[kind.name], "--unit", kind.units[0]]
    assert "args" not in pod("DaemonSet/agent", *sets(agent__distribution="containerd"))["containers"][0]


def test_the_image_is_named_by_tag_or_digest() -> None:
    def image(**values: str) -> str:
        return str(pod("DaemonSet/agent", *sets(**values))["containers"][0]["image"])

    assert image() == "runtime-reconciler:0.1.0"
    assert image(image__tag="1.2.3") == "runtime-reconciler:1.2.3"
    digest = "sha256:" + "0" * 64
    assert image(image__tag="1.2.3", image__digest=digest) == f"runtime-reconciler@{digest}"


def test_another_namespace_is_named_everywhere() -> None:
    text = base.template(*sets(namespace__name="elsewhere"))
    for one in yaml.safe_load_all(text):
        assert one["metadata"].get("namespace") in (None, "elsewhere")
        for subject in one.get("subjects", []):
            assert subject["namespace"] == "elsewhere"
    assert "system:serviceaccount:elsewhere:agent" in text
    assert "namespace: runtime-reconciler" not in text


def test_the_namespace_of_the_release_is_left_to_helm() -> None:
    found = helm("template", "r", str(CHART), "--namespace=runtime-reconciler")
    assert "kind: Namespace" not in found


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"imagee.tag": "1"}, "imagee"),
        ({"image.tagg": "1"}, "tagg"),
        ({"controller.replica": "2"}, "replica"),
        ({"controller.replicas": "0"}, "controller/replicas"),
        ({"controller.resources.limit.memory": "1Gi"}, "limit"),
        ({"controller.tolerations[0].operater": "Exists"}, "operater"),
        ({"agent.distribution": "k8s"}, "agent/distribution"),
        ({"agent.socket": "containerd.sock"}, "agent/socket"),
        ({"agent.podLabels.runtime-reconciler\\.io/component": "x"}, "agent/podLabels"),
        ({"agent.maxUnavailable": "0%"}, "agent/maxUnavailable"),
        ({"metrics.monitor": "podmonitor"}, "metrics/monitor"),
        ({"uninstall.timeout": "5"}, "timeout"),
        ({"image.digest": "sha256:1"}, "image/digest"),
        ({"namespace.name": "Not_A_Name"}, "namespace/name"),
        ({"networkPolicy.metricsFrom[0].podSelecter": "x"}, "podSelecter"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_wrong_value_is_refused_by_name(values: dict[str, str], said: str) -> None:
    words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    with pytest.raises(CommandFailed) as refused:
        base.template(*words)
    assert "values don't meet the specifications of the schema" in str(refused.value)
    assert said in str(refused.value)


def test_the_hook_may_delete_noderuntimes_only_when_it_is_asked_to() -> None:
    def rights(*argv: str) -> set[tuple[str, str]]:
        found = named(*argv)
        roles = (found["ClusterRole/runtime-reconciler-teardown"], found["Role/teardown"])
        rules = [rule for role in roles for rule in role["rules"]]
        return {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}

    least = {
        ("noderuntimes", "list"),
        ("nodes", "list"),
        ("nodes/status", "patch"),
        ("pods", "list"),
        ("configmaps", "get"),
        ("configmaps", "delete"),
        ("daemonsets", "delete"),
        ("deployments", "delete"),
        ("leases", "delete"),
    }
    assert rights() == least
    assert rights(*sets(uninstall__deleteNodeRuntimes="true")) == least | {("noderuntimes", "delete")}


def test_every_rule_of_every_role_has_a_reason_beside_it() -> None:
    for path in sorted((CHART / "templates").glob("*.yaml")):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if line.startswith("- {apiGroups"):
                assert lines[number - 1].startswith("# "), f"{path.name}: {line}"


def test_the_hook_outlives_its_own_deadline_and_helm_shows_what_it_says() -> None:
    job = named()["Job/teardown"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    assert job["metadata"]["annotations"]["helm.sh/hook-output-log-policy"] == "hook-succeeded,hook-failed"
    assert job["spec"]["activeDeadlineSeconds"] == 280 + 120
    assert job["spec"]["template"]["metadata"]["labels"] == {names.COMPONENT_LABEL: names.COMPONENT_TEARDOWN}
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == ["--timeout=280", KEEP]


def test_the_alerts_are_those_of_the_repository() -> None:
    rule = named(*sets(alerts__enabled="true"))["PrometheusRule/runtime-reconciler"]
    assert rule["spec"] == yaml.safe_load((CHART.parent / "observability/alerts.yaml").read_text())


def test_each_dashboard_of_the_repository_is_a_config_map_for_the_sidecar() -> None:
    values = sets(
        dashboards__enabled="true", dashboards__namespace="monitoring", dashboards__annotations__folder="Nodes"
    )
    rendered = [one for one in documents(*values) if one["kind"] == "ConfigMap"]
    files = {path.name: path.read_text() for path in (CHART.parent / "observability/dashboards").glob("*.json")}
    assert {file: text for one in rendered for file, text in one["data"].items()} == files
    assert sorted(one["metadata"]["name"] for one in rendered) == sorted(name.removesuffix(".json") for name in files)
    for one in rendered:
        about = {key: value for key, value in one["metadata"].items() if key != "name"}
        labels = {"grafana_dashboard": "1"}
        assert about == {"namespace": "monitoring", "labels": labels, "annotations": {"folder": "Nodes"}}


def test_the_links_of_the_alerts_lead_to_your_own_pages() -> None:
    rule = named(*sets(alerts__enabled="true", alerts__runbooks="https://wiki.example.com/runbooks/"))
    (group,) = rule["PrometheusRule/runtime-reconciler"]["spec"]["groups"]
    stuck = next(one for one in group["rules"] if one["alert"] == "RuntimeReconcilerNodeStuck")
    url = "https://wiki.example.com/runbooks/RuntimeReconcilerNodeStuck.md"
    assert stuck["annotations"]["runbook_url"] == url
    assert all("wiki.example.com" in one["annotations"]["runbook_url"] for one in group["rules"])


def test_a_chart_that_was_packed_without_dashboards_or_alerts_says_so(tmp_path: Path) -> None:
    chart = shutil.copytree(CHART, tmp_path / "chart")
    shutil.rmtree(chart / "observability")
    base.template(chart=chart)
    for value, said in (("alerts", "observability/alerts.yaml"), ("dashboards", "observability/dashboards")):
        with pytest.raises(CommandFailed, match=f"this chart was packed without {said}"):
            base.template("--set", f"{value}.enabled=true", chart=chart)

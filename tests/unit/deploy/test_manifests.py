"""What deploy/ promises: rights, the one mount, names that match the code's."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.api import names

BASE = Path(__file__).parents[3] / "deploy/base"


def _documents(name: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all((BASE / name).read_text()) if document]


def _rules(kind: str, name: str) -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = next(
        d["rules"] for d in _documents("rbac.yaml") if d["kind"] == kind and d["metadata"]["name"] == name
    )
    return rules


def test_every_file_is_in_the_kustomization() -> None:
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == sorted(p.name for p in BASE.glob("*.yaml") if p.name != "kustomization.yaml")


def test_every_rule_has_a_reason() -> None:
    lines = (BASE / "rbac.yaml").read_text().splitlines()
    for number, line in enumerate(lines):
        if line.startswith("- {apiGroups"):
            assert lines[number - 1].startswith("# "), line


@pytest.mark.parametrize("name", ["rbac.yaml", "policy.yaml"])
def test_rights_and_policy_are_those_of_the_chart(name: str) -> None:
    """The rest is held to it by `make chart`, which has helm."""
    template = (BASE.parent / "chart/templates" / name).read_text()
    rendered = template.replace('{{ include "runtime-reconciler.namespace" . }}', names.NAMESPACE)
    assert sorted(map(str, yaml.safe_load_all(rendered))) == sorted(map(str, _documents(name))), "run `make docs`"


def test_chart_and_image_have_the_version_of_the_project() -> None:
    chart = yaml.safe_load((BASE.parent / "chart/Chart.yaml").read_text())
    project = tomllib.loads((BASE.parents[1] / "pyproject.toml").read_text())["project"]
    assert (chart["version"], chart["appVersion"]) == (project["version"], project["version"])


def test_an_agent_may_write_node_status_and_events_only() -> None:
    writes = {
        (resource, verb)
        for rule in (*_rules("ClusterRole", "runtime-reconciler-agent"), *_rules("Role", "agent"))
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb not in ("get", "list", "watch")
    }
    assert writes == {("nodes/status", "patch"), ("events", "create"), ("events", "patch")}


def test_nobody_has_wildcards_or_secrets() -> None:
    for document in _documents("rbac.yaml"):
        for rule in document.get("rules", []):
            assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
            assert "secrets" not in rule["resources"]


def test_both_may_see_the_stop_and_no_other_config_map() -> None:
    found = {
        role: [rule for rule in _rules("Role", role) if "configmaps" in rule["resources"]]
        for role in ("controller", "agent")
    }
    one = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [names.STOP_NAME]}
    assert found == {
        "controller": [{**one, "verbs": ["get", "list", "watch"]}],
        "agent": [{**one, "verbs": ["get"]}],
    }


def test_the_agent_mounts_the_host_once_and_sees_later_mounts() -> None:
    (agent,) = _documents("agent.yaml")
    pod = agent["spec"]["template"]["spec"]
    assert pod["volumes"] == [{"name": "host", "hostPath": {"path": "/", "type": "Directory"}}]
    assert pod["containers"][0]["volumeMounts"] == [
        {"name": "host", "mountPath": "/host", "mountPropagation": "HostToContainer"}
    ]
    assert (pod["hostPID"], pod["terminationGracePeriodSeconds"]) == (True, 60)
    assert pod["priorityClassName"] == "system-node-critical"
    assert pod["tolerations"] == [{"operator": "Exists"}]


def test_labels_and_namespace_are_those_of_the_code() -> None:
    for file, component in (("agent.yaml", names.COMPONENT_AGENT), ("controller.yaml", names.COMPONENT_CONTROLLER)):
        (workload,) = _documents(file)
        assert workload["metadata"]["namespace"] == names.NAMESPACE
        assert workload["spec"]["template"]["metadata"]["labels"] == {names.COMPONENT_LABEL: component}
        assert workload["spec"]["selector"]["matchLabels"] == {names.COMPONENT_LABEL: component}


def test_two_controllers_without_privileges() -> None:
    (controller,) = _documents("controller.yaml")
    assert controller["spec"]["replicas"] == 2
    context = controller["spec"]["template"]["spec"]["containers"][0]["securityContext"]
    assert context == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_policy_names_our_account_our_annotation_and_our_conditions() -> None:
    policy, binding = _documents("policy.yaml")
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert policy["spec"]["matchConditions"][0]["expression"] == (
        'request.userInfo.username == "system:serviceaccount:runtime-reconciler:agent"'
    )
    assert policy["spec"]["variables"][0]["expression"] == f'"{names.REPORT_ANNOTATION}"'
    conditions = policy["spec"]["validations"][3]["expression"]
    ours = f'["{names.SERVING_CONDITION}", "{names.CONTESTED_CONDITION}"]'
    assert (f"c.type in {ours}" in conditions, f"b.type in {ours}" in conditions) == (True, True)
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}

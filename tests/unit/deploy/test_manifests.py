"""What is applied is what the types and the code say."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.api import crd, names

BASE = Path(__file__).parents[3] / "deploy/base"


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((BASE / name).read_text()))


def test_the_crd_is_the_one_that_the_types_make() -> None:
    assert (BASE / "crd.yaml").read_text() == crd.as_yaml(crd.definition())


def test_the_kustomization_names_every_manifest() -> None:
    (kustomization,) = documents("kustomization.yaml")
    there = {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization["resources"]) == there


def test_the_namespace_may_hold_privileged_pods() -> None:
    namespace = documents("namespace.yaml")[0]
    assert namespace["metadata"]["name"] == names.NAMESPACE
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"


def test_an_agent_may_delete_no_pod_and_patch_only_the_status_of_nodes() -> None:
    role = next(d for d in documents("rbac.yaml") if d["metadata"]["name"] == "runtime-reconciler-agent")
    rights = {(r, v) for rule in role["rules"] for r in rule["resources"] for v in rule["verbs"]}
    assert ("pods", "delete") not in rights
    assert {(r, v) for r, v in rights if v not in ("get", "list", "watch")} == {
        ("nodes/status", "patch"),
        ("events", "create"),
        ("events", "patch"),
    }


def test_the_policy_is_about_the_agents_own_node_and_keys() -> None:
    policy, binding = documents("policy.yaml")
    expressions = " ".join(v["expression"] for v in policy["spec"]["validations"])
    assert "authentication.kubernetes.io/node-name" in expressions
    assert f'"{names.SERVING_CONDITION}"' in expressions
    assert policy["spec"]["variables"][0]["expression"] == f'"{names.REPORT_ANNOTATION}"'
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert binding["spec"]["validationActions"] == ["Deny"]


def test_the_agent_has_one_mount_of_the_host() -> None:
    (agent,) = documents("agent.yaml")
    spec = agent["spec"]["template"]["spec"]
    assert [v["hostPath"]["path"] for v in spec["volumes"]] == ["/"]
    (mount,) = spec["containers"][0]["volumeMounts"]
    assert (mount["mountPath"], mount["mountPropagation"]) == ("/host", "HostToContainer")
    assert spec["terminationGracePeriodSeconds"] == 60


@pytest.mark.parametrize("name", ["controller.yaml", "agent.yaml"])
def test_pods_carry_the_component_label_that_the_controller_watches(name: str) -> None:
    (workload,) = documents(name)
    assert workload["spec"]["template"]["metadata"]["labels"] == {names.COMPONENT_LABEL: name.removesuffix(".yaml")}

"""Scenario 16: what the embedded API server and the simulated kubelet are held to, against the cluster's own."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from tests.cluster import controlplane, paths, product
from tests.cluster.lab import Lab, Verdict
from tests.cluster.scenarios import kubelets
from tests.conformance import real


def run(lab: Lab, verdict: Verdict, loops: int) -> None:
    """Without our controllers, which would act on the NodeRuntimes of the tests, and without our agents.

    Those end pods that a kubelet is slow to end, and their DaemonSet makes pods for the Nodes of the tests: one whose
    Node is gone before it is scheduled stays Pending until the DaemonSet is looked at again.
    """
    with product.no_agents():
        with product.no_controllers():
            suite(verdict)
        kubelets.run(lab, verdict)


def suite(verdict: Verdict) -> None:
    """Each test has a namespace and names of its own, and takes away what it made."""
    report = paths.REPORTS / "conformance.xml"
    paths.REPORTS.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    status = real.run(
        api=paths.API, authority=controlplane.AUTHORITY, token="admin-token", etcd=controlplane.ETCD, report=report
    )
    verdict.check(status == 0, f"pytest ended with {status}")
    for case in ElementTree.parse(report).iter("testcase"):
        wrong = [f"{part.tag}: {part.get('message')}" for part in case if part.tag in ("failure", "error", "skipped")]
        verdict.check(not wrong, f"{case.get('name')}: {wrong}")

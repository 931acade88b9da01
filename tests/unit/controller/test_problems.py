"""What a refusal of the API server is called, and what to do about it."""

from __future__ import annotations

import pytest

from reconciler.api.node import Problem
from reconciler.controller import problems

RIGHT = (
    'pods is forbidden: User "system:serviceaccount:runtime-reconciler:controller" cannot create resource "pods" '
    'in API group "" in the namespace "runtime-reconciler"'
)
ACCOUNT = (
    'phase install: pods "rr-1" is forbidden: error looking up service account runtime-reconciler/payload: '
    'serviceaccount "payload" not found'
)
POLICY = 'pods "rr-1" is forbidden: violates PodSecurity "restricted:latest": privileged'
QUOTA = 'pods "rr-1" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=9, limited: pods=9'


@pytest.mark.parametrize(
    ("said", "reason", "told"),
    [
        (RIGHT, "Forbidden", f"{RIGHT}; see the rules of deploy/base/rbac.yaml"),
        (
            ACCOUNT,
            "ServiceAccountMissing",
            f"{ACCOUNT}; create ServiceAccount runtime-reconciler/payload, or name another",
        ),
        (POLICY, "AdmissionRefused", POLICY),
        (QUOTA, "AdmissionRefused", QUOTA),
    ],
    ids=["RBAC", "ServiceAccount", "policy", "quota"],
)
def test_only_a_missing_right_is_told_as_one(said: str, reason: str, told: str) -> None:
    assert problems.forbidden(said) == Problem(reason, told)

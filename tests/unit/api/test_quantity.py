"""Quantities of Kubernetes: one amount in several texts."""

from __future__ import annotations

from decimal import Decimal

import pytest

from reconciler.api import quantity


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("250m", Decimal("0.25")),
        ("1000m", Decimal(1)),
        (2, Decimal(2)),
        ("1.5", Decimal("1.5")),
        (".5", Decimal("0.5")),
        ("160Mi", Decimal(167772160)),
        ("1k", Decimal(1000)),
        ("1e3", Decimal(1000)),
        ("2E", Decimal(2) * 10**18),
        ("-3n", Decimal("-0.000000003")),
    ],
)
def test_an_amount(text: object, amount: Decimal) -> None:
    assert quantity.value(text) == amount


@pytest.mark.parametrize("text", ["", "plenty", "1 Mi", "1mi", "Mi", None, True])
def test_what_is_none(text: object) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        quantity.value(text)


def test_the_same_is_told_by_amounts_and_not_by_texts() -> None:
    assert quantity.same({"cpu": "1000m", "memory": "1Gi"}, {"memory": "1024Mi", "cpu": "1"})
    assert not quantity.same({"cpu": "1000m"}, {"cpu": "1001m"})
    assert not quantity.same({"cpu": "1"}, {})

"""Quantities of Kubernetes: an API server may give back another text than it was given (`1000m` comes back as `1`).

After `k8s.io/apimachinery/pkg/api/resource/quantity.go`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

_SUFFIXES = {
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{suffix: Decimal(10) ** (-3 * power) for power, suffix in enumerate(("m", "u", "n"), start=1)},
    "": Decimal(1),
}
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([eE][+-]?\d+|[KMGTPE]i|[numkMGTPE]?)")


def value(text: object) -> Decimal:
    """Raises ValueError on what is no quantity."""
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        raise ValueError(f"{text!r} is not a quantity, like 250m or 160Mi")
    number, suffix = found.groups()
    return Decimal(number + suffix) if suffix not in _SUFFIXES else Decimal(number) * _SUFFIXES[suffix]


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two lists of resources ask for the same; what is no quantity equals its own text only."""
    return {name: _known(text) for name, text in one.items()} == {name: _known(text) for name, text in other.items()}


def _known(text: object) -> Decimal | str:
    try:
        return value(text)
    except ValueError:
        return str(text)

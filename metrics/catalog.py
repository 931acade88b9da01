"""Every family of the project, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from metrics import agent, build, controller, kube
from metrics.families import Family

SUBJECTS: tuple[tuple[str, ModuleType], ...] = (
    ("Controller", controller),
    ("Agent", agent),
    ("API server", kube),
    ("Both", build),
)


def declared(module: ModuleType) -> list[Family]:
    """The families that `module` names, by name."""
    return sorted((v for v in vars(module).values() if isinstance(v, Family)), key=lambda family: family.name)


def families() -> Mapping[str, Family]:
    """By every name that a query may use."""
    return {name: family for _, module in SUBJECTS for family in declared(module) for name in family.series}

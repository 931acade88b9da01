"""Pieces of queries that more than one panel has. `$runtime` and `$node` are the dashboards' variables."""

from __future__ import annotations

from metrics.agent import SERVING
from metrics.families import Computed, Count, Spread

RUNTIME = '{runtime=~"$runtime"}'
NODE = '{node=~"$node"}'
SHOWN = 20
"""Nodes in one graph: with thousands of them only those that stand out can be seen."""
INTERVAL = "$__rate_interval"
SPARSE = "15m"
"""For what happens a few times in a rollout: a rate over a minute would be empty most of the time."""


def fleet(family: Computed, *by: str, where: str = RUNTIME) -> str:
    """The leader's word; during a change of leader the larger one."""
    return f"max by ({', '.join(by or ('runtime',))}) ({family.name}{where})"


def risen(family: Count | str, *by: str, where: str = "", over: str = INTERVAL) -> str:
    """How often in each interval."""
    name = family if isinstance(family, str) else family.name
    grouped = f" by ({', '.join(by)})" if by else ""
    return f"sum{grouped} (increase({name}{where}[{over}]))"


def ours(selected: str) -> str:
    """Of series with a name of the field, those of our agents: kubelet's have a `node`, too."""
    return f"{selected} and on (instance) {SERVING.name}"


def per_second(family: Count | str, *by: str, where: str = "") -> str:
    name = family if isinstance(family, str) else family.name
    return f"sum by ({', '.join(by)}) (rate({name}{where}[{INTERVAL}]))"


def quantile(share: float, family: Spread, *by: str, where: str = "", over: str = INTERVAL) -> str:
    """In the family's unit."""
    grouped = ", ".join(("le", *by))
    return f"histogram_quantile({share}, sum by ({grouped}) (rate({family.bucket}{where}[{over}])))"

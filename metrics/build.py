"""Which build of the project this is."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version

from prometheus_client.core import GaugeMetricFamily

from metrics.families import PREFIX, Computed

INFO = Computed(f"{PREFIX}_build_info", "The version that runs here.", "always 1", ("version",))


def info() -> GaugeMetricFamily:
    family = INFO.gauge()
    family.add_metric([_version()], 1.0)
    return family


@cache
def _version() -> str:
    return version("runtime-reconciler")

"""Which build of the project this is."""

from __future__ import annotations

from prometheus_client.core import GaugeMetricFamily

from metrics.families import PREFIX, Computed

VERSION = "0.1.0"
"""That of the distribution, which a test holds it to: asking importlib.metadata would cost each agent 2 MB."""
INFO = Computed(f"{PREFIX}_build_info", "The version that runs here.", "always 1", ("version",))


def info() -> GaugeMetricFamily:
    family = INFO.gauge()
    family.add_metric([VERSION], 1.0)
    return family

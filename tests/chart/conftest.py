"""One API server for all tests of the chart, with the kinds of the Prometheus operator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chart import monitoring
from tests.chart.apiserver import ApiServer


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with ApiServer(tmp_path_factory.mktemp("apiserver")) as server:
        for definition in monitoring.definitions():
            server.kubectl("create", "-f", str(definition))
        server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        server.kubectl("create", "namespace", "runtime-reconciler")
        yield server

"""`make conformance`: the tests of this folder against a real API server, with etcd and the controller manager.

No root, no node: 10 seconds until it is up when the programs are built, then a minute.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.chart.apiserver import ApiServer
from tests.conformance import real


def main() -> int:
    """pytest's exit code; arguments are handed to it."""
    with (
        tempfile.TemporaryDirectory(prefix="conformance-") as folder,
        ApiServer(Path(folder), controllers=True) as server,
    ):
        server.kubectl("create", "-f", "-", stdin=real.definition())
        server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        return real.run(
            api=server.url, authority=server.authority, token="admin-token", etcd=server.etcd, more=sys.argv[1:]
        )


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.cluster`: see --help."""

from __future__ import annotations

import sys

from tests.cluster.cli import main

sys.exit(main(sys.argv[1:]))

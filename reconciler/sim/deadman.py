"""Runs a host's dead-man script as the host would, below a root that is not `/`.

The real script is run by a real shell: absolute paths are moved below the root, and `systemctl` is a
function that notes what it was asked for.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

TIMEOUT = 10.0
"""Seconds."""
_PATH = re.compile(r"(?<![\w/.])/(etc|var|run|opt|usr/local)/")
_PRELUDE = 'systemctl() { echo "$1"; }\n'


def run(root: Path, argv: tuple[str, ...]) -> list[str]:
    """Run `sh SCRIPT`; the verbs that systemctl was called with. Blocks. Raises OSError and SubprocessError."""
    script = (root / argv[-1].lstrip("/")).read_text()
    moved = _PATH.sub(lambda match: f"{root}{match.group(0)}", script)
    done = subprocess.run(
        ["/bin/sh", "-c", _PRELUDE + moved], capture_output=True, text=True, timeout=TIMEOUT, check=True
    )
    return done.stdout.split()

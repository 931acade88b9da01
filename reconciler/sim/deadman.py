"""Runs a host's dead-man script as the host would, below a root that is not `/`.

The real script is run by a real shell: absolute paths are moved below the root, and `systemctl` is a
function that notes what it was asked to do, and shows the unit as it is.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

TIMEOUT = 10.0
"""Seconds."""
_PATH = re.compile(r"(?<![\w/.])/(etc|var|run|opt|usr/local)/")
_PRELUDE = """systemctl() {{
  if [ "$1" = show ]; then printf 'ActiveState=%s\\nSubState=%s\\n' {active} {sub}; else echo "$1"; fi
}}
"""


def run(root: Path, argv: tuple[str, ...], *, active: str, sub: str) -> list[str]:
    """Run `sh SCRIPT ARGUMENTS` beside a unit in that state; the verbs that systemctl was called with.

    Blocks. Raises OSError and SubprocessError.
    """
    shell, path, *more = argv
    script = (root / path.lstrip("/")).read_text()
    moved = _PATH.sub(lambda match: f"{root}{match.group(0)}", script)
    command = [shell, "-c", _PRELUDE.format(active=active, sub=sub) + moved, path, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=True)
    return done.stdout.split()

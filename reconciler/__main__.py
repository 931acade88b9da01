"""`python -m reconciler` and `reconciler`. The agent is started before the command line's libraries are loaded."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of both names, `reconciler` and `kubectl-reconciler`."""
    if sys.argv[1:2] == ["agent"]:
        from reconciler.agent.main import main as agent

        sys.exit(agent(sys.argv[2:]))
    from reconciler.cli.main import app

    app()


if __name__ == "__main__":
    main()

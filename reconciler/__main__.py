"""`python -m reconciler` and `reconciler`. The agent and `config` start without the libraries of the other commands."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of both names, `reconciler` and `kubectl-reconciler`."""
    command = sys.argv[1:2]
    if command == ["agent"]:
        from reconciler.agent.main import main as agent

        sys.exit(agent(sys.argv[2:]))
    if command == ["config"]:
        from reconciler.cli.config import app as config

        config(args=sys.argv[2:], prog_name="reconciler config")
    from reconciler.cli.main import app

    app()


if __name__ == "__main__":
    main()

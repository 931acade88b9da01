"""`python -m reconciler` and `reconciler`. The agent and `config` start without the libraries of the other commands."""

from __future__ import annotations

import os
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


def complete() -> None:
    """Entry point of `kubectl_complete-reconciler`, which kubectl runs at `kubectl reconciler … <Tab>`.

    It gets the words so far, the one to complete last, and answers one per line and a directive of Cobra's.
    """
    words = sys.argv[1:] or [""]
    os.environ["_KUBECTL_RECONCILER_COMPLETE"] = "complete_bash"
    os.environ["COMP_WORDS"] = " ".join(["kubectl-reconciler", *words])
    os.environ["COMP_CWORD"] = str(len(words))
    from reconciler.cli.main import app

    try:
        app(prog_name="kubectl-reconciler")
    finally:
        print(NO_FILES)


NO_FILES = ":4"
"""`ShellCompDirectiveNoFileComp` of Cobra: no names of files where there is nothing to offer."""

if __name__ == "__main__":
    main()

"""The command line of the harness."""

from __future__ import annotations

import argparse
import os
import subprocess

from tests.cluster import cluster, controlplane


def main(argv: list[str]) -> int:
    """0 when everything that was asked for held, 1 when not, 2 for wrong usage or a machine that cannot do it."""
    arguments = _parser().parse_args(argv)
    if os.geteuid() != 0:
        print("the cluster needs root: it boots nodes with systemd-nspawn")
        return 2
    if arguments.command == "up":
        cluster.up()
    elif arguments.command == "down":
        cluster.down()
    elif arguments.command == "kubeconfig":
        print(controlplane.kubeconfig("admin"))
    elif arguments.command == "shell":
        leader = str(cluster.nodes()[arguments.node].leader())
        return subprocess.call(["nsenter", "-t", leader, "-a", *(arguments.words or ["/bin/bash", "-l"])])
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("up", help="bring the cluster up and leave it running")
    commands.add_parser("down", help="take it away")
    commands.add_parser("kubeconfig", help="print the path of the administrator's kubeconfig")
    shell = commands.add_parser("shell", help="a shell, or a command, inside a node")
    shell.add_argument("node", type=int)
    shell.add_argument("words", nargs=argparse.REMAINDER)
    return parser

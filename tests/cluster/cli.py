"""The command line of the harness."""

from __future__ import annotations

import argparse
import os
import subprocess

from tests.cluster import cluster, controlplane, product, runner


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
    elif arguments.command == "install":
        cluster.up()
        product.install()
    else:
        return _run(arguments)
    return 0


def _run(arguments: argparse.Namespace) -> int:
    """Up, install, scenarios, and down again unless it is to be kept."""
    numbers = [int(word) for word in arguments.scenarios.split(",") if word.strip()]
    try:
        cluster.up()
        product.install()
        return 0 if runner.run(numbers, arguments.loops) else 1
    finally:
        if not arguments.keep:
            cluster.down()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--loops", type=int, default=3, help="loops of scenarios 1 and 12")
    parser.add_argument(
        "--scenarios", default=os.environ.get("SCENARIOS", ""), help="numbers, as 1,3,5; all by default"
    )
    keep = os.environ.get("KEEP", "") != ""
    parser.add_argument("--keep", action="store_true", default=keep, help="leave the cluster running afterwards")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("install", help="bring the cluster up and the product of this tree onto it")
    commands.add_parser("up", help="bring the cluster up and leave it running")
    commands.add_parser("down", help="take it away")
    commands.add_parser("kubeconfig", help="print the path of the administrator's kubeconfig")
    shell = commands.add_parser("shell", help="a shell, or a command, inside a node")
    shell.add_argument("node", type=int)
    shell.add_argument("words", nargs=argparse.REMAINDER)
    return parser

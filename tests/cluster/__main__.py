"""Raise, use and end the test cluster.

    python3 -m tests.cluster prepare            make what nodes are made of (minutes the first time)
    python3 -m tests.cluster up [--nodes N]     (make cluster)
    python3 -m tests.cluster play PLAYBOOK ...  ansible-playbook with the cluster's inventory
    python3 -m tests.cluster molecule test -s tenant
    python3 -m tests.cluster ssh NODE [COMMAND ...]
    python3 -m tests.cluster kill NODE          a power failure
    python3 -m tests.cluster start NODE         power on again
    python3 -m tests.cluster status
    python3 -m tests.cluster down               (make cluster-down)

Exit status: 0 done, 1 failed, 130 interrupted; `play`, `molecule` and `ssh` pass on that of their program.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tests.cluster import cluster, inventory, place, state
from tests.framework.interrupt import exit_status

DISKS = {"mail": "1G", "batch": "1G", "bench-foreground": "1G", "bench-background": "1G"}
"""The shared storage's disks, and so its exports."""


DEFAULT_NODES = 2


def _up(arguments: argparse.Namespace) -> int:
    current = cluster.up(arguments.nodes, DISKS)
    names = [name for name in current.spaces if name != cluster.FABRIC]
    print(f"The cluster is up: {', '.join(names)}. Inventory: {place.INVENTORY}")
    return 0


def _prepare(arguments: argparse.Namespace) -> int:
    with state.changing():
        cluster.prepare()
    return 0


def _down(arguments: argparse.Namespace) -> int:
    cluster.down()
    return 0


def _kill(arguments: argparse.Namespace) -> int:
    cluster.kill(arguments.node)
    return 0


def _start(arguments: argparse.Namespace) -> int:
    cluster.start(arguments.node)
    return 0


def _status(arguments: argparse.Namespace) -> int:
    current = state.load()
    for space in current.spaces.values() if current else []:
        print(f"{space.name:10} {'up' if space.alive() else 'down':5} pid {space.pid}")
    return 0 if current else 1


def _play(arguments: argparse.Namespace) -> int:
    return _tool(["ansible-playbook", *arguments.words])


def _ssh(arguments: argparse.Namespace) -> int:
    return _tool(["ssh", "-F", str(inventory.SSH_CONFIG), *arguments.words])


def _molecule(arguments: argparse.Namespace) -> int:
    """Molecule raises and ends the cluster itself."""
    inventory.write(cluster.nodes(DEFAULT_NODES))
    return _tool(["molecule", *arguments.words], cwd=place.ROLES.parent, need_cluster=False)


def _tool(argv: list[str], cwd: Path | None = None, need_cluster: bool = True) -> int:
    """A program with the cluster's environment; it gets the terminal's Ctrl-C itself."""
    if need_cluster and not state.load():
        raise place.ClusterError("no cluster is up: `make cluster` raises one")
    with subprocess.Popen(argv, env=inventory.environment(), cwd=cwd) as child:
        return child.wait()


WORDS = "words"
"""The operand of commands that pass all their words to another program."""

COMMANDS = {
    "prepare": (_prepare, None), "up": (_up, None), "down": (_down, None), "status": (_status, None),
    "kill": (_kill, "node"), "start": (_start, "node"), "play": (_play, WORDS), "ssh": (_ssh, WORDS), "molecule": (_molecule, WORDS),
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.cluster", description="The test cluster of one machine.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (function, operand) in COMMANDS.items():
        command = commands.add_parser(name)
        command.set_defaults(function=function, operand=operand)
        if name == "up":
            command.add_argument("--nodes", type=int, default=DEFAULT_NODES, metavar="N", help="hypervisor nodes (2)")
        if operand and operand != WORDS:
            command.add_argument(operand)
    arguments, words = parser.parse_known_args()
    if words and arguments.operand != WORDS:
        parser.error(f"{words[0]}: not known here")
    arguments.words = words
    return arguments


def main() -> int:
    """See the exit status above."""
    arguments = _arguments()
    return exit_status(lambda: arguments.function(arguments))


if __name__ == "__main__":
    sys.exit(main())

"""Fixtures: a raised cluster, and plays on it whose results are data."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass
from typing import Any, Iterator

import pytest

from tests.cluster import cluster, inventory, place, state
from tests.cluster.__main__ import DISKS

PLAY_SECONDS = 1500.0
"""The longest play takes 2 minutes on an idle machine; the rest is for busy ones."""


@dataclass(frozen=True)
class Play:
    """What a play did. changed: "HOST: TASK", and what it says."""

    status: int
    stats: dict[str, dict[str, int]]
    failures: dict[str, str]
    changed: list[str]
    seconds: float
    text: str


def _failures(data: dict[str, Any]) -> dict[str, str]:
    """The message of each host's last failed task."""
    found: dict[str, str] = {}
    for task in (task for play in data["plays"] for task in play["tasks"]):
        for host, result in task["hosts"].items():
            if result.get("failed") or result.get("unreachable"):
                items = [item.get("msg", "") for item in result.get("results", []) if item.get("failed")]
                found[host] = " ".join([str(result.get("msg", "")), *map(str, items)])
    return found


def _changed(data: dict[str, Any]) -> list[str]:
    """What each host's tasks have changed."""
    return [f"{host}: {task['task']['name']}: {str(result.get('msg') or result.get('diff') or '')[:300]}"
            for play in data["plays"] for task in play["tasks"] for host, result in task["hosts"].items() if result.get("changed")]


def run_play(name: str, *words: str, variables: dict[str, Any] | None = None) -> Play:
    """Run a playbook of the collection; never raises for a failed task."""
    argv = ["ansible-playbook", f"idletime.kvm.{name}", *words]
    if variables:
        argv += ["--extra-vars", json.dumps(variables)]
    environment = {**inventory.environment(), "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"}
    begin = time.monotonic()
    result = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=PLAY_SECONDS)
    seconds = time.monotonic() - begin
    text = f"{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
    try:
        data = json.loads(result.stdout[result.stdout.index("{"):])
    except ValueError:
        return Play(result.returncode, {}, {}, [], seconds, text)
    return Play(result.returncode, data["stats"], _failures(data), _changed(data), seconds, text)


def good_play(name: str, *words: str, variables: dict[str, Any] | None = None) -> Play:
    """Run a playbook that must succeed."""
    play = run_play(name, *words, variables=variables)
    assert play.status == 0, play.failures or play.text
    return play


def on_node(node: str, command: str) -> str:
    """The output of a shell command on a node; an error fails the test."""
    inside = state.load().get(node).inside("mnt", "net", "pid", "uts", "ipc")  # type: ignore[union-attr]
    return place.run([*inside, "sh", "-c", command])


def query(node: str, domain: str) -> dict[str, Any]:
    """query-idletime of a domain with one resource."""
    return json.loads(on_node(node, f"virsh qemu-monitor-command {domain} query-idletime"))["return"][0]


@pytest.fixture(scope="module")
def raised() -> Iterator[None]:
    """A cluster of two nodes, ended after the module's tests; what is left of it fails them.

    With IDLETIME_CLUSTER=keep, the one that is up; it stays.
    """
    if os.environ.get("IDLETIME_CLUSTER") == "keep":
        yield
        return
    cluster.down()
    cluster.up(2, DISKS)
    try:
        yield
    finally:
        cluster.down()

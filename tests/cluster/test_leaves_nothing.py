"""The cluster goes without a trace, however it ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.cluster import cluster, place, space, state
from tests.cluster.__main__ import DISKS
from tests.cluster.node import BRIDGE, NETWORK
from tests.framework.paths import ROOT

UP = [sys.executable, "-m", "tests.cluster", "up"]
WAIT_SECONDS = 120.0


def on_the_machine() -> list[str]:
    """Links and addresses of the cluster in the machine's own network: there never are any."""
    links = json.loads(place.run(["ip", "-json", "address"]))
    ours = re.compile(rf"{BRIDGE}|node[0-9]+")
    return [link["ifname"] for link in links if ours.fullmatch(link["ifname"])
            or any(str(one.get("local")).startswith(f"{NETWORK}.") for one in link["addr_info"])]


@pytest.fixture(autouse=True)
def nothing() -> None:
    """No cluster before the test; base and packages are there, so that a start takes seconds."""
    cluster.down()


def test_down_leaves_nothing() -> None:
    """No process, mount, namespace, address or file; and a second `down` does nothing."""
    raised = cluster.up(2, DISKS)
    assert len({inodes["net"] for inodes in raised.history}) == 3, "two nodes and the fabric"
    assert cluster.leftovers(raised, space.now()) != [], "the proof must see a cluster that is up"
    assert on_the_machine() == []
    cluster.down()
    assert cluster.leftovers(raised, space.now()) == []
    cluster.down()


def test_one_command_at_a_time() -> None:
    """While one raises or ends the cluster, another says so and changes nothing."""
    with state.changing(), pytest.raises(place.ClusterError, match="another command"):
        cluster.up(2, DISKS)
    assert state.load() is None


@pytest.mark.parametrize("number, spaces", [
    (signal.SIGINT, 0), (signal.SIGINT, 1), (signal.SIGINT, 2), (signal.SIGTERM, 2), (signal.SIGINT, 3),
])
def test_a_stopped_start_leaves_nothing(number: signal.Signals, spaces: int) -> None:
    """Stopped when so many of the three sets of namespaces are recorded."""
    starting = subprocess.Popen(UP, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + WAIT_SECONDS
    seen = None
    while starting.poll() is None and time.monotonic() < end:
        seen = state.load() or seen
        if seen and len(seen.spaces) >= spaces:
            break
        time.sleep(0.002)
    starting.send_signal(number)
    _, said = starting.communicate(timeout=WAIT_SECONDS)
    until = space.now()
    assert starting.returncode in (0, 130), said
    if starting.returncode == 0:
        cluster.down()  # it was faster than the signal
    assert seen is not None
    assert cluster.leftovers(seen, until) == [] and on_the_machine() == []

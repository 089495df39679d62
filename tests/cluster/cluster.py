"""The cluster as a whole: up, down, kill and raise a node; what it leaves behind is nothing, and that is checked."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

from tests.cluster import inventory, node as nodes_of, place, space, state
from tests.cluster.base import get_base
from tests.cluster.node import BITS, BRIDGE, STORAGE, Node
from tests.cluster.packages import get_repository
from tests.cluster.place import HERE, RUN, SOCKETS, ClusterError, need_root
from tests.cluster.repository import get_own
from tests.cluster.state import State

FABRIC = "fabric"
GONE_SECONDS = 30.0
"""The kernel drops namespaces a moment after their last process; guests' memory takes a busy machine seconds."""


def prepare() -> tuple[Path, Path]:
    """What nodes are made of, and is made once: their root file system and the folder of their packages."""
    base = get_base()
    get_own()
    return base, get_repository(base)


def up(count: int, disks: dict[str, str]) -> State:
    """Raise `count` nodes with shared disks {name: size}; on any error or Ctrl-C nothing is left."""
    need_root()
    with state.changing():
        return _up(count, disks)


def _up(count: int, disks: dict[str, str]) -> State:
    if state.load():
        raise ClusterError(f"a cluster is up already ({place.STATE}): `make cluster-down` ends it")
    base, packages = prepare()
    shutil.rmtree(RUN, ignore_errors=True)
    RUN.mkdir(parents=True)
    SOCKETS.mkdir(mode=0o700, exist_ok=True)
    current = State()
    current.save()
    try:
        _raise_all(current, nodes(count), disks, base, packages)
    except BaseException:
        _down()
        raise
    return current


def nodes(count: int) -> list[Node]:
    """node1, node2, ..."""
    return [Node(number + 1) for number in range(count)]


def _raise_all(current: State, members: list[Node], disks: dict[str, str], base: Path, packages: Path) -> None:
    _make_disks(disks)
    _start_fabric(current)
    keys = RUN / "keys"
    nodes_of.make_keys(keys, members)
    for each in members:
        nodes_of.create(each, members, keys)
        _start_node(current, each, base, packages)
    inventory.write_ssh(current.get(FABRIC))
    inventory.write(members)


def _make_disks(disks: dict[str, str]) -> None:
    folder = RUN / "disks"
    folder.mkdir()
    for name, size in disks.items():
        place.run(["truncate", "--size", size, folder / name])


def _start_fabric(current: State) -> None:
    ready, log = RUN / "fabric-ready", RUN / "fabric.log"
    argv = [HERE / "fabric-init.sh", BRIDGE, f"{STORAGE}/{BITS}", RUN / "disks", ready]
    current.add(space.start(FABRIC, argv, log))
    space.await_ready(current.get(FABRIC), ready, log)


def _start_node(current: State, each: Node, base: Path, packages: Path) -> None:
    each.ready.unlink(missing_ok=True)
    started = space.start(each.name, nodes_of.init_words(each, base, packages), each.log)
    current.add(started)
    space.connect(current.get(FABRIC), BRIDGE, started, f"{each.address}/{BITS}")
    space.await_ready(started, each.ready, each.log)


def kill(name: str) -> None:
    """A power failure: the node's processes end at once, its disk stays."""
    with state.changing():
        current = _need()
        ended = current.get(name)
        ended.end()
        left = _await_gone([ended.inodes], space.now())
        if left:
            raise ClusterError(f"{name} left processes behind: {'; '.join(left)}")
        current.forget(ended)


def start(name: str) -> None:
    """Power on again."""
    with state.changing():
        current = _need()
        if current.get(name).alive():
            raise ClusterError(f"{name} runs: kill it first")
        base = get_base()
        _start_node(current, Node(int(name.removeprefix("node"))), base, place.CACHE / "packages" / base.name)


def _need() -> State:
    current = state.load()
    if not current:
        raise ClusterError("no cluster is up: `make cluster` raises one")
    return current


def down() -> None:
    """End all of it; an error names what is left. Does nothing where nothing is up."""
    with state.changing():
        _down()


def _down() -> None:
    current = state.load()
    if current:
        _close_connections()
        for each in reversed(list(current.spaces.values())):
            each.end()
    until = space.now()
    _await_gone(current.history if current else [], until)
    shutil.rmtree(SOCKETS, ignore_errors=True)
    shutil.rmtree(RUN, ignore_errors=True)
    left = leftovers(current, until)
    if left:
        raise ClusterError("left behind: " + "; ".join(left))


def _close_connections() -> None:
    """Ansible's SSH connections stay open for a minute after a play: end them by their own means."""
    for path in SOCKETS.glob("*"):
        if path.is_socket():
            argv = ["ssh", "-o", f"ControlPath={path}", "-O", "exit", "cluster"]
            subprocess.run(argv, capture_output=True, timeout=place.COMMAND_SECONDS)


def _await_gone(history: list[dict[str, int]], until: int) -> list[str]:
    """The processes that are left after a while, of those that began before `until`."""
    end = time.monotonic() + GONE_SECONDS
    while left := [text for inodes in history for text in space.left_of(inodes, until)]:
        if time.monotonic() > end:
            break
        time.sleep(space.POLL_SECONDS)
    return left


def leftovers(before: State | None, until: int) -> list[str]:
    """Processes that began before `until`, mounts and files of a cluster that was: empty after `down`."""
    found = []
    for inodes in before.history if before else []:
        found += [f"process {text}" for text in space.left_of(inodes, until)]
    found += [f"mount {text}" for text in _mounts()]
    found += [f"file {path}" for path in (RUN, SOCKETS) if path.exists()]
    return found


def _mounts() -> list[str]:
    """Mounts below the run folder, in any mount namespace of this machine."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            found.update(line.split()[4] for line in path.read_text().splitlines() if str(RUN) in line)
        except OSError:
            continue  # ended while we looked
    return sorted(found)

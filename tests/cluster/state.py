"""What is up: recorded before it is used, so that `down` finds it whatever happened in between."""

from __future__ import annotations

import fcntl
import json
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Iterator

from tests.cluster.place import CACHE, STATE, ClusterError
from tests.cluster.space import Space


@dataclass
class State:
    """The namespaces of a raised cluster, the fabric's among them, and all that may have left something."""

    spaces: dict[str, Space] = field(default_factory=dict)
    history: list[dict[str, int]] = field(default_factory=list)

    def add(self, space: Space) -> None:
        """Record a started space."""
        self.spaces[space.name] = space
        self.history.append(space.inodes)
        self.save()

    def forget(self, space: Space) -> None:
        """It has ended and left nothing: there is nothing to look for any more."""
        self.history.remove(space.inodes)
        self.save()

    def get(self, name: str) -> Space:
        """The space of a node, or an error that says what there is."""
        if name not in self.spaces:
            raise ClusterError(f"{name}: no such node; there are {', '.join(sorted(self.spaces)) or 'none'}")
        return self.spaces[name]

    def save(self) -> None:
        """Write it whole or not at all."""
        partial = STATE.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self), indent=2) + "\n")
        partial.replace(STATE)


def load() -> State | None:
    """The recorded state, or None where no cluster is up."""
    try:
        data = json.loads(STATE.read_text())
    except FileNotFoundError:
        return None
    spaces = {name: Space(**fields) for name, fields in data["spaces"].items()}
    return State(spaces, data["history"])


@contextmanager
def changing() -> Iterator[None]:
    """Only one command at a time changes the cluster of this checkout; another one ends with an error."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClusterError("another command raises or ends this cluster: wait until it has done so") from None
        yield

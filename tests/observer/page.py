"""A reader of an observer's page: what QEMU does, in Python. As a program: prints it once a second.

    python3 -m tests.observer.page /run/idletime/sda
"""

from __future__ import annotations

import array
import mmap
import os
import socket
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

BYTES = 4096
HEAD = struct.Struct("QII64s")
LINE = struct.Struct("IIqQQQq")
LINE_AT = 128
MORE = struct.Struct("4Q")
MORE_AT = 192
RING_AT = 256
RING = 256
MAGIC = 0x6465767265736269


@dataclass(frozen=True)
class Look:
    """The page at a time."""

    in_service: int
    all_in_service: int
    last_ns: int
    started: int
    bytes: int
    ring_head: int
    service_ns: int
    requeued: int
    unpaired: int
    healed: int
    missed: int


class Page:
    """A connection to an observer, and its page."""

    def __init__(self, arena: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(5)
        self.socket.connect(str(arena / "observer"))
        _, ancillary, _, _ = self.socket.recvmsg(1, socket.CMSG_SPACE(4))
        self.socket.setblocking(False)
        self.descriptor = array.array("i", ancillary[0][2])[0]
        self.map = mmap.mmap(self.descriptor, BYTES, mmap.MAP_SHARED, mmap.PROT_READ)
        self.magic, self.version, self.kind, label = HEAD.unpack_from(self.map)
        self.label = label.split(b"\0")[0].decode()

    def look(self) -> Look:
        """What it shows now."""
        return Look(*LINE.unpack_from(self.map, LINE_AT), *MORE.unpack_from(self.map, MORE_AT))

    def ring(self) -> list[tuple[int, bool]]:
        """Transitions, the oldest first."""
        head = self.look().ring_head
        words = struct.unpack_from(f"{RING}Q", self.map, RING_AT)
        first = max(0, head - RING)
        return [(words[at % RING] >> 1, bool(words[at % RING] & 1)) for at in range(first, head)]

    def is_alive(self) -> bool:
        """Does the observer live? Its end is the connection's."""
        try:
            return self.socket.recv(1) != b""
        except BlockingIOError:
            return True
        except ConnectionError:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.map.close()
        os.close(self.descriptor)
        self.socket.close()


def main() -> None:
    with Page(Path(sys.argv[1])) as page:
        print(page.label, "disk" if page.kind == 1 else "uplink")
        while page.is_alive():
            print(page.look(), flush=True)
            time.sleep(1)


if __name__ == "__main__":
    main()

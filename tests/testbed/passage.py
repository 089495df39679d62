"""Where the probe's requests were, and when: seen at the guest's tap, and at both ends of the uplink.

    guest, QEMU | tap --bridge, queue--> up0 ~~> up1 | answerer | up1 --> up0 --bridge--> tap | QEMU, guest

The kernel stamps each packet as it passes; we read the stamps when the run is over, so looking costs it nothing but a
filter on each packet. All stamps are of one clock. What the guest measured less what is seen here is its own.
"""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack
from types import TracebackType
from typing import Callable, Iterator, Self

import numpy as np

from tests.testbed.link import FAR, Link, Tap
from tests.testbed.namespace import Namespace

ETH_P_ALL, ETH_P_IP, IPPROTO_UDP = 3, 0x0800, 17
SO_ATTACH_FILTER, SO_TIMESTAMPNS = 26, 35
SO_RCVBUFFORCE = 33
PACKET_OUTGOING = 4

NUMBER_AT = 14 + 20 + 8
"""The probe's number is the first of its message, behind Ethernet, IPv4 and UDP."""

BUFFER_BYTES = 64 << 20
"""A packet takes about 1 KB of it: more than any run has."""

STAGES = ("uplink", "far", "back")
"""From the tap to the far end; there, until the answer has left; from there to the tap."""


def _filter(port: int) -> bytes:
    """Classic BPF: IPv4 without options, UDP, from or to this port."""
    load_half, load_byte, equal, give = 0x28, 0x30, 0x15, 0x06
    program = ((load_half, 0, 0, 12), (equal, 0, 7, ETH_P_IP), (load_byte, 0, 0, 23), (equal, 0, 5, IPPROTO_UDP),
               (load_half, 0, 0, 34), (equal, 2, 0, port), (load_half, 0, 0, 36), (equal, 0, 1, port),
               (give, 0, 0, 128), (give, 0, 0, 0))
    return b"".join(struct.pack("HBBI", *each) for each in program)


def _open(device: str, program: bytes) -> Callable[[], socket.socket]:
    """What opens, in the device's namespace, a socket that gets the packets that a classic BPF program gives, with stamps."""
    def work() -> socket.socket:
        result = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        result.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        result.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        code = np.frombuffer(program, np.uint8).copy()
        result.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", len(code) // 8, code.ctypes.data))
        result.bind((device, ETH_P_ALL))
        return result

    return work


def packets(seen: socket.socket) -> Iterator[tuple[bool, bytes, int]]:
    """Whether it left the device, its first bytes, and when (CLOCK_REALTIME, ns), of each packet so far."""
    while True:
        try:
            data, control, _, address = seen.recvmsg(NUMBER_AT + 8, 64, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        seconds, nanoseconds = struct.unpack("qq", control[0][2][:16])
        yield address[2] == PACKET_OUTGOING, data, seconds * 10**9 + nanoseconds


class Watch:
    """A context manager with two sockets that see what a classic BPF program gives: at a tap, and behind the uplink."""

    def __init__(self, link: Link, tap: Tap, program: bytes) -> None:
        self._places: list[tuple[Namespace, str]] = [(link.host, tap.device), (link.sink, FAR)]
        self._program = program

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.sockets = [stack.enter_context(where.call(_open(device, self._program))) for where, device in self._places]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()


class Passage(Watch):
    """Sees the packets of the probe from a tap to the answerer at this port."""

    def __init__(self, link: Link, tap: Tap, port: int) -> None:
        super().__init__(link, tap, _filter(port))

    def stages_us(self, count: int) -> np.ndarray:
        """[request, stage] of the first so many requests; NaN where a packet was not seen."""
        times = np.full((count, 4), np.nan)
        near, far = self.sockets
        for seen, entering, leaving in ((near, 0, 3), (far, 1, 2)):
            for left, data, when_ns in packets(seen):
                number = struct.unpack_from("<Q", data, NUMBER_AT)[0]
                if number < count:
                    times[number, leaving if left else entering] = when_ns / 1000
        return np.diff(times, axis=1)

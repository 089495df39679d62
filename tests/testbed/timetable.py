"""When packets came to the uplink and when they left it: what is there to compare a schedule with the ideal one.

    guest | tap: came --bridge, queue--> up0 ~~> up1: left

The kernel stamps each packet as it passes. The ideal schedule is computed from the stamps at the foreground's tap alone: the
uplink's token bucket, with nobody else on it.
"""

from __future__ import annotations

import socket
import struct

import numpy as np

from tests.testbed.link import Link, Model, Tap
from tests.testbed.passage import ETH_P_IP, NUMBER_AT, Watch, packets

PACKETS = np.dtype([("when_ns", "<i8"), ("bytes", "<u4"), ("flow", "<u2"), ("port", "<u2"), ("number", "<u8")])
"""A packet on its way to the sink: Ethernet's bytes, source and destination port, and what netload numbers a datagram with."""

ETHERNET_BYTES, PROTOCOL_AT, IPPROTO_UDP = 14, 23, 17


def _filter(ports: tuple[int, ...]) -> bytes:
    """Classic BPF: IPv4 without options, to one of these ports."""
    load_half, equal, give = 0x28, 0x15, 0x06
    last = len(ports) - 1
    program = [(load_half, 0, 0, 12), (equal, 0, len(ports) + 2, ETH_P_IP), (load_half, 0, 0, 36)]
    program += [(equal, last - number, int(number == last), port) for number, port in enumerate(ports)]
    program += [(give, 0, 0, 128), (give, 0, 0, 0)]
    return b"".join(struct.pack("HBBI", *each) for each in program)


def _read(seen: socket.socket) -> np.ndarray:
    found = []
    for left, data, when_ns in packets(seen):
        if not left:
            length, (flow, port) = struct.unpack_from(">H", data, 16)[0], struct.unpack_from(">HH", data, 34)
            number = struct.unpack_from("<Q", data, NUMBER_AT)[0] if data[PROTOCOL_AT] == IPPROTO_UDP else 0
            found.append((when_ns, length + ETHERNET_BYTES, flow, port, number))
    return np.array(found, PACKETS)


class Timetable(Watch):
    """Sees packets to these ports of the sink, at a tap and behind the uplink."""

    def __init__(self, link: Link, tap: Tap, ports: tuple[int, ...]) -> None:
        super().__init__(link, tap, _filter(ports))

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """PACKETS that came by the tap, and those that left the uplink; each in order of time."""
        came, left = map(_read, self.sockets)
        return came, left


def ideal_ns(came: np.ndarray, model: Model) -> np.ndarray:
    """When each of these PACKETS would leave a link of this model that has no others, in ns.

    A token bucket: who finds enough tokens leaves at once; else when they have come, in order.
    """
    per_ns = model.rate_mbit / 8000
    tokens, at_ns = float(model.burst_bytes), 0
    leaves = np.empty(len(came), np.int64)
    for number, packet in enumerate(came):
        now_ns = max(int(packet["when_ns"]), at_ns)
        tokens = min(tokens + (now_ns - at_ns) * per_ns, model.burst_bytes) - int(packet["bytes"])
        at_ns = now_ns
        if tokens < 0:
            at_ns += int(np.ceil(-tokens / per_ns))
            tokens = 0.0
        leaves[number] = at_ns
    return leaves


def late_ns(came: np.ndarray, left: np.ndarray, ideal: np.ndarray) -> np.ndarray:
    """By how much each foreground packet left later than in the schedule of ideal_ns(); NaN: it was lost."""
    seen = {(int(packet["flow"]), int(packet["number"])): int(packet["when_ns"]) for packet in left}
    return np.array([seen.get((int(packet["flow"]), int(packet["number"])), np.nan) - ideal[number] for number, packet in enumerate(came)], float)


def busy_ns(came: np.ndarray, ideal: np.ndarray, model: Model) -> np.ndarray:
    """[begin, end] of each time in which the schedule of ideal_ns() has something of these PACKETS to send."""
    spans: list[list[int]] = []
    each_ns = (came["bytes"] * (8000 / model.rate_mbit)).astype(np.int64)
    for begin, end in zip(came["when_ns"].tolist(), np.maximum(ideal, came["when_ns"] + each_ns).tolist()):
        if spans and begin <= spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], end)
        else:
            spans.append([begin, end])
    return np.array(spans, np.int64).reshape(-1, 2)


def within_ns(begin_ns: np.ndarray, end_ns: np.ndarray, spans: np.ndarray) -> float:
    """How much of these times lies within spans, which are in order and apart."""
    edges = np.concatenate([[0], np.cumsum(spans[:, 1] - spans[:, 0])]).astype(float)

    def before(at_ns: np.ndarray) -> np.ndarray:
        place = np.searchsorted(spans[:, 0], at_ns, "right")
        over = np.where(place > 0, np.maximum(spans[np.maximum(place, 1) - 1, 1] - at_ns, 0), 0)
        return edges[place] - over

    return float((before(end_ns) - before(begin_ns)).sum()) if len(spans) else 0.0

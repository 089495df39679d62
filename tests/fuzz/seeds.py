#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Write the seed corpora of the fuzz targets: seeds.py DIRECTORY."""
import pathlib
import struct
import sys

NS_PER_MS = 1_000_000
BOARD_FOREGROUND, BOARD_BACKGROUND = 0, 1
LOOK, TAKE, ENTER, STARTED, DONE, WAKE, SKIP, LEAVE = range(8)
KEEP_HEADER, TENANT, SANE_TIME = 1, 2, 4
LINE, PAGE = 64, 4096


def record(flags=0, started=0, fg=0, bg=0, cap=1, last=0, now=0, held=0,
           interval=20 * NS_PER_MS, hold=5000 * NS_PER_MS):
    return struct.pack("<BQBBBqqqqq", flags, started, fg, bg, cap, last, now,
                       held, interval, hold)


def core_seeds():
    yield "burst", bytes([8]) + bytes([0, 0, 1, 2, 1, 1, 0, 3])
    yield "start", bytes([0]) + record(32, now=10**9) + record(8, now=10**9 + 1)
    yield "collision", (bytes([0]) + record(32, now=10**9) +
                        record(24, 1, 1, 1, last=10**9, now=10**9 + 1))
    yield "interval", bytes([0]) + record(0, 3, last=10**9, now=10**9 + 5)
    yield "deadline", bytes([0]) + record(32, 3, 1, now=6 * 10**9)
    yield "blind", bytes([0]) + record(1, now=10**9)
    yield "extremes", bytes([0]) + record(
        now=2**63 - 1, last=-2**63, interval=2**63 - 1, hold=2**63 - 1)


def head(flags, cap=1, interval_us=20000, hold_us=5000000, now=10**9):
    return struct.pack("<BBIIq", flags, cap, interval_us, hold_us, now)


def part(board, step, at=0, data=b"", repeat=0):
    return struct.pack("<BHB", board | step << 1 | repeat << 4, at // 8,
                       len(data)) + data


def foreground_line(in_service, last, started):
    return struct.pack("<IIqQQQ", in_service, 1, last, started, 0, 0)


def background_line(waiting, vtime, interval):
    return struct.pack("<IIQqQqQI", waiting, 0, vtime, interval, 0, 0, 0, 100)


def arena_seeds():
    high = struct.pack("<I", 1024)
    sane = KEEP_HEADER | SANE_TIME
    yield "empty", head(sane)
    yield "tenant", head(sane | TENANT) + part(0, LOOK)
    yield "busy", head(sane) + part(0, LOOK, 16 + 4, high) + part(
        0, LOOK, PAGE + LINE, foreground_line(1, 10**9, 5), 15)
    yield "waiting", head(sane) + part(1, ENTER, 16, bytes(4) + high) + part(
        1, LOOK, 2 * PAGE + LINE, background_line(1, 7, 0), 15)
    yield "tokens", head(sane, 4) + part(1, TAKE) + part(
        1, LOOK, PAGE + 8, struct.pack("<QQ", 2 << 48 | 999, 9 << 48)) + part(
        1, STARTED) + part(1, DONE)
    yield "header", head(0) + part(0, LOOK, 0, b"garbage!")
    yield "late", head(KEEP_HEADER, now=2**63 - 1) + part(0, LOOK)


VNET_10, VNET_12, VNET_20 = range(3)
GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4 = 0, 1, 4, 5
TYPE_IPV4, TYPE_IPV6, TYPE_VLAN, TYPE_ARP = 0x0800, 0x86dd, 0x8100, 0x0806
TCP, UDP, ICMPV6 = 6, 17, 58


def observed_step(at, data, later_us=1000, sane=True):
    return struct.pack("<HBBI", at, len(data), sane, later_us) + data


def observed_line(in_service, last, started, ring_head, service):
    return struct.pack("<IIqQQQq", in_service, 0, last, started, 0, ring_head, service)


OBSERVED_LINE, OBSERVED_RING = 128, 256


def observed_seeds():
    at = 10**9
    yield "empty", observed_step(0, b"")
    yield "strange", observed_step(0, b"\0", sane=False)
    yield "busy", observed_step(OBSERVED_RING, struct.pack("<Q", at << 1 | 1)) + observed_step(
        OBSERVED_LINE, observed_line(1, at, 1, 1, -at))
    yield "burst", observed_step(OBSERVED_RING, struct.pack("<QQ", at << 1 | 1, at + 5000 << 1)) + observed_step(
        OBSERVED_LINE, observed_line(0, at + 5000, 1, 2, 5000)) + observed_step(0, b"", 50000)
    yield "late", observed_step(OBSERVED_LINE, observed_line(1, at, 1, 3, -at)) + observed_step(
        OBSERVED_RING + 8, struct.pack("<Q", at << 1)) + observed_step(0, b"")
    yield "negative", observed_step(OBSERVED_LINE, observed_line(2**32 - 1, at, 1, 2**63, 2**62))


def packet_head(vnet=VNET_12, split=20, limit=1514, more=0):
    return struct.pack("<BHHH", vnet, split, limit, more)


def vnet_header(gso=GSO_NONE, segment=0, start=0, size=12):
    return struct.pack("<BBHHHH", 1 if gso else 0, gso, 0, segment, start,
                       16).ljust(size, b"\0")


def ethernet(kind, tags=()):
    frame = bytes(12)
    for tag in tags:
        frame += struct.pack(">HH", tag, 5)
    return frame + struct.pack(">H", kind)


def ipv4(protocol, rest, fragment=0):
    return struct.pack(">BBHHHBBH", 0x45, 4, 20 + rest, 1, fragment, 64,
                       protocol, 0) + bytes(8)


def ipv6(protocol, rest):
    return struct.pack(">IHBB", 0x60400000, rest, protocol, 64) + bytes(32)


def tcp():
    return struct.pack(">HHIIHHHH", 1000, 9, 1, 1, 0x5010, 0, 0, 0)


def udp(rest, source=1000, target=9):
    return struct.pack(">HHHH", source, target, 8 + rest, 0)


def packet_seeds():
    plain = packet_head() + vnet_header()
    yield "arp", plain + ethernet(TYPE_ARP) + bytes(28)
    yield "ack", plain + ethernet(TYPE_IPV4) + ipv4(TCP, 20) + tcp()
    yield "dhcp", plain + ethernet(TYPE_IPV4) + ipv4(UDP, 8) + udp(0, 68, 67)
    yield "fragment", plain + ethernet(TYPE_IPV4) + ipv4(UDP, 8, 0x2000) + udp(0)
    yield "qinq", plain + ethernet(TYPE_IPV4, (0x88a8, TYPE_VLAN)) + ipv4(
        UDP, 8) + udp(0)
    yield "discovery", plain + ethernet(TYPE_IPV6) + ipv6(ICMPV6, 24) + bytes(
        [135]) + bytes(23)
    yield "extensions", plain + ethernet(TYPE_IPV6) + ipv6(0, 24) + bytes(
        [60]) + bytes(7) + bytes([UDP]) + bytes(7) + udp(0)
    yield "tso4", packet_head(more=9000) + vnet_header(
        GSO_TCPV4, 1460, 34) + ethernet(TYPE_IPV4) + ipv4(TCP, 9020) + tcp()
    yield "tso6", packet_head(VNET_20, 60, 4000, 9000) + vnet_header(
        GSO_TCPV6, 1440, 54, 20) + ethernet(TYPE_IPV6) + ipv6(TCP, 9020) + tcp()
    yield "uso", packet_head(VNET_10, 12, 0, 5000) + vnet_header(
        GSO_UDP_L4, 1200, 34, 10) + ethernet(TYPE_IPV4) + ipv4(
            UDP, 5008) + udp(5000)


def main():
    root = pathlib.Path(sys.argv[1])
    for target, seeds in (("core", core_seeds), ("arena", arena_seeds), ("observed", observed_seeds),
                          ("packet", packet_seeds)):
        folder = root / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in seeds():
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()

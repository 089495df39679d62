# SPDX-License-Identifier: GPL-2.0-or-later
"""Watches by which ways packets leave this host: when they change, resources are looked up again.

The kernel says that links, routes or rules have changed, not what that means: what was resolved depends on is read
and compared. So the taps of VMs that start, or a routing daemon at work, cost a look a second and no more.
Context: the event loop; the look itself runs in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Hashable

from ..resolve.net import Uplinks
from ..resolve.tree import Tree

SETTLE_SECONDS = 1.0
"""One change of routes is many messages."""

# linux/rtnetlink.h: RTMGRP_LINK, RTMGRP_IPV4_ROUTE, RTMGRP_IPV4_RULE, RTMGRP_IPV6_ROUTE, and RTNLGRP_IPV6_RULE
_GROUPS = 0x1 | 0x40 | 0x80 | 0x400 | 1 << (19 - 1)
_READ_BYTES = 65536

log = logging.getLogger("idletimed")


def look() -> Hashable:
    """What the resources of uplinks depend on, now."""
    return Uplinks(Tree("/")).ways_out()


class Watch:
    """Calls changed() when what look() returns has changed; where the kernel tells nothing, never."""

    def __init__(self, changed: Callable[[], None], look: Callable[[], Hashable] = look) -> None:
        self._changed, self._look = changed, look
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._socket: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None
        try:
            self._listen()
        except OSError as error:
            log.warning("changes of routes are not seen (%s): domains are looked at every resync-seconds", error)
            return
        self._task = asyncio.create_task(self._follow())

    def _listen(self) -> None:
        kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        self._socket = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)
        self._socket.bind((0, _GROUPS))
        self._loop.add_reader(self._socket, self._drain)

    def close(self) -> None:
        """Watch no more."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        if self._task is not None:
            self._task.cancel()

    def _drain(self) -> None:
        """Messages only wake; that some were lost (ENOBUFS) is a message, too."""
        assert self._socket is not None
        with contextlib.suppress(OSError):
            while self._socket.recv(_READ_BYTES):
                pass
        self._wake.set()

    async def _follow(self) -> None:
        known = await self._looked()
        while True:
            await self._wake.wait()
            await asyncio.sleep(SETTLE_SECONDS)
            self._wake.clear()
            now = await self._looked()
            if now != known:
                known = now
                log.info("the ways out of this host have changed: all domains are looked at")
                self._changed()

    async def _looked(self) -> Hashable:
        try:
            return await asyncio.to_thread(self._look)
        except Exception:  # whatever it is, the next change is seen
            log.exception("a fault of ours; going on")
            return None

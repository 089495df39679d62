# SPDX-License-Identifier: GPL-2.0-or-later
"""Tells systemd how it goes: sd_notify(3)."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(**said: str) -> None:
    """READY="1", STATUS="...", WATCHDOG="1". Without systemd nobody hears it."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if not where:
        return
    address = "\0" + where[1:] if where.startswith("@") else where
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
        to.sendto("\n".join(f"{name}={value}" for name, value in said.items()).encode(), address)

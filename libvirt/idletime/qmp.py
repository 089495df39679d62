# SPDX-License-Identifier: GPL-2.0-or-later
"""QMP commands to a running domain, through libvirt's qemu-monitor-command."""

from __future__ import annotations

from typing import Any


class Monitor:
    """The monitor of one running domain. Not thread-safe; libvirt serialises the commands of one domain.

    libvirt marks the domain as tainted (custom-monitor). A read-only connection is refused by libvirt.
    """

    def __init__(self, domain: Any):
        """domain: libvirt.virDomain, active, of a read-write connection to a QEMU driver."""
        self._domain = domain

    def command(self, name: str, **arguments: Any) -> Any:
        """Send a command; "_" in argument names becomes "-". Returns QMP's "return". Raises MonitorError."""
        raise NotImplementedError

    def query(self) -> list[dict[str, Any]]:
        """query-idletime: one dictionary a resource, as in qapi/idletime.json."""
        return self.command("query-idletime")

# SPDX-License-Identifier: GPL-2.0-or-later
"""QMP commands to a running domain, through libvirt's qemu-monitor-command."""

from __future__ import annotations

import json
from typing import Any

from .errors import MonitorError

UNKNOWN_COMMAND = "CommandNotFound"


class Monitor:
    """The monitor of one running domain. Not thread-safe; libvirt serialises the commands of one domain.

    libvirt marks the domain as tainted (custom-monitor). A read-only connection is refused by libvirt.
    """

    def __init__(self, domain: Any):
        """domain: libvirt.virDomain, active, of a read-write connection to a QEMU driver."""
        self._domain = domain

    def command(self, name: str, **arguments: Any) -> Any:
        """Send a command; "_" in argument names becomes "-", one at the end is dropped (class_).

        Returns QMP's "return". Raises MonitorError.
        """
        return self.execute(name, {key.rstrip("_").replace("_", "-"): value for key, value in arguments.items()})

    def execute(self, name: str, arguments: dict[str, Any]) -> Any:
        """The same with arguments by their QMP names."""
        request: dict[str, Any] = {"execute": name}
        if arguments:
            request["arguments"] = arguments
        answer = json.loads(self._send(json.dumps(request)))
        if "error" in answer:
            raise MonitorError(f"QEMU refused {name}: {answer['error'].get('desc', 'no reason given')}",
                               answer["error"].get("class", "GenericError"))
        return answer.get("return")

    def _send(self, text: str) -> str:
        import libvirt  # late: what only compiles needs no libvirt
        import libvirt_qemu
        try:
            return str(libvirt_qemu.qemuMonitorCommand(self._domain, text, 0))
        except libvirt.libvirtError as error:
            raise MonitorError(f"libvirt refused a monitor command: {error.get_error_message()}") from error

    def query(self) -> list[dict[str, Any]]:
        """query-idletime: one dictionary a resource, as in qapi/idletime.json."""
        return list(self.command("query-idletime"))

# SPDX-License-Identifier: GPL-2.0-or-later
"""A QEMU as seen through its monitor: keeps resources and devices, answers and obeys as qapi/idletime.json says."""

from __future__ import annotations

import copy
import json
from typing import Any

from idletime.errors import MonitorError
from idletime.live import AUTO_DEFAULTS, DEFAULTS
from idletime.qmp import Monitor


def device(name: str, class_: str = "background", queues: str = "", held: int = 0) -> dict[str, Any]:
    traffic = {"requests": 10, "bytes": 40960}
    return {
        "device": name,
        "class": class_,
        "background-queues": queues,
        "participants": 1,
        "foreground": traffic,
        "background": traffic,
        "passed": 0,
        "held": held,
        "in-service": 0,
        "pieces": 0,
        "promotions": {"deadline": 1, "flush": 2, "journal": 0, "ring": 0, "class-change": 0},
        "waits": {},
        "hold": {},
    }


def resource(name: str, devices: list[dict[str, Any]], state: str = "idle", **settings: int) -> dict[str, Any]:
    return {
        "id": f"idletime-{name}",
        "path": f"/run/idletime/{name}",
        "state": state,
        **DEFAULTS,
        **AUTO_DEFAULTS,
        **{key.replace("_", "-"): value for key, value in settings.items()},
        "held": sum(one["held"] for one in devices),
        "collisions": 3,
        "collision-cost-us": 900,
        "devices": devices,
    }


class FakeMonitor(Monitor):
    """Obeys object-add and idletime-set; refuses what QEMU refuses."""

    def __init__(self, resources: list[dict[str, Any]]):
        super().__init__(None)
        self.resources = resources
        self.sent: list[str] = []

    def _send(self, text: str) -> str:
        request = json.loads(text)
        self.sent.append(request["execute"])
        try:
            answer = getattr(self, "do_" + request["execute"].replace("-", "_"))(request.get("arguments", {}))
        except (KeyError, AttributeError) as error:
            return json.dumps({"error": {"class": "GenericError", "desc": f"refused: {error}"}})
        return json.dumps({"return": answer})

    def do_query_idletime(self, _arguments: dict[str, Any]) -> list[dict[str, Any]]:
        return copy.deepcopy(self.resources)

    def do_object_add(self, arguments: dict[str, Any]) -> dict[str, Any]:
        settings = {key: value for key, value in arguments.items() if key not in ("qom-type", "id", "path")}
        self.resources.append({**resource("", []), "id": arguments["id"], "path": arguments["path"], **settings})
        return {}

    def do_idletime_set(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if "device" in arguments:
            found = {one["device"]: one for each in self.resources for one in each["devices"]}[arguments["device"]]
        else:
            found = {one["id"]: one for one in self.resources}[arguments["resource"]]
        for key in arguments.keys() - {"device", "resource"}:
            found[key]
            found[key] = arguments[key]
        return {}


class DeadMonitor(Monitor):
    """A domain whose QEMU is stock."""

    def _send(self, text: str) -> str:
        error = {"class": "CommandNotFound", "desc": "The command query-idletime has not been found"}
        return json.dumps({"error": error})


class LockedMonitor(Monitor):
    """libvirt refuses."""

    def _send(self, text: str) -> str:
        raise MonitorError("libvirt refused a monitor command: operation forbidden for read only access")

# SPDX-License-Identifier: GPL-2.0-or-later
"""A QEMU as seen through its monitor: keeps resources and devices, answers and obeys as qapi/idletime.json says."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from idletime.errors import MonitorError
from idletime.qmp import UNKNOWN_COMMAND
from idletime.steps import AUTO_DEFAULTS, DEFAULTS


def device(name: str, class_: str = "background", queues: str = "", held: int = 0, detaching: bool = False,
           dscp: str | None = None) -> dict[str, Any]:
    """dscp: of a network device."""
    traffic = {"requests": 10, "bytes": 40960}
    return {
        **({} if dscp is None else {"dscp": dscp}),
        "device": name,
        "class": class_,
        "detaching": detaching,
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


def job(name: str, requests: int = 10, held: int = 0, detaching: bool = False) -> dict[str, Any]:
    """A block job that is attached; half of its chunks waited."""
    return {
        "id": name,
        "detaching": detaching,
        "background": {"requests": requests, "bytes": requests << 20},
        "held": held,
        "in-service": 0,
        "promotions": {"deadline": 1},
        "waits": {},
        "hold": {"boundaries-us": [1000], "bins": [requests // 2, 0], "max-us": 900, "drained-us": 0},
    }


def running_job(name: str, type_: str = "backup", status: str = "running", done: int = 0, total: int = 100) -> dict[str, Any]:
    """As query-block-jobs tells of one."""
    return {"device": name, "type": type_, "status": status, "offset": done, "len": total, "speed": 0, "busy": True,
            "paused": False, "ready": False, "io-status": "ok", "auto-finalize": True, "auto-dismiss": True}


def running_export(name: str, node: str, type_: str = "nbd", ending: bool = False) -> dict[str, Any]:
    """As query-block-exports tells of one."""
    return {"id": name, "type": type_, "node-name": node, "shutting-down": ending}


def image(*names: str) -> dict[str, Any]:
    """An ImageInfo: a chain of images, from its top down."""
    below = {"backing-image": image(*names[1:])} if len(names) > 1 else {}
    return {"filename": names[0], "format": "qcow2", "virtual-size": 1 << 30, **below}


def resource(name: str, devices: list[dict[str, Any]], state: str = "idle", **settings: int) -> dict[str, Any]:
    return {
        "id": f"idletime-{name}",
        "path": f"/run/idletime/{name}",
        "state": state,
        **DEFAULTS,
        **AUTO_DEFAULTS,
        "auto": False,
        **{key.replace("_", "-"): value for key, value in settings.items()},
        "held": sum(one["held"] for one in devices),
        "collisions": 3,
        "collision-cost-us": 900,
        "devices": devices,
        "jobs": [],
        "exports": [],
        "migrations": [],
    }


class FakeQemu:
    """A Monitor. there: ids of its devices; busy: those that hold requests, and so are not detached at once; refused: those
    that refuse to be attached; unknown: commands that it does not know."""

    def __init__(self, resources: Iterable[dict[str, Any]] = (), there: Iterable[str] = (), busy: Iterable[str] = (),
                 refused: Iterable[str] = (), unknown: Iterable[str] = ()):
        self.resources = {one["id"]: one for one in resources}
        self.there, self.busy, self.refused, self.unknown = set(there), set(busy), set(refused), set(unknown)
        self.there |= {one["device"] for each in self.resources.values() for one in each["devices"]}
        self.sent: list[str] = []
        self.jobs: list[dict[str, Any]] = []  # that run
        self.exports: list[dict[str, Any]] = []
        self.nodes: dict[str, dict[str, Any]] = {}  # ImageInfo, by name
        self.disks: dict[str, dict[str, Any]] = {}  # the same, by alias
        self.migration: dict[str, Any] = {}  # of query-migrate
        self.diverges = False

    @property
    def changes(self) -> list[str]:
        """What was sent that is no question, since this was asked last."""
        sent, self.sent = self.sent, []
        return [one for one in sent if one.startswith(("object-", "idletime-"))]

    @property
    def state(self) -> dict[str, tuple[str, str, str]]:
        """Of each device: resource, class, queues."""
        return {one["device"]: (id_.removeprefix("idletime-"), one["class"], one["background-queues"])
                for id_, each in self.resources.items() for one in each["devices"]}

    def execute(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        arguments = arguments or {}
        subject = next((arguments[key] for key in ("job", "export", "device", "id", "resource") if key in arguments), None)
        subject = "migration" if arguments.get("migration") is True else subject
        self.sent.append(f"{name} {subject}" if subject else name)
        if name in self.unknown:
            raise MonitorError(f"QEMU refused {name}: The command {name} has not been found", UNKNOWN_COMMAND)
        found = getattr(self, "do_" + name.replace("-", "_"))(arguments)
        return {} if found is None else found

    @property
    def attached_jobs(self) -> dict[str, str]:
        """Of each job that is attached: its resources."""
        found: dict[str, str] = {}
        for id_, each in sorted(self.resources.items()):
            for one in each["jobs"]:
                found[one["id"]] = f"{found.get(one['id'], '')} {id_.removeprefix('idletime-')}".strip()
        return found

    @property
    def attached_exports(self) -> dict[str, str]:
        return {one["id"]: id_.removeprefix("idletime-") for id_, each in self.resources.items() for one in each["exports"]}

    @property
    def attached_migration(self) -> list[str]:
        """Resources that migration is attached to."""
        return [id_.removeprefix("idletime-") for id_, each in self.resources.items() if each["migrations"]]

    def ended(self, name: str) -> None:
        """A job has ended."""
        self.jobs = [one for one in self.jobs if one["device"] != name]
        for each in self.resources.values():
            each["jobs"] = [one for one in each["jobs"] if one["id"] != name]

    def left(self) -> None:
        """What was held has left: devices and jobs that were detaching are detached."""
        self.busy = set()
        for each in self.resources.values():
            for kind in ("jobs", "exports", "migrations"):
                each[kind] = [one for one in each[kind] if not one["detaching"]]
            each["devices"] = [one for one in each["devices"] if not one["detaching"]]

    def do_query_idletime(self, _arguments: dict[str, Any]) -> list[dict[str, Any]]:
        said = copy.deepcopy(list(self.resources.values()))
        for one in said:
            one["migrations"] = [{**each, "bandwidth": 0, "diverges": self.diverges} for each in one["migrations"]]
        return said

    def do_object_add(self, arguments: dict[str, Any]) -> None:
        settings = {key: value for key, value in arguments.items() if key not in ("qom-type", "id", "path")}
        if arguments["id"] in self.resources or arguments["path"] in [one["path"] for one in self.resources.values()]:
            raise MonitorError(f"QEMU refused object-add: '{arguments['id']}' is there")
        settings.setdefault("auto", "interval-us" not in settings)
        self.resources[arguments["id"]] = {**resource("", []), "id": arguments["id"], "path": arguments["path"], **settings}

    def do_object_del(self, arguments: dict[str, Any]) -> None:
        if any(self.resources[arguments["id"]][kind] for kind in ("devices", "jobs", "exports", "migrations")):
            raise MonitorError("QEMU refused object-del: it is in use")
        del self.resources[arguments["id"]]

    def do_idletime_attach(self, arguments: dict[str, Any]) -> None:
        if "job" in arguments:
            self._attach_job(arguments["job"], arguments)
            return
        if "export" in arguments:
            assert arguments["export"] in [one["id"] for one in self.exports] and arguments["class"] == "background"
            self.resources[arguments["resource"]]["exports"].append(job(arguments["export"]))
            return
        if arguments.get("migration") is True:
            assert not self.attached_migration and arguments["class"] == "background"
            self.resources[arguments["resource"]]["migrations"].append(job("outgoing"))
            return
        name = arguments["device"]
        if name not in self.there or name in self.state or name in self.refused:
            raise MonitorError(f"QEMU refused idletime-attach: '{name}' is not there, attached, or cannot be")
        self.resources[arguments["resource"]]["devices"].append(
            device(name, arguments.get("class", "foreground"), arguments.get("background-queues", ""),
                   dscp=arguments.get("dscp", "1") if name.startswith("net") else None))

    def _attach_job(self, name: str, arguments: dict[str, Any]) -> None:
        there = [one["device"] for one in self.jobs if one["status"] in ("running", "paused", "ready", "standby")]
        on = self.resources[arguments["resource"]]["jobs"]
        if name not in there or any(one["id"] == name for one in on) or name in self.refused or \
                arguments["class"] != "background":
            raise MonitorError(f"QEMU refused idletime-attach: no job has the id '{name}'")
        on.append(job(name))

    def do_query_block_jobs(self, _arguments: dict[str, Any]) -> list[dict[str, Any]]:
        return copy.deepcopy(self.jobs)

    def do_query_migrate(self, _arguments: dict[str, Any]) -> dict[str, Any]:
        return copy.deepcopy(self.migration)

    def do_query_block_exports(self, _arguments: dict[str, Any]) -> list[dict[str, Any]]:
        return copy.deepcopy(self.exports)

    def do_query_named_block_nodes(self, _arguments: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"node-name": name, "image": each} for name, each in self.nodes.items()]

    def do_query_block(self, _arguments: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"device": "", "qdev": "/machine/peripheral/cdrom0/ide.0"},
                *({"device": "", "qdev": f"/machine/peripheral/{alias}/virtio-backend", "inserted": {"image": each}}
                  for alias, each in self.disks.items())]

    def do_idletime_detach(self, arguments: dict[str, Any]) -> None:
        ((kind, name),) = arguments.items()
        if kind == "device":
            self._device(name)["detaching"] = True
        else:
            name = "outgoing" if kind == "migration" else name
            found = [one for each in self.resources.values() for one in each[f"{kind}s"] if one["id"] == name]
            assert found
            for one in found:
                one["detaching"] = True
        if name not in self.busy:
            busy, self.busy = self.busy, set()
            self.left()
            self.busy = busy

    def do_idletime_set(self, arguments: dict[str, Any]) -> None:
        found = self._device(arguments["device"]) if "device" in arguments else self.resources[arguments["resource"]]
        if found.get("detaching"):
            raise MonitorError("QEMU refused idletime-set: it is being detached")
        for key in arguments.keys() - {"device", "resource"}:
            assert key in found
            found[key] = arguments[key]

    def _device(self, name: str) -> dict[str, Any]:
        for each in self.resources.values():
            for one in each["devices"]:
                if one["device"] == name:
                    return one
        raise MonitorError(f"QEMU refused it: device '{name}' is attached to nothing")


def stock() -> FakeQemu:
    """A QEMU that does not know us."""
    return FakeQemu(unknown=("query-idletime", "object-add", "idletime-attach", "idletime-detach", "idletime-set"))

# SPDX-License-Identifier: GPL-2.0-or-later
"""Events of one QEMU as stretches of time, and moments. Pure.

    event                          is
    idletime_gate_started          the end of `held`: it began held_ns before, when the guest's request came
    idletime_gate_done             the end of `in service`, or of `collision`: it began service_ns before, with the release
    virtio_blk_handle_read, _write the beginning of a foreground request; of one that was held it says nothing new
    virtio_blk_req_complete        its end
    virtio_scsi_cmd_req, _resp     a command of a SCSI disk, held or not, from when it came until it was done
    all others                     a moment

So no event has to be found again for another but those of a foreground request, which have its address, and of a command, which
have its tag; a log may begin and end anywhere. A request that is cut into pieces has one `held` and one `in service` a piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .log import Event

HELD, SERVICE, COLLISION, SCSI = "held", "in service", "collision", "scsi"
SECTOR = 512

_COMMANDS = {0x08: "read", 0x28: "read", 0x88: "read", 0xa8: "read", 0x0a: "write", 0x2a: "write", 0x8a: "write", 0xaa: "write",
             0x35: "flush", 0x91: "flush", 0x42: "discard", 0x41: "write same", 0x93: "write same"}
"""Operation codes of SCSI (SBC-4)."""


@dataclass(frozen=True)
class Slice:
    """track: what it is drawn beside. end_us None: a moment."""

    track: str
    name: str
    begin_us: float
    end_us: float | None = None
    values: dict[str, str | int | bool] = field(default_factory=dict)


def slices(events: Iterable[Event]) -> Iterator[Slice]:
    """In the order of their ends."""
    held: set[str] = set()
    open_: dict[str, Event] = {}
    for one in events:
        values = one.values
        if one.name == "idletime_gate_started":
            yield _held(one)
        elif one.name == "idletime_gate_done":
            yield _served(one)
        elif one.name == "virtio_blk_idletime_hold":
            held.add(values["req"])
        elif one.name in ("virtio_blk_handle_read", "virtio_blk_handle_write"):
            if values["req"] not in held:
                open_[values["req"]] = one
        elif one.name == "virtio_blk_req_complete":
            held.discard(values["req"])
            if (began := open_.pop(values["req"], None)) is not None:
                yield _foreground(began, one)
        elif one.name == "virtio_scsi_cmd_req":
            open_[values["lun"] + values["tag"]] = one
        elif one.name == "virtio_scsi_cmd_resp":
            if (began := open_.pop(values["lun"] + values["tag"], None)) is not None:
                yield _command(began, one)
        else:
            yield Slice("events", one.name, one.at_us, None, {**values})


def _held(one: Event) -> Slice:
    promoted = one.values["promoted"] == "1"
    return Slice(f"{one.values['label']} {HELD}", f"{HELD}, promoted" if promoted else HELD,
                 one.at_us - int(one.values["held_ns"]) / 1000, one.at_us,
                 {"bytes": int(one.values["bytes"]), "promoted": promoted})


def _served(one: Event) -> Slice:
    collision = one.values["collision"] == "1"
    return Slice(f"{one.values['label']} {SERVICE}", COLLISION if collision else SERVICE,
                 one.at_us - int(one.values["service_ns"]) / 1000, one.at_us, {"collision": collision})


def _command(began: Event, ended: Event) -> Slice:
    code = began.values["command"]
    return Slice(SCSI, _COMMANDS.get(int(code, 16), code), began.at_us, ended.at_us,
                 {"lun": int(began.values["lun"]), "tag": began.values["tag"], "status": ended.values["status"]})


def _foreground(began: Event, ended: Event) -> Slice:
    values = began.values
    return Slice("foreground", began.name.removeprefix("virtio_blk_handle_"), began.at_us, ended.at_us,
                 {"bytes": int(values["nsectors"]) * SECTOR, "sector": int(values["sector"]), "vdev": values["vdev"],
                  "status": int(ended.values["status"])})

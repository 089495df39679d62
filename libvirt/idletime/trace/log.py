# SPDX-License-Identifier: GPL-2.0-or-later
"""Lines of QEMU's trace backend "log" as events. Pure. What is no event of FORMATS is passed over, as a log has other lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

_LINE = re.compile(r"(?P<thread>\d+)@(?P<s>\d+)\.(?P<us>\d{6}):(?P<name>\w+) ?(?P<rest>.*)")
_BARE = re.compile(r"(idletime|virtio_blk|virtio_scsi)_\w+ .*")

FORMATS: Mapping[str, str] = {
    "idletime_gate_started": "participant {label} bytes {bytes} held_ns {held_ns} promoted {promoted}",
    "idletime_gate_done": "participant {label} service_ns {service_ns} collision {collision}",
    "idletime_gate_claim": "participant {label} board {board} slot {slot}",
    "idletime_resource_set": "resource {resource} property {property} value {value}",
    "idletime_resource_lost": "resource {resource} path {path}",
    "idletime_resource_found": "resource {resource} path {path}",
    "idletime_observer_came": "resource {resource}",
    "idletime_observer_died": "resource {resource}",
    "idletime_device_class": "device {device} class {class} background-queues '{queues}'",
    "idletime_device_detach": "device {device}: detaching",
    "idletime_device_detached": "device {device}: detached",
    "idletime_device_aside": "req {req}",
    "idletime_work_attach": "{kind} {id} resource {resource}",
    "idletime_work_detach": "{kind} {id}: detaching",
    "idletime_work_detached": "{kind} {id}: detached",
    "idletime_migration_chunk": "{bytes} bytes in {took_ns} ns",
    "idletime_migration_pass": "pass {passes}: {written} bytes/s written, {left} left",
    "virtio_blk_idletime_hold": "vdev {vdev} req {req} queue {queue}",
    "virtio_blk_handle_read": "vdev {vdev} req {req} sector {sector} nsectors {nsectors}",
    "virtio_blk_handle_write": "vdev {vdev} req {req} sector {sector} nsectors {nsectors}",
    "virtio_blk_req_complete": "vdev {vdev} req {req} status {status}",
    "virtio_scsi_cmd_req": "virtio_scsi_cmd_req lun={lun} tag={tag} cmd={command}",
    "virtio_scsi_cmd_resp": "virtio_scsi_cmd_resp lun={lun} tag={tag} response={response} status={status}",
}
"""As the trace-events files of the source have them."""

_PATTERNS = {name: re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.*)", re.escape(form))) for name, form in FORMATS.items()}


class NoTimes(ValueError):
    """The log has events, but does not say when they were."""


@dataclass(frozen=True)
class Event:
    """at_us: since 1970, by the host's clock."""

    at_us: int
    thread: int
    name: str
    values: Mapping[str, str]


def events(lines: Iterable[str]) -> Iterator[Event]:
    """In the order of the log. Raises NoTimes where there is none with a time."""
    timed, bare = False, False
    for line in lines:
        found = _LINE.fullmatch(line.strip())
        if found is None:
            bare = bare or _BARE.fullmatch(line.strip()) is not None
            continue
        timed = True
        pattern = _PATTERNS.get(found["name"])
        values = pattern.fullmatch(found["rest"]) if pattern else None
        if values is not None:
            yield Event(int(found["s"]) * 1_000_000 + int(found["us"]), int(found["thread"]), found["name"], values.groupdict())
    if bare and not timed:
        raise NoTimes

# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan and policy -> the elements that a domain should have. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..policy.model import Control, CpuClass, Policy
from ..xmltext import Element
from .devices import get
from .result import DevicePlan, Plan, ResourcePlan

CHANNEL = "org.idletime.agent.0"
MIN_SHARES = 2
"""The smallest that libvirt accepts in a domain's XML (tested). It is 2 of 1,024 on cgroup v1, and 2 of 100 on v2, where
libvirt takes it for cpu.weight: ten times as much. Less on v2 (weight 1, cpu.idle) cannot be had from libvirt: a live
weight of 1 would be in the XML of a migration, which the other libvirt refuses.
"""


@dataclass(frozen=True)
class Want:
    """An element that should be there.

    key: path and attribute that tell it from others of its name, such as "@alias" or "target/@name"; "": any element
    of the name counts as it, as it does with foreign "keep". option: a qemu:arg in front of it. foreign: what to do
    if the domain has it already and it is not ours: "keep" with a warning, "use" without one, or "refuse".
    """

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: tuple[Want, ...] = ()
    text: str = ""
    key: str = ""
    option: str = ""
    foreign: str = "use"
    whole: bool = False  # the children belong to it: it comes and goes as one


def wanted(root: Element, policy: Policy, plan: Plan) -> list[Want]:
    """Children of <domain>, in the order in which they are added."""
    wants = [Want("memtune", children=_memory(policy)), Want("cputune", children=_processor(root, policy)),
             Want("devices", children=_channel(policy)),
             Want("qemu:commandline", children=(*map(_object, plan.resources), *_globals(plan.hotplug))),
             Want("qemu:override", children=tuple(map(_override, plan.devices)))]
    return [want for want in wants if want.children]


# ---- native elements

def _memory(policy: Policy) -> tuple[Want, ...]:
    if policy.soft_limit_bytes is None:
        return ()
    return (Want("soft_limit", {"unit": "KiB"}, text=str(policy.soft_limit_bytes // 1024), foreign="keep"),)


def _processor(root: Element, policy: Policy) -> tuple[Want, ...]:
    if policy.cpu is None:
        return ()
    shares = Want("shares", text=str(MIN_SHARES), foreign="keep")
    if policy.cpu is CpuClass.MINIMAL:
        return (shares,)
    idle = {"scheduler": "idle"}
    vcpus = int((root.findtext("vcpu") or "1").strip())
    # A scheduling class counts within its cgroup only, and libvirt gives each domain one: the share counts between them.
    wants = [shares, Want("vcpusched", {"vcpus": _range(range(vcpus)), **idle}, key="@scheduler", foreign="keep"),
             Want("emulatorsched", idle, key="@scheduler", foreign="keep")]
    iothreads = iothread_ids(root)
    if iothreads:
        wants.append(Want("iothreadsched", {"iothreads": _range(iothreads), **idle}, key="@scheduler",
                          foreign="keep"))
    return tuple(wants)


def iothread_ids(root: Element) -> list[int]:
    """Ids of the domain's I/O threads: those that are named, and the lowest free ones up to their number."""
    ids = {int(thread.get("id", "0")) for thread in root.findall("./iothreadids/iothread")}
    count = max(int((root.findtext("iothreads") or "0").strip()), len(ids))
    free = (number for number in range(1, count + len(ids) + 1) if number not in ids)
    while len(ids) < count:
        ids.add(next(free))
    return sorted(ids)


def numbers_of(text: str) -> list[int]:
    """0-2,5 -> 0, 1, 2, 5."""
    pairs = [part.partition("-") for part in text.split(",")]
    return [number for first, _, last in pairs for number in range(int(first), int(last or first) + 1)]


def _range(numbers: Iterable[int]) -> str:
    """0,1,2,5 -> 0-2,5."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in parts)


def _channel(policy: Policy) -> tuple[Want, ...]:
    if policy.control is Control.NONE:
        return ()
    target = Want("target", {"type": "virtio", "name": CHANNEL})
    return (Want("channel", {"type": "unix"}, (target,), key="target/@name", whole=True),)


# ---- QEMU's elements

def _object(resource: ResourcePlan) -> Want:
    return Want("qemu:arg", {"value": object_option(resource)}, key="@value", option="-object", foreign="refuse")


def object_option(resource: ResourcePlan) -> str:
    """The value of -object. A comma in a value is written twice."""
    values = {"id": resource.id, "path": resource.path, **{
        name: {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value
        for name, value in resource.properties.items()}}
    return "idletime-resource," + ",".join(f"{name}={str(value).replace(',', ',,')}" for name, value in values.items())


def _globals(hotplug: tuple[DevicePlan, ...]) -> list[Want]:
    return [Want("qemu:arg", {"value": f"{_base(device)}.{name}={value}"}, key="@value", option="-global")
            for device in hotplug for name, value in device_properties(device).items()]


def _base(device: DevicePlan) -> str:
    return "virtio-blk-device" if device.kind == "disk" else "virtio-net-device"


def device_properties(device: DevicePlan) -> dict[str, str]:
    """Properties of a device by QEMU's names."""
    properties = {"idletime": device.resource, "idletime-class": device.class_.value}
    if device.queues:
        properties["idletime-background-queues"] = device.queues
    if device.dscp is not None:
        properties["idletime-dscp"] = device.dscp
    return properties


def _override(device: DevicePlan) -> Want:
    properties = tuple(Want("qemu:property", {"name": name, "type": "string", "value": value}, key="@name",
                            foreign="refuse") for name, value in device_properties(device).items())
    return Want("qemu:device", {"alias": device.alias}, (Want("qemu:frontend", children=properties),), key="@alias")


def channel_of(root: Element) -> str:
    """Socket of the agent's channel in live XML; "" if there is none."""
    for channel in root.findall("./devices/channel"):
        if get(channel, "target", "name") == CHANNEL:
            return get(channel, "source", "path")
    return ""

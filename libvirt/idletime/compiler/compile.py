# SPDX-License-Identifier: GPL-2.0-or-later
"""The ways in: compile, decompile, compile_device, plan."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lxml import etree

from ..errors import Finding, Kind, PolicyError, Severity
from ..policy.model import Class, DevicePolicy, Policy
from ..policy.parse import parse_tree
from ..xmltext import Document, Element
from .choose import choose
from .devices import OURS, USER_ALIAS, DeviceFacts, devices_of, get
from .facts import HostFacts
from .merge import QEMU, Merge
from .result import CompileResult, Plan
from .same import same
from .unmerge import record_of, unmerge
from .want import Want, wanted

_VHOST_TYPES = ("bridge", "network", "direct", "ethernet")


def compile(domain_xml: str, host: HostFacts) -> CompileResult:
    """Compile a domain's policy into native elements and qemu: elements. Pure.

    compile(compile(x).xml).xml == compile(x).xml, byte for byte. A domain without a policy comes back as it was
    before it was first compiled, byte for byte. Foreign elements, comments and formatting stay.
    Raises PolicyError (Kind.SYNTAX: XML or policy is wrong; Kind.FIT: does not fit domain or host).
    """
    given = document = _document(domain_xml)
    policy = parse_tree(document.root)
    if record_of(document.root) is not None:
        document = Document(unmerge(document))
    if policy is None:
        return CompileResult(document.render(), None, Plan())
    _check_domain(document.root)
    devices = devices_of(document.root)
    aliases = {device.label: _alias(device, document.root) for device in devices}
    plan, findings = choose(policy, devices, host, aliases)
    _raise_errors(findings)
    merge = Merge(document)
    _attach(merge, devices, plan)
    merge.add(document.root, "", wanted(document.root, policy, plan))
    _check_foreign_objects(document.root, plan, merge)
    _raise_errors(findings + merge.findings)
    metadata = document.root.find("metadata")
    assert metadata is not None, "the policy is in it"
    merge.finish(metadata, empty=bool(plan.unresolved))
    xml = document.render()
    if given is not document and same(Document(xml).root, given.root):
        xml = domain_xml  # it is compiled already; libvirt has put it in another order
    return CompileResult(xml, policy, plan, tuple(findings + merge.findings))


def decompile(domain_xml: str) -> str:
    """The domain without what compile() added; the policy stays. Pure. Raises PolicyError (Kind.SYNTAX)."""
    return unmerge(_document(domain_xml))


def compile_device(device_xml: str, domain_xml: str, host: HostFacts) -> CompileResult:
    """The same for the XML of one device that is to be plugged in (virsh attach-device). Pure.

    result.xml is the device, with an alias and, where its class needs it, with <driver name='qemu'/>.
    result.plan.devices is what to set live when it is there (live.apply): libvirt gives a device that is plugged
    in no properties of ours, it has the domain's default (Plan.hotplug).
    """
    policy = parse_tree(_document(domain_xml).root)
    document = Document(device_xml)
    devices = devices_of(document.root)
    if policy is None or not devices:
        return CompileResult(device_xml, policy, Plan())
    aliases = {device.label: _alias(device, document.root) for device in devices}
    plan, findings = choose(_only(policy, devices), devices, host, aliases)
    _raise_errors(findings)
    _attach(Merge(document), devices, plan)
    return CompileResult(document.render(), policy, plan, tuple(findings))


def plan(domain_xml: str, host: HostFacts) -> Plan:
    """What a *running* domain should have, from its live XML (aliases as libvirt assigned them). Pure.

    The policy may name devices that are not plugged in now. Raises as compile().
    """
    root = _document(domain_xml).root
    policy = parse_tree(root)
    if policy is None:
        return Plan()
    devices = devices_of(root)
    aliases = {device.label: device.alias or device.predicted for device in devices}
    result, findings = choose(policy, devices, host, aliases, absent=Severity.NOTE)
    _raise_errors(findings)
    return result


def root_name(xml: str) -> str:
    """Name of the root element: "domain", "disk", "policy". Raises PolicyError (Kind.SYNTAX). Pure."""
    return str(etree.QName(Document(xml).root).localname)


# ---- parts

def _document(xml: str) -> Document:
    document = Document(xml)
    if document.root.tag not in ("domain", "domainstatus"):
        raise PolicyError([Finding(Severity.ERROR, Kind.SYNTAX, f"the XML is a '{document.root.tag}', not a domain",
                                   "give a domain, such as 'virsh dumpxml --inactive DOMAIN' prints it",
                                   line=document.root.sourceline)])
    return document


def _check_domain(root: Element) -> None:
    if root.get("type") not in ("kvm", "qemu", "hvf"):
        raise PolicyError([Finding(Severity.ERROR, Kind.FIT, f"type='{root.get('type')}' is not QEMU",
                                   "remove the policy, or use type='kvm' or type='qemu'", "domain", root.sourceline)])


def _raise_errors(findings: Sequence[Finding]) -> None:
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise PolicyError(findings)


def _only(policy: Policy, devices: Sequence[DeviceFacts]) -> Policy:
    """The policy without what it says of other devices, which are not in a device's XML."""
    names = {name for device in devices for name in (*device.names, device.target)}

    def here(said: Sequence[DevicePolicy]) -> tuple[DevicePolicy, ...]:
        return tuple(one for one in said if one.target is None or {one.target, one.target.lower()} & names)
    return Policy(policy.class_, here(policy.disks), here(policy.interfaces), policy.settings, policy.control,
                  policy.cpu, policy.soft_limit_bytes, policy.line)


def _alias(device: DeviceFacts, root: Element) -> str:
    """The id that a device has in QEMU after the next start.

    Its own user alias. Else the one that libvirt will give it, if the domain's qemu: elements use that already. Else
    a user alias of ours: libvirt keeps it whatever else is plugged in.
    """
    if device.alias.startswith(USER_ALIAS):
        return device.alias
    word = re.compile(rf"(?<![\w-]){re.escape(device.predicted)}(?![\w-])")
    if device.predicted and any(word.search(value) for element in root.iter(f"{{{QEMU}}}*") for value in
                                element.attrib.values()):
        return device.predicted
    return OURS + re.sub(r"[^A-Za-z0-9_.-]", "", device.target)


def _attach(merge: Merge, devices: Sequence[DeviceFacts], plan: Plan) -> None:
    """Alias and vhost=off of the devices in the plan."""
    planned = {(device.kind, device.target): device for device in plan.devices}
    for device in devices:
        chosen = planned.get((device.kind, device.target))
        if chosen is None:
            continue
        path = _path(device, chosen.alias)
        if (device.kind == "interface" and chosen.class_ is not Class.FOREGROUND) or chosen.queues:
            _vhost_off(merge, device, path)
        if chosen.alias.startswith(USER_ALIAS) and chosen.alias != device.alias:
            _set_alias(merge, device, path, chosen.alias)


def _path(device: DeviceFacts, alias: str) -> str:
    """Where the record finds a device again, also after libvirt has written the XML anew, or a tool has cloned it."""
    if alias.startswith(USER_ALIAS):
        return f"devices/{device.kind}[alias/@name='{alias}']"
    if device.kind == "disk":
        return f"devices/disk[target/@dev='{device.target}']"
    mac = get(device.element, "mac", "address")
    return f"devices/interface[mac/@address='{mac}']" if mac else f"devices/interface[{int(device.target[3:]) + 1}]"


def _set_alias(merge: Merge, device: DeviceFacts, path: str, alias: str) -> None:
    element = device.element.find("alias")
    if element is not None:
        merge.set(element, f"{path}/alias", "name", alias)
    else:
        merge.add(device.element, path + "/", [Want("alias", {"name": alias})])


def _vhost_off(merge: Merge, device: DeviceFacts, path: str) -> None:
    """QEMU itself has to move the packets of what it holds: no vhost."""
    if device.kind != "interface" or device.element.get("type") not in _VHOST_TYPES:
        return
    driver = device.element.find("driver")
    if driver is None:
        merge.add(device.element, path + "/", [Want("driver", {"name": "qemu"})])
    elif driver.get("name") != "qemu":
        merge.set(driver, f"{path}/driver", "name", "qemu")


def _check_foreign_objects(root: Element, plan: Plan, merge: Merge) -> None:
    """A second object with the id or the arena of ours would keep QEMU from starting."""
    for arg in root.iter(f"{{{QEMU}}}arg"):
        value = arg.get("value", "")
        if not value.startswith("idletime-resource,"):
            continue
        parts = value.split(",")
        for resource in plan.resources:
            if f"id={resource.id}" in parts or f"path={resource.path}" in parts:
                merge.findings.append(Finding(
                    Severity.ERROR, Kind.FIT, f"the domain has its own object '{value}' for resource '{resource.name}'",
                    "remove it (the policy makes one), or take the resource out of the policy", "qemu:arg",
                    arg.sourceline))


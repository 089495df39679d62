# SPDX-License-Identifier: GPL-2.0-or-later
"""The two ways: compile and decompile."""

from __future__ import annotations

from .facts import HostFacts
from .result import CompileResult, Plan


def compile(domain_xml: str, host: HostFacts) -> CompileResult:
    """Compile a domain's policy into native elements and qemu: elements. Pure.

    compile(compile(x).xml).xml == compile(x).xml, byte for byte. A domain without a policy comes back as it was
    before it was first compiled, byte for byte. Foreign elements, comments and formatting stay.
    Raises PolicyError (Kind.SYNTAX: XML or policy is wrong; Kind.FIT: does not fit domain or host).
    """
    raise NotImplementedError


def decompile(domain_xml: str) -> str:
    """The domain without what compile() added; the policy stays. Pure. Raises PolicyError (Kind.SYNTAX)."""
    raise NotImplementedError


def compile_device(device_xml: str, domain_xml: str, host: HostFacts) -> CompileResult:
    """The same for the XML of one device that is to be hotplugged (virsh attach-device). Pure.

    result.xml is the device; result.plan has what QEMU needs before the device comes: the resource object, and
    the properties of the device.
    """
    raise NotImplementedError


def plan(domain_xml: str, host: HostFacts) -> Plan:
    """What a *running* domain should have, from its live XML (aliases as libvirt assigned them). Pure.

    Raises as compile().
    """
    raise NotImplementedError

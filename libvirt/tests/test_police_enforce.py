# SPDX-License-Identifier: GPL-2.0-or-later
"""Which policy holds a VM."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypothesis_profile  # noqa: F401
from idletime.police import enforce
from idletime.police.enforce import Device, Enforce, Through, Vm

DISK, VFIO, IDE, VHOST = (Device("disk vda", Through.QEMU), Device("hostdev 0", Through.VFIO),
                          Device("disk hda", Through.OTHER), Device("interface net0", Through.VHOST))


@pytest.mark.parametrize("wish, vm, in_force, words", [
    ("auto", Vm(True, (DISK, VHOST)), (True, False, False), "all its devices pass QEMU"),
    ("auto", Vm(True, (DISK, VFIO)), (True, True, False), "nothing holds: hostdev 0 (VFIO)"),
    ("auto", Vm(True, (DISK, IDE)), (True, True, False), "nothing holds: disk hda (other)"),
    ("auto", Vm(True, (VFIO,)), (False, True, False), "nothing holds hostdev 0 (VFIO)"),
    ("auto", Vm(False, (DISK,)), (False, True, False), "its QEMU is stock"),
    ("auto", Vm(False, (VFIO,)), (False, True, False), "its QEMU is stock"),
    ("auto", Vm(True), (False, True, False), "it has no device to hold"),
    ("interval", Vm(True, (DISK,)), (True, False, False), "is held by the interval"),
    ("interval", Vm(True, (DISK, VFIO)), (True, False, False), "nothing holds hostdev 0 (VFIO)"),
    ("interval", Vm(False, (DISK,)), (False, False, False), "its QEMU is stock"),
    ("interval", Vm(True), (False, False, False), "no device to hold"),
    ("suspend", Vm(True, (DISK,)), (False, True, False), "stopped as a whole"),
    ("rate", Vm(True, (DISK, IDE)), (False, False, True), "is limited on disk vda (QEMU), disk hda (other) while"),
    ("rate", Vm(False, (VHOST, VFIO)), (False, False, True), "; nothing limits hostdev 0 (VFIO)"),
    ("rate", Vm(False, (VFIO,)), (False, False, False), "no device that libvirt throttles"),
    ("suspend", Vm(True, (DISK,), background=False), (False, False, False), "is foreground"),
])
def test_which_policy_holds(wish, vm, in_force, words):
    found = enforce.choose(Enforce(wish), vm)
    assert (found.interval, found.suspend, found.rate) == in_force
    assert words in found.why


@given(st.sampled_from(Enforce), st.builds(
    Vm, st.booleans(), st.lists(st.builds(Device, st.text(max_size=3), st.sampled_from(Through)), max_size=4), st.booleans()))
def test_auto_leaves_no_background_vm_without_a_policy(wish, vm):
    found = enforce.choose(wish, vm)
    assert found.why.startswith("is ")
    assert not (found.interval and not vm.ours)
    if wish is Enforce.AUTO and vm.background:
        assert found.interval or found.suspend
    if not vm.background:
        assert not (found.interval or found.suspend or found.rate)

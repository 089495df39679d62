# SPDX-License-Identifier: GPL-2.0-or-later
"""What an emulator is asked, and what its answer comes to."""

from __future__ import annotations

import os

import pytest

from idletime.resolve import probe

ANSWER = """#!/bin/sh
case "$*" in
    *idletime-resource,help*) printf 'idletime-resource options:\\n  interval-us=<uint>\\n  path=<string>\\n' ;;
    *virtio-blk-pci,help*) printf 'virtio-blk-pci options:\\n  idletime=<str> - (default: "")\\n  drive=<str>\\n' ;;
    *) exit 1 ;;
esac
"""


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_properties(tmp_path):
    assert probe.emulator(program(tmp_path / "qemu", ANSWER)) == {
        "idletime-resource.interval-us", "idletime-resource.path", "virtio-blk-pci.idletime"}  # fmt: skip


def test_stock_qemu_has_none(tmp_path):
    assert probe.emulator(program(tmp_path / "qemu", "#!/bin/sh\nexit 1\n")) == frozenset()


@pytest.mark.parametrize("text", ["not a program", "#!/no/such/interpreter\n"])
def test_what_cannot_be_asked_is_unknown(tmp_path, text):
    assert probe.emulator(program(tmp_path / "qemu", text)) is None
    assert probe.emulator(str(tmp_path / "absent")) is None
    os.chmod(tmp_path / "qemu", 0o644)
    assert probe.emulator(str(tmp_path)) is None


def test_a_new_emulator_is_asked_again(tmp_path):
    path = program(tmp_path / "qemu", "#!/bin/sh\nexit 1\n")
    assert probe.emulator(path) == frozenset()
    program(tmp_path / "qemu", ANSWER)
    assert probe.emulator(path)

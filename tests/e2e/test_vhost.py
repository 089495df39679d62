"""NICs whose tap has vhost: a Debian guest plays the host, as vhost is its kernel's and this machine's may have none.

The machine tests run in it: what they say is said there, and each is named by its own line of TAP.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Iterator

import pytest

from tests.framework import inner, initramfs, kernel
from tests.framework.qemu import Boot, Machine

VHOST = ["net-vhost", "net-vhost-life"]
LIKE_WITHOUT = ["net-tap", "net-bound", "net-pairs"]
"""A background device is one of QEMU's own path: what is expected of it on a tap is the same with vhost."""


@pytest.fixture(scope="module")
def host(boot: Boot, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A guest with vhost, taps and the tests."""
    archive: Path = tmp_path_factory.mktemp("inner") / "host.tar"
    inner.pack(archive, boot.qemu, inner.build_tests([*VHOST, *LIKE_WITHOUT]))
    guests = replace(boot, initramfs=initramfs.get_initramfs(kernel.get_kernel(), inner.MODULES))
    with ExitStack() as stack:
        machine = stack.enter_context(Machine(guests, "host", inner.disk(archive), memory_mib=inner.MEMORY_MIB))
        inner.unpack(machine.guest)
        yield machine


def assert_passed(text: str, status: int) -> None:
    """Every test of the program ran, and passed."""
    lines = text.splitlines()
    passed = [line for line in lines if line.startswith("ok ") and "# SKIP" not in line]
    others = [line for line in lines if line.startswith("not ok ") or "# SKIP" in line]
    assert passed and not others and status == 0, "\n".join(lines[-40:])


@pytest.mark.parametrize("name", VHOST)
def test_vhost_gives_way_and_comes_back(host: Machine, name: str) -> None:
    """Foreground runs vhost and says that it is not seen; background is held in QEMU; detached, it runs vhost again."""
    result = inner.run_test(host.guest, name, {})
    assert_passed(result.text, result.status)


@pytest.mark.parametrize("name", LIKE_WITHOUT)
def test_background_is_as_without_vhost(host: Machine, name: str) -> None:
    """The tests of taps, all of whose devices are background or of class guest, with vhost=on."""
    result = inner.run_test(host.guest, name, {"IDLETIME_TAP_OPTIONS": ",vhost=on"})
    assert_passed(result.text, result.status)

"""The guest that plays the host: what is said of a machine test is said there."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Callable, Iterator

import pytest

from tests.e2e.conftest import boot, pytest_configure  # noqa: F401  (fixtures)
from tests.framework import accel, inner
from tests.framework.guest import Result
from tests.framework.qemu import Boot, Machine

PROGRAMS = ["net-vhost", "net-vhost-life", "net-tap", "net-bound", "net-pairs", "scsi-pass"]


@pytest.fixture(scope="session")
def host(boot: Boot, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:  # noqa: F811
    """With vhost, taps, a SCSI disk and the tests."""
    archive: Path = tmp_path_factory.mktemp("inner") / "host.tar"
    inner.pack(archive, boot.qemu, inner.build_tests(PROGRAMS))
    guests = accel.with_modules(boot, inner.MODULES)
    with ExitStack() as stack:
        machine = stack.enter_context(Machine(guests, "host", inner.disk(archive), memory_mib=inner.MEMORY_MIB))
        inner.unpack(machine.guest)
        yield machine


def _assert_passed(result: Result) -> None:
    """Every test of the program ran, and passed."""
    lines = result.text.splitlines()
    passed = [line for line in lines if line.startswith("ok ") and "# SKIP" not in line]
    others = [line for line in lines if line.startswith("not ok ") or "# SKIP" in line]
    assert passed and not others and result.status == 0, "\n".join(lines[-40:])


@pytest.fixture
def passes(host: Machine) -> Callable[..., None]:
    """Run a program there: passes("net-tap", {"VARIABLE": "value"})."""
    return lambda name, environment: _assert_passed(inner.run_test(host.guest, name, environment))

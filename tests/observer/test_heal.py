"""What healing finds, from a page and a device's files that the test writes: no kernel has a part in it."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.framework import paths
from tests.observer.page import BYTES, LINE, LINE_AT

TICKS = 3


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """heal.c, and what it says by."""
    folder = tmp_path_factory.mktemp("heal")
    source, overlay = paths.ROOT / "observer", paths.ROOT / "qemu-patches" / "overlay"
    argv = ["cc", "-std=gnu11", "-D_GNU_SOURCE", "-g", "-shared", "-fPIC", f"-I{source}", f"-I{overlay}", "-include", "stdint.h",
            str(source / "heal.c"), str(source / "text.c"), "-o", str(folder / "heal.so")]
    subprocess.run(argv, check=True)
    return ctypes.CDLL(str(folder / "heal.so"))


class Device:
    """A device's files, an observer's page, and the ticks that look at both."""

    def __init__(self, library: ctypes.CDLL, root: Path, name: str = "sda") -> None:
        self.folder = root / "block" / name.replace("/", "!")
        (self.folder / "queue").mkdir(parents=True)
        (self.folder / "queue" / "iostats").write_text("1\n")
        self._heal = library
        self._memory = ctypes.create_string_buffer(2 * BYTES)
        self._page = -ctypes.addressof(self._memory) % BYTES
        self._now_ns = 0
        self.kernel(0)
        assert self._heal.heal_open(name.encode())

    def kernel(self, inflight: int, stat: int = 0, **parts: int) -> None:
        """What the kernel counts: on the device, and on its partitions."""
        (self.folder / "inflight").write_text(f"{inflight:8d} {0:8d}\n")
        fields = "1 2 3 4 5 6 7 8 {} 10 11\n"
        (self.folder / "stat").write_text(fields.format(stat))
        for name, count in parts.items():
            (self.folder / name).mkdir(exist_ok=True)
            (self.folder / name / "stat").write_text(fields.format(count))

    def tick(self, foreground: int, background: int, still: bool = False) -> tuple[int, int]:
        """The page counts these, and an event of the foreground unless it is still; what is found lost, and of the foreground."""
        self._now_ns += not still
        counts = foreground & 0xFFFFFFFF, foreground + background
        LINE.pack_into(self._memory, self._page + LINE_AT, *counts, self._now_ns, 0, 0, 0, 0)
        found, begun = (ctypes.c_uint64 * 3)(), ctypes.c_uint64(0)
        page = ctypes.c_void_p(ctypes.addressof(self._memory) + self._page)
        self.there = self._heal.heal_look(page, ctypes.byref(begun), found)
        return found[0], found[1]

    def forget(self) -> None:
        """As if nothing had been seen."""
        self._heal.heal_forget()


@pytest.fixture
def device(library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """sda."""
    library.heal_look.restype = library.heal_open.restype = library.heal_is_counted.restype = ctypes.c_bool
    monkeypatch.setenv("OBSERVER_SYS", str(tmp_path))
    yield Device(library, tmp_path)


@pytest.mark.parametrize(
    ("foreground", "background", "kernel", "lost"),
    [
        (0, 0, 0, (0, 0)),
        (3, 2, 5, (0, 0)),
        (3, 2, 6, (0, 0)),  # the kernel has one more than was told
        (1, 0, 0, (1, 1)),  # idle, and one is counted
        (0, 4, 0, (4, 0)),  # only background is counted: it was the background's
        (2, 3, 0, (5, 2)),  # idle: of each class what is counted
        (3, 0, 2, (1, 1)),  # no background is counted: the foreground's
        (0, 3, 2, (1, 0)),
        (2, 2, 3, (0, 0)),  # one is lost, of either: left alone
        (2, 1, 0, (3, 2)),
        (4, 1, 3, (1, 1)),  # two are lost, the background has one at most
        (1, 4, 3, (1, 0)),
    ],
)
def test_whose_it_was(device: Device, foreground: int, background: int, kernel: int, lost: tuple[int, int]) -> None:
    """At the third tick, what is surely lost: more than the kernel has, and more than the other class can have lost."""
    device.kernel(kernel)
    assert [device.tick(foreground, background) for _ in range(TICKS)] == [(0, 0)] * (TICKS - 1) + [lost]
    taken = foreground - lost[1], background - (lost[0] - lost[1])
    assert [device.tick(*taken) for _ in range(2 * TICKS)] == [(0, 0)] * 2 * TICKS


def test_a_background_end_lost_beside_a_busy_foreground(device: Device) -> None:
    """Never the foreground's, however long that is busy; found when a look finds it idle or all of the background's lost."""
    device.kernel(5)
    for _ in range(10):
        assert device.tick(4, 2) == (0, 0)
    device.kernel(1)  # the foreground is idle at a look
    assert device.tick(0, 2) == (1, 0)


def test_a_foreground_end_lost_beside_a_busy_background(device: Device) -> None:
    """Found when a look finds no background, which waits since the foreground seems to be in service."""
    device.kernel(3)
    for _ in range(10):
        assert device.tick(1, 3) == (0, 0)
    device.kernel(0)
    assert device.tick(1, 0) == (1, 1)


def test_an_end_that_was_taken_for_the_other_class(device: Device) -> None:
    """The sum is right; the foreground alone cannot have more in service than the kernel has of all."""
    assert [device.tick(1, -1) for _ in range(TICKS)] == [(0, 0)] * (TICKS - 1) + [(0, 1)]
    assert [device.tick(0, 0) for _ in range(TICKS)] == [(0, 0)] * TICKS
    device.kernel(2)
    assert [device.tick(3, -1) for _ in range(TICKS)] == [(0, 0)] * (TICKS - 1) + [(0, 1)]
    device.kernel(0)
    assert [device.tick(2, -1) for _ in range(TICKS)][-1] == (1, 2)


@pytest.mark.parametrize(
    ("foreground", "background", "kernel", "lost"),
    [(1, 3, 3, (1, 1)), (4, 3, 5, (2, 2)), (1, 3, 2, (2, 1)), (1, 3, 4, (0, 0))],
)
def test_a_foreground_without_events(device: Device, foreground: int, background: int, kernel: int, lost: tuple[int, int]) -> None:
    """Beside a background that is never idle (by deadlines, of many VMs) what is in service for three ticks is what was lost."""
    device.kernel(kernel)
    device.tick(foreground, background)
    assert device.tick(foreground, background, still=True) == (0, 0)
    assert device.tick(foreground, background, still=True) == lost


def test_one_tick_without_excess_is_enough(device: Device) -> None:
    """A request between its completion and its end is not lost: it is not seen at the next tick."""
    device.kernel(0)
    for _ in range(TICKS - 1):
        assert device.tick(1, 0) == (0, 0)
    assert device.tick(0, 0) == (0, 0)
    assert device.tick(1, 0) == (0, 0)


def test_what_was_healed_is_not_searched_anew(device: Device) -> None:
    """Two are lost, of which one is seen late: the second one is found without three ticks more."""
    device.kernel(0)
    assert [device.tick(*counts) for counts in ((1, 0), (2, 0), (2, 0))] == [(0, 0), (0, 0), (1, 1)]
    assert device.tick(1, 0) == (1, 1)
    assert [device.tick(0, 0) for _ in range(TICKS)] == [(0, 0)] * TICKS


def test_the_larger_count_of_the_kernel_is_believed(device: Device) -> None:
    """inflight leaves out what is completed and not ended; stat may leave out partitions, or have them twice."""
    for counts in (
        {"inflight": 2}, {"inflight": 0, "stat": 2}, {"inflight": 1, "stat": 1, "sda1": 1}, {"inflight": 0, "sda1": 1, "sda2": 1}
    ):
        device.forget()
        device.kernel(0, sda1=0, sda2=0)
        device.kernel(**counts)
        assert [device.tick(2, 0) for _ in range(TICKS)] == [(0, 0)] * TICKS, counts


def test_a_number_below_zero_is_zero(device: Device) -> None:
    """Ends were told before their begins, for a moment: nothing is lost of these."""
    assert [device.tick(-1, 1) for _ in range(TICKS)] == [(0, 0)] * TICKS


def test_a_device_that_is_gone(device: Device) -> None:
    """Its directory is; a file that cannot be read says nothing."""
    device.tick(0, 0)
    assert device.there
    (device.folder / "inflight").unlink()
    device.tick(1, 0)
    assert device.there
    for file in (device.folder / "stat", device.folder / "queue" / "iostats"):
        file.unlink()
    (device.folder / "queue").rmdir()
    device.folder.rmdir()
    device.tick(1, 0)
    assert not device.there


def test_iostats_and_names(library: ctypes.CDLL, device: Device, tmp_path: Path) -> None:
    """Without iostats it refuses to begin, and says later that nothing is counted; a name with a slash is one directory."""
    assert library.heal_is_counted()
    (device.folder / "queue" / "iostats").write_text("0\n")
    assert not library.heal_is_counted()
    assert not library.heal_open(b"sda")
    other = Device(library, tmp_path, "cciss/c0d0")
    assert other.folder.name == "cciss!c0d0"
    assert [other.tick(1, 0) for _ in range(TICKS)] == [(0, 0), (0, 0), (1, 1)]

"""Fixtures: disks, arenas and observers that end with their test."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.observer import run
from tests.observer.run import Observer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where nothing can be observed nothing is tested, and the reason is said."""
    lacks = None
    if os.geteuid() != 0:
        lacks = "the kernel takes programs of root only"
    elif not Path("/sys/kernel/btf/vmlinux").exists():
        lacks = "this kernel was built without CONFIG_DEBUG_INFO_BTF"
    elif not shutil.which("fio"):
        lacks = "fio is missing (`make deps`)"
    if lacks:
        for item in items:
            item.add_marker(pytest.mark.skip(reason=lacks))


@pytest.fixture(scope="session", autouse=True)
def program() -> None:
    """The program is what the sources say."""
    subprocess.run(["make", "-s", "-C", str(run.paths.ROOT), "observer"], check=True)


@pytest.fixture
def arena(tmp_path: Path) -> Path:
    """An empty arena."""
    path = tmp_path / "arena"
    path.mkdir()
    return path


@pytest.fixture
def disk() -> Iterator[str]:
    """A loop device."""
    with run.loop_device() as device:
        yield device


@pytest.fixture
def observe(arena: Path) -> Iterator[Callable[..., Observer]]:
    """Start observers: observe("--disk", disk)."""
    observers: list[Observer] = []

    def start(*options: str, at: Path | None = None, **more: object) -> Observer:
        observer = Observer(at or arena, *options, **more)  # type: ignore[arg-type]
        observers.append(observer)
        return observer

    yield start
    for observer in observers:
        observer.close()

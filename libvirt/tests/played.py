# SPDX-License-Identifier: GPL-2.0-or-later
"""A libvirt that is played: domains that keep records, a host with a clock that is set, and how a scene on it is run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

import libvirt
import pytest
from lxml import etree

from idletime.hostd.hands import Hands

LIVE, CONFIG = libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG


def failed(code: int, text: str = "no") -> libvirt.libvirtError:
    error = libvirt.libvirtError(text)
    error.err = (code, 0, text, 0, "", None, None, 0, 0)
    return error


def with_metadata(xml: str, uri: str, text: str | None) -> str:
    """A domain's XML after libvirt's setMetadata() of an element of this namespace; None removes it."""
    root = etree.fromstring(xml)
    metadata = root.find("metadata")
    if metadata is None:
        metadata = etree.Element("metadata")
        root.insert(0, metadata)
    for one in metadata.findall(f"{{{uri}}}*"):
        metadata.remove(one)
    if text is not None:
        new = etree.fromstring(text)
        for one in new.iter():
            one.tag = f"{{{uri}}}{etree.QName(one).localname}"
        metadata.append(new)
    return str(etree.tostring(root, encoding="unicode"))


class Domain:
    """Its name is its UUID; run: its ID, 0 while it is not active. It keeps what idletimed records in its metadata."""

    NAMESPACE, WHERE = "", LIVE
    """Of the record that matters to the test."""

    def __init__(self, name: str) -> None:
        self.called, self.run = name, 1
        self.records: dict[int, str] = {}

    def name(self) -> str:
        return self.called

    def UUIDString(self) -> str:
        return self.called

    def ID(self) -> int:
        return self.run

    def isActive(self) -> bool:
        return self.run > 0

    def isPersistent(self) -> bool:
        return True

    def controlInfo(self) -> list[int]:
        return [libvirt.VIR_DOMAIN_CONTROL_OK, 0, 0]

    def jobInfo(self) -> list[int]:
        return [libvirt.VIR_DOMAIN_JOB_NONE]

    def metadata(self, _kind: int, uri: str, flags: int) -> str:
        if uri != self.NAMESPACE or flags not in self.records:
            raise failed(libvirt.VIR_ERR_NO_DOMAIN_METADATA)
        return self.records[flags]

    def setMetadata(self, _kind: int, element: str | None, _prefix: str | None, uri: str, flags: int) -> None:
        assert uri == self.NAMESPACE
        self.records.pop(flags, None)
        if element:
            self.records[flags] = element

    @property
    def record(self) -> str | None:
        return self.records.get(self.WHERE)

    @record.setter
    def record(self, element: str) -> None:
        self.records[self.WHERE] = element


class Host:
    """A host, and a connection to its libvirtd. away: libvirtd does not answer. touched: whom idletimed is to look at again."""

    def __init__(self, root: Path) -> None:
        self.root, self.now, self.away = root, 100.0, False
        self.vms: dict[str, Any] = {}
        self.touched: list[str] = []
        (root / "proc").mkdir()

    def by_hand(self, room: Any) -> Any:
        """A room of idletimed that looks when the test says so."""
        room._task = asyncio.create_task(asyncio.Event().wait())
        room._hands = room._eyes = Hands(lambda: self, 1, 1)
        return room

    def isAlive(self) -> bool:
        return True

    def close(self) -> None:
        pass

    def lookupByUUIDString(self, uuid: str) -> Any:
        if self.away:
            raise failed(libvirt.VIR_ERR_RPC, "the line is cut")
        if uuid not in self.vms:
            raise failed(libvirt.VIR_ERR_NO_DOMAIN)
        return self.vms[uuid]

    def listAllDomains(self, _flags: int = 0) -> list[Any]:
        return list(self.vms.values())

    async def end(self) -> None:
        """What a scene leaves running."""


World = TypeVar("World", bound=Host)


def stage(make: Callable[[], World], clocks: tuple[ModuleType, ...],
          monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[World], Awaitable[None]]], None]:
    """What runs a scene in a world of its own, whose clock is that of these modules."""

    def run(scene: Callable[[World], Awaitable[None]]) -> None:
        async def main() -> None:
            world = make()
            for one in clocks:
                monkeypatch.setattr(one, "time", SimpleNamespace(monotonic=lambda: world.now))
            await scene(world)
            await world.end()

        asyncio.run(asyncio.wait_for(main(), 30))

    return run

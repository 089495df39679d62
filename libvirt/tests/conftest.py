# SPDX-License-Identifier: GPL-2.0-or-later
"""Shared fixtures: hosts, golden files (IDLETIME_GOLDEN=write makes them anew)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import trees
from idletime.facts import Source
from idletime.resolve import Network

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Root of a host that is described in data/hosts."""
    made: dict[str, str] = {}

    def make(name: str) -> str:
        if name not in made:
            made[name] = str(trees.expand(DATA / "hosts" / f"{name}.tree", tmp_path_factory.mktemp(name)))
        return made[name]

    return make


@pytest.fixture
def golden() -> Callable[[Path, str], None]:
    """Compare text with a file; or write the file, when that is asked for."""

    def compare(path: Path, text: str) -> None:
        if os.environ.get("IDLETIME_GOLDEN") == "write":
            path.write_bytes(text.encode())
        assert path.exists(), f"{path} is missing: look at the output, then run with IDLETIME_GOLDEN=write"
        assert text == path.read_bytes().decode()

    return compare


class Lookup:
    """What libvirt would know of the rack."""

    def volume(self, pool: str, volume: str) -> Source | None:
        path = {
            ("default", "web.qcow2"): "/var/lib/libvirt/images/web.qcow2",
            ("mirror", "a.img"): "/srv/mirror/a.img",
        }.get((pool, volume))
        return Source("disk", "file", path) if path else None

    def network(self, name: str) -> Network | None:
        return {
            "default": Network("nat", "virbr0"),
            "lan": Network("bridge", "br0"),
            "direct": Network("private", devices=("eth0",)),
        }.get(name)


@pytest.fixture
def lookup() -> Lookup:
    return Lookup()

# SPDX-License-Identifier: GPL-2.0-or-later
"""A real Placement for a test, and an administrator who speaks to it."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keystoneauth1 import adapter, session, token_endpoint

from idletime_openstack.placement import Placement
from world import Hosts, World

SERVER = Path(__file__).parent / "placement_server.py"


class Server:
    """Placement as a process. It may be ended and begun again on the same port, with the same data."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, 0
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen([sys.executable, str(SERVER), str(self.folder / "placement.db"), str(self.port)],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def stop(self) -> None:
        if self._process is not None:
            self._process.communicate(timeout=60)  # closes its input
            self._process = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def adapter(self, token: str = "admin") -> adapter.Adapter:
        """As nova.conf's [placement] would make it; the token is the user's name under noauth2."""
        return adapter.Adapter(session.Session(auth=token_endpoint.Token(self.url, token)), service_type="placement")

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """As an administrator, or as Nova."""
        answer = self.adapter().request(path, method, headers={"OpenStack-API-Version": "placement 1.36"},
                                        **({"json": body} if body is not None else {}))
        return answer.json() if answer.content else None

    def compute(self, host: str) -> str:
        """A compute node with 8 processors; its UUID."""
        self.ask("POST", "/resource_providers", {"name": host})
        uuid = self.ask("GET", f"/resource_providers?name={host}")["resource_providers"][0]["uuid"]
        self.ask("PUT", f"/resource_providers/{uuid}/inventories",
                 {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}})
        return str(uuid)

    def boot(self, consumer: str, resources: str, required: str = "") -> str | None:
        """As Nova does: candidates, then a claim of the first; the compute node, None: no valid host."""
        traits = f"&required={required}" if required else ""
        found = self.ask("GET", f"/allocation_candidates?resources={resources}{traits}")
        if not found["allocation_requests"]:
            return None
        claim = found["allocation_requests"][0]
        self.ask("PUT", f"/allocations/{consumer}", {
            "allocations": claim["allocations"], "mappings": claim["mappings"], "project_id": "p", "user_id": "u",
            "consumer_generation": None})
        uuid = next(iter(claim["allocations"]))
        return str(found["provider_summaries"][uuid]["root_provider_uuid"])


@pytest.fixture(scope="session")
def real_placement(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("placement"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def placement(real_placement: Server) -> Placement:
    return Placement(real_placement.adapter())


def write_gauge(file: Path, monotonic: float, **steady: float | None) -> Path:
    """As idletimed writes it: disks; an uplink of 1 Gbit/s where the name begins with eth."""
    file.write_text(json.dumps({"state-version": 1, "version": 1, "at": 0.0, "monotonic": monotonic, "resources": [
        {"resource": name, "kind": "interface" if name.startswith("eth") else "disk", "device": "", "source": "kernel",
         "whole": True, "spare": {"second": share, "minute": share, "hour": None, "forecast": share, "steady": share},
         "rate_bps": 10**9 if name.startswith("eth") else None, "problem": ""} for name, share in steady.items()]}))
    return file


@pytest.fixture(scope="module")
def hosts(real_placement: Server) -> Iterator[Hosts]:
    found = Hosts(real_placement)
    yield found
    found.close()


@pytest.fixture
def world(hosts: Hosts, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[World]:
    caplog.set_level(logging.INFO, "idletime-openstack-evict")
    found = World(hosts, tmp_path)
    yield found
    found.close()

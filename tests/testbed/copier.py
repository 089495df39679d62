"""A disk that is copied over the uplink: by a mirror of a QEMU in the host's namespace to an NBD server in the sink's."""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.framework.idletimed import wait_until
from tests.framework.qemu import Boot, Machine
from tests.framework.storage import PROGRAM
from tests.testbed.attach import options, settings
from tests.testbed.link import SINK_ADDRESS, Link

PORT = 5006
RESOURCE, JOB, STREAM = "copies", "copy", "stream"
POLL_SECONDS = 0.02
FIRST_BYTES = 16 << 20
"""A mirror has 16 requests of 1 MiB in flight, whatever its speed."""


class Copier:
    """A context manager: enter starts the source, whose resource is in `arena`, and the server, and copies FIRST_BYTES, which are
    on their way before a job can be attached; leave ends them."""

    def __init__(self, boot: Boot, link: Link, arena: Path, folder: Path, *, copy_mib: int = 64, **resource: object) -> None:
        self._boot, self._link, self._arena, self._resource = boot, link, arena, resource
        self._here, self._there, self._log = (folder / name for name in ("here.img", "there.img", "server.log"))
        self._bytes = copy_mib << 20

    def __enter__(self) -> Copier:
        self._here.write_bytes(os.urandom(self._bytes))
        self._there.write_bytes(b"")
        os.truncate(self._there, self._bytes)
        with ExitStack() as stack:
            server = self._link.start([
                str(PROGRAM), "--blockdev", f"driver=file,filename={self._there},node-name=there", "--nbd-server",
                f"addr.type=inet,addr.host={SINK_ADDRESS},addr.port={PORT}", "--export",
                "type=nbd,id=export,node-name=there,name=there,writable=on"], self._log)
            stack.callback(server.stop)
            self._link.give_host_address()
            resource = f"idletime-resource,id={RESOURCE},path={self._arena}{options(settings(self._resource))}"
            self.source = stack.enter_context(Machine(self._boot, "source", [
                "-object", resource, "-blockdev", f"driver=file,filename={self._here},node-name=here"]))
            with self._connected() as near:
                self.source.qmp.give(near.fileno(), STREAM)
            self.source.qmp.execute("blockdev-add", **{"node-name": "far", "driver": "nbd", "export": "there",
                                                       "server": {"type": "fd", "str": STREAM}})
            self.source.qmp.execute("blockdev-mirror", **{"job-id": JOB, "device": "here", "target": "far", "sync": "full",
                                                          "speed": 1})
            wait_until(lambda: self._copied() >= FIRST_BYTES, "the first data are copied")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def _connected(self) -> socket.socket:
        found: list[socket.socket] = []

        def connects() -> bool:
            try:
                found.append(self._link.host.call(lambda: socket.create_connection((SINK_ADDRESS, PORT))))
            except ConnectionRefusedError:
                return False
            return True

        wait_until(connects, "the server listens")
        return found[0]

    def begin(self, attached: bool = True) -> None:
        """Copy the rest: as background, or not."""
        qmp = self.source.qmp
        if attached:
            qmp.execute("idletime-attach", migration=True, resource=RESOURCE)
            qmp.execute("idletime-attach", job=JOB, resource=RESOURCE)
        qmp.execute("block-job-set-speed", device=JOB, speed=0)

    def _copied(self) -> int:
        return int(self.source.qmp.execute("query-block-jobs")[0]["offset"])

    def held(self) -> dict[str, Any]:
        """What query-idletime says of it."""
        return self.source.qmp.execute("query-idletime")[0]["jobs"][0]

    def wait(self, seconds: float) -> dict[str, Any]:
        """The job, when all is copied or the time is over."""
        end = time.monotonic() + seconds
        while (status := self.source.qmp.execute("query-jobs")[0])["status"] != "ready" and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        return status

    def equal(self) -> bool:
        """Whether both have the same data. The copy is given up."""
        self.source.qmp.execute("block-job-cancel", device=JOB)
        wait_until(lambda: self.source.qmp.execute("query-jobs") == [], "the job has ended")
        return self._here.read_bytes() == self._there.read_bytes()

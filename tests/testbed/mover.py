"""A VM that migrates over the uplink: from the host's namespace to the sink's, with memory that it fills and goes on changing."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.framework.qemu import Boot, Machine
from tests.testbed.attach import options, settings
from tests.testbed.link import SINK_ADDRESS, Link

PORT = 5005
RESOURCE, STREAM = "moves", "stream"
"""The resource object of the source, and its end of the connection."""

DIRTIES = "(while :; do dd if=/fill of=/dirty bs=64k count={pieces} conv=notrunc; usleep 250000; done) >/dev/null 2>&1 &"
"""Four times a second; /fill is random."""

POLL_SECONDS = 0.02


def connected(link: Link) -> tuple[socket.socket, socket.socket]:
    """A TCP connection from the host over the uplink to the sink, as a management of VMs opens it for QEMU."""
    link.give_host_address()
    with link.sink.call(lambda: socket.create_server((SINK_ADDRESS, PORT))) as listener:
        near = link.host.call(lambda: socket.create_connection((SINK_ADDRESS, PORT)))
        far, _ = listener.accept()
    return near, far


class Mover:
    """A context manager: enter starts both QEMUs and fills the guest's memory; leave ends them.

    `fill_mib` of `memory_mib` are random, and `dirty_kib_s` are written anew each second. The source has a resource in `arena`.
    """

    def __init__(self, boot: Boot, link: Link, arena: Path, *, memory_mib: int = 1024, fill_mib: int = 128,
                 dirty_kib_s: int = 1024, **resource: object) -> None:
        self._boot, self._link, self._arena = boot, link, arena
        self._memory_mib, self._fill_mib, self._pieces = memory_mib, fill_mib, dirty_kib_s // 256
        self._resource = resource

    def __enter__(self) -> Mover:
        with ExitStack() as stack:
            near, far = (stack.enter_context(end) for end in connected(self._link))
            resource = f"idletime-resource,id={RESOURCE},path={self._arena}{options(settings(self._resource))}"
            self.source = stack.enter_context(Machine(self._boot, "source", ["-object", resource], memory_mib=self._memory_mib))
            self.target = stack.enter_context(Machine(self._boot, "target", ["-incoming", f"fd:{far.fileno()}"], [far.fileno()],
                                                      memory_mib=self._memory_mib, wait_for_guest=False))
            self.source.qmp.give(near.fileno(), STREAM)
            near.close()
            far.close()
            self._fill()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def _fill(self) -> None:
        self.source.guest.run(f"dd if=/dev/urandom of=/fill bs=1M count={self._fill_mib}", 300)
        if self._pieces:
            self.source.guest.run(DIRTIES.format(pieces=self._pieces))

    def begin(self, attached: bool = True, bytes_per_second: int = 0) -> None:
        """Start to migrate: as background, or not; at this rate at most, 0: at any."""
        if attached:
            self.source.qmp.execute("idletime-attach", migration=True, resource=RESOURCE)
        self.source.qmp.execute("migrate-set-parameters", max_bandwidth=bytes_per_second)
        self.source.qmp.execute("migrate", uri=f"fd:{STREAM}")

    def held(self) -> dict[str, Any]:
        """What query-idletime says of it."""
        return self.source.qmp.execute("query-idletime")[0]["migrations"][0]

    def wait(self, seconds: float) -> dict[str, Any]:
        """query-migrate when it has ended, or the time is over."""
        end = time.monotonic() + seconds
        while (status := self.source.qmp.execute("query-migrate"))["status"] not in ("completed", "failed", "cancelled"):
            if time.monotonic() > end:
                break
            time.sleep(POLL_SECONDS)
        return status

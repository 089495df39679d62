"""What idletimed and `virt-idletime top` cost with 50 idle domains of a real libvirtd: python3 -m tests.bench.idletimed [--domains 50]

The domains are real QEMUs with a policy, a disk and an agent's channel, but without a guest: their firmware finds
nothing to boot and halts. libvirt's test driver would not do: its domains are no QEMU, so a policy does not fit them.
Prints one JSON line; asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import time
import uuid
from typing import Any

from tests.framework import accel, host
from tests.framework.domain import AGENT_CHANNEL, Domain, disk_xml, policy
from tests.framework.idletimed import PYTHON, Idletimed, virt_idletime, wait_until
from tests.framework.libvirtd import Libvirtd, quiet_libvirt
from tests.framework.terminal import Terminal
from tests.testbed.disk import Disk, Model

START_SECONDS = 120.0
"""For idletimed to look at all domains after its start."""


class Bare(Domain):
    """A domain without a kernel."""

    def uuid(self) -> str:
        """As xml() has it."""
        return str(uuid.uuid5(uuid.NAMESPACE_OID, self.name))

    def xml(self) -> str:
        lines = super().xml().splitlines()
        return "\n".join(line for line in lines if not any(
            f"<{tag}>" in line for tag in ("kernel", "initrd", "cmdline")))


def measure(domains: int, seconds: float) -> dict[str, Any]:
    """Start the domains, then idletimed, and look at it for a while."""
    boot = accel.prepare()
    with Disk(Model(service_us=0)) as disk, Libvirtd(boot, "bench") as libvirtd:
        start(libvirtd, disk, domains)
        with Idletimed(libvirtd) as daemon:
            # All have been looked at when all channels are connected.
            begin = time.monotonic()
            wait_until(lambda: connected(libvirtd) == domains, "all agents' channels are connected", START_SECONDS)
            settled, started = time.monotonic() - begin, daemon.cpu_seconds()
            time.sleep(5)
            before = daemon.cpu_seconds()
            time.sleep(seconds)
            idle = (daemon.cpu_seconds() - before) / seconds
            status = [timed(libvirtd) for _ in range(5)]
            return {
                "kind": "idletimed", "domains": domains, "seconds": seconds, "rss_mib": round(daemon.rss_mib(), 1),
                "idle_core_percent": round(100 * idle, 4), "settled_seconds": round(settled, 2),
                "start_cpu_seconds": round(started, 2), "status_seconds": round(statistics.median(status), 3),
                **top(libvirtd, seconds), "load_average": os.getloadavg()[0], **host.facts(boot),
            }


def start(libvirtd: Libvirtd, disk: Disk, domains: int) -> None:
    """Define and start one; the others are its copies."""
    its_policy = policy("background", "<idletime:disk resource='slow'/><idletime:guest control='demote'/>")
    first = Bare(libvirtd, "tenant-0000", its_policy, [disk_xml(disk, "tenant-0000"), AGENT_CHANNEL], memory_mib=16)
    xml = first.xml()
    for number in range(domains):
        copy = xml.replace("tenant-0000", f"tenant-{number:04}").replace(first.uuid(), str(uuid.uuid4()))
        libvirtd.connection.defineXML(copy).create()
        print(f"\r{number + 1} domains run ", end="", file=sys.stderr, flush=True)


def connected(libvirtd: Libvirtd) -> int:
    """How many agents' channels have idletimed at the host's end."""
    sockets = libvirtd.call("cat", "/proc/net/unix").stdout.splitlines()
    # State 03 is connected; the listening socket of each channel is 01.
    return sum("org.idletime.agent.0" in line and line.split()[5] == "03" for line in sockets)


def timed(libvirtd: Libvirtd) -> float:
    """Seconds of one `virt-idletime status`."""
    begin = time.monotonic()
    virt_idletime(libvirtd, "status")
    return time.monotonic() - begin


def top(libvirtd: Libvirtd, seconds: float) -> dict[str, Any]:
    """What `virt-idletime top` takes of a processor in its terminal, and how often it looks; its start is left out."""
    libvirtd.call("mkdir", "-p", "/run/top")
    with Terminal(lambda *argv: str(libvirtd.call(*argv).stdout), "/run/top/tmux", [*PYTHON, "idletime", "top"]) as terminal:
        terminal.shows("rates of [0-9]")
        pid = int(libvirtd.call("pgrep", "-f", "idletime top$").stdout.split()[0])
        begun, busy = time.monotonic(), cpu_seconds(libvirtd, pid)
        waits = []
        while time.monotonic() < begun + seconds:
            time.sleep(1)
            waits.append(float(re.findall(r"rates of ([0-9.]+) s", terminal.screen())[0]))
        share = (cpu_seconds(libvirtd, pid) - busy) / (time.monotonic() - begun)
    return {"top_core_percent": round(100 * share, 3), "top_look_seconds": round(statistics.median(waits), 2)}


def cpu_seconds(libvirtd: Libvirtd, pid: int) -> float:
    """Processor time of a process of the host's, all threads."""
    return sum(int(line.split()[0]) for line in libvirtd.call(
        "sh", "-c", f"cat /proc/{pid}/task/*/schedstat").stdout.splitlines()) / 1e9


def main() -> int:
    """Exit status: 0."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.idletimed", description="What idletimed costs.")
    parser.add_argument("--domains", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60, help="how long to look at the idle daemon")
    arguments = parser.parse_args()
    quiet_libvirt()
    print(json.dumps(measure(arguments.domains, arguments.seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A foreground VM beside a greedy background VM that is stopped as a whole (paper 004, Figure 6), limited to a rate (paper 003,
5.1), or held request by request.

    python3 -m tests.bench.police [--resource disk] [--seconds 40] [--over-time] [--output build/bench/police] [--qemu PATH]

Two domains of a libvirtd of our own, with idletimed. disk: it serves one request at a time in 5 ms; the foreground reads for
25, 50 and 100 % of each 100 ms, the background without a pause. uplink (004, Table 1 and Figure 10): of 50 Mbit/s, which an
emulated guest fills, by which both send TCP in the same way. EII and IPD are `enforce='suspend'` with each rule; the interval
is 20 ms on the disk and 5 ms on the uplink, and the learned one with a budget of 3 %. Rate windows have paper 003's shares of
the disk: on above 10 %, off below 5 %, limit 5 %; on an uplink libvirt needs the kernel's act_police for them, which is not
everywhere, so there are none. Processors count for nothing there, since guests under TCG use them for everything. processors
(004, Figure 7): one foreground VM that computes, and two background VMs that never rest, on all of this host's; there is no
holding of these, so only what stops VMs is tried. --over-time is 003's Figure 8: on the disk the background reads for a
minute, and the foreground for the middle third of it without a pause; what both do each second. As root. One JSON line a run;
what is there is not run again. `python3 -m tests.report.police FILE` makes table and plot.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import libvirt
import numpy as np

from tests.bench import pair
from tests.bench.net.pair import PORTS, SETTLE_SECONDS, quantum_bytes
from tests.bench.net.plan import LINK as USUAL_LINK, at_rate
from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, initramfs, kernel, paths, run_folder
from tests.framework.domain import Domain, disk_xml, policy
from tests.framework.guest import Load
from tests.framework.idletimed import Idletimed, virt_idletime, wait_until
from tests.framework.interrupt import exit_status
from tests.framework.libvirtd import CONFIG, Libvirtd, quiet_libvirt
from tests.framework.process import Process
from tests.framework.qemu import Boot
from tests.report import police as report
from tests.testbed.disk import Disk, Model
from tests.testbed.link import BRIDGE, BRIDGE_SYSCTL, FAR, PREFIX, SINK_ADDRESS, UPLINK, Tap
from tests.testbed.namespace import Namespace
from tests.testbed.nic import configure
from tests.testbed.requests import of_client
from tests.testbed.sink import Sink, Window, goodput_mbit

INTENSITIES = (25, 50, 100)
ALONE, NONE = "alone", "no control"
EII, IPD, RATE, FIXED, AUTO = "EII", "IPD", "rate windows", "fixed interval", "interval, auto 3 %"
WAYS = (NONE, EII, IPD, RATE, FIXED, AUTO)
MODEL = Model(service_us=5000)
LINK = at_rate(USUAL_LINK, 50)
DAEMON = """
[suspend]
{thresholds}
rule = "{rule}"
[rate]
high-kbytes = {high}
low-kbytes = {low}
limit-kbytes = {low}
"""
THIRD_SECONDS = 20.0
"""Of Figure 8."""
TRACED = (NONE, RATE, EII, AUTO)
ALONE_SECONDS, WARM_UP_SECONDS, MOST_SECONDS, IDLE_SECONDS = 10.0, 4.0, 600.0, 60.0


@dataclass(frozen=True)
class Cell:
    """One run. before: of an alone one, the way that it is measured for, and right before, since a machine's speed changes."""

    way: str
    foreground: int
    before: str = ""

    @property
    def key(self) -> str:
        """Unique in the plan."""
        return f"{self.way}-{self.foreground}{self.before}".replace(" ", "").replace(",", "-")

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        return f"foreground {self.foreground} %, {self.way}"


class Rig:
    """A host with a foreground and a background domain, whose one disk is what they contend for."""

    names = ("fg", "bg")
    ways = WAYS
    thresholds = "cpu-percent = 0"
    in_force = True
    """All of a policy; else what matters of it is asked for."""
    inner = "<idletime:disk target='vda' resource='slow'/>"
    interval_us = 20000
    kbytes = 4096 * 1000 // 5000
    """What the resource does in a second, of requests of 4096 bytes."""

    def __init__(self, stack: ExitStack, qemu: str | None) -> None:
        boot = self._boot(qemu)
        self.facts = host.facts(boot)
        self.host = self._prepare(stack, boot)
        self._stack, self._rule, self._daemon, self._served = stack, "", ExitStack(), 0.0
        stack.push(self._daemon)
        self.foreground, *self.backgrounds = (self._domain(name, number) for number, name in enumerate(self.names))
        self.background = self.backgrounds[0]

    # ---- of the resource

    @staticmethod
    def _boot(qemu: str | None) -> Boot:
        return accel.prepare(qemu)

    def _prepare(self, stack: ExitStack, boot: Boot) -> Libvirtd:
        self._disk = stack.enter_context(Disk(MODEL))
        return stack.enter_context(Libvirtd(boot, "police", hook=True))

    def _devices(self, name: str, number: int) -> list[str]:
        return [disk_xml(self._disk, name)]

    def _started(self, domain: Domain, number: int) -> None:
        """The guest has booted."""

    def parameters(self) -> dict[str, Any]:
        """Of the resource, for reports."""
        return {"disk": self._disk.parameters()}

    def _greedy(self) -> Load:
        assert self.background.guest
        return self.background.guest.load(**pair.COMMON_LOAD, intensity=100, outstanding=1, seconds=MOST_SECONDS)

    def _measure(self, intensity: int, seconds: float) -> dict[str, Any]:
        """What the foreground did, and how much of it a second."""
        assert self.foreground.guest
        mark = self._disk.mark()
        result = self.foreground.guest.load(**{**pair.FOREGROUND_LOAD, "intensity": intensity}, quantum_ms=pair.QUANTUM_MS,
                                            outstanding=1, seconds=seconds).result()
        self._served = len(of_client(self._disk.read(mark), "bg")) / result["seconds"]
        return {"foreground": result, "foreground_rate": result["operations_per_second"]}

    def _over(self, load: Load) -> float:
        """End the background's load: what it did a second while the foreground was measured."""
        load.stop()
        load.result()
        return self._served

    # ---- of all

    def _domain(self, name: str, number: int) -> Domain:
        domain = Domain(self.host, name, policy("foreground", self.inner), self._devices(name, number))
        domain.define()
        domain.start().booted()
        self._stack.callback(domain.detach)
        self._started(domain, number)
        return domain

    def _policy(self, way: str) -> str:
        if way in (ALONE, NONE):
            return policy("foreground", self.inner)
        enforce = {EII: "suspend", IPD: "suspend", RATE: "rate"}.get(way)
        if enforce:
            return policy("background", self.inner).replace("class=", f"enforce='{enforce}' class=", 1)
        interval = f"us='{self.interval_us}'" if way == FIXED else "auto='yes' budget='3%'"
        return policy("background", f"<idletime:interval {interval}/>{self.inner}")

    def _control(self, way: str) -> None:
        rule = IPD.lower() if way == IPD else EII.lower()
        if rule != self._rule:
            self._rule = rule
            self._daemon.close()
            (self.host.run / CONFIG).write_text(DAEMON.format(
                rule=rule, thresholds=self.thresholds, high=self.kbytes // 10, low=self.kbytes // 20))
            self._daemon.enter_context(Idletimed(self.host))
        file = self.host.run / "policy.xml"
        file.write_text(self._policy(way))
        for domain in self.backgrounds:
            virt_idletime(self.host, "mark", domain.name, "--policy", "/run/policy.xml", check=self.in_force)

    def _runs(self) -> bool:
        return all(domain.dom.state()[0] == libvirt.VIR_DOMAIN_RUNNING for domain in self.backgrounds)

    def run(self, cell: Cell, seconds: float) -> dict[str, Any]:
        """What both did while the foreground worked."""
        self._control(cell.way)
        wait_until(self._runs, "all background VMs run", IDLE_SECONDS)
        if cell.way == ALONE:
            return self._measure(cell.foreground, ALONE_SECONDS)
        load = self._greedy()
        time.sleep(WARM_UP_SECONDS)  # it is seen to be alone
        result = self._measure(cell.foreground, seconds)
        wait_until(self._runs, "all background VMs run", IDLE_SECONDS)
        return {**result, "background": self._over(load)}

    def over_time(self, cell: Cell) -> dict[str, Any]:
        """Requests of both in each second, while the foreground comes and goes."""
        assert self.foreground.guest
        self._control(cell.way)
        wait_until(self._runs, "all background VMs run", IDLE_SECONDS)
        load, mark, begin = self._greedy(), self._disk.mark(), time.monotonic_ns()
        time.sleep(THIRD_SECONDS)
        self.foreground.guest.load(**pair.COMMON_LOAD, intensity=100, outstanding=1, seconds=THIRD_SECONDS).result()
        time.sleep(THIRD_SECONDS)
        requests = self._disk.read(mark)
        wait_until(self._runs, "all background VMs run", IDLE_SECONDS)
        self._over(load)
        edges = begin + np.arange(int(3 * THIRD_SECONDS) + 1) * 1_000_000_000
        return {name: np.histogram(of_client(requests, name)["finish_ns"], edges)[0].tolist() for name in ("fg", "bg")}


class UplinkRig(Rig):
    """The same with an uplink that both send by: a bridge in libvirtd's network, and a sink behind a token bucket."""

    ways = tuple(way for way in WAYS if way != RATE)
    inner = "<idletime:interface resource='uplink'/>"
    interval_us = 5000
    kbytes = LINK.rate_mbit * 1000 // 8

    @staticmethod
    def _boot(qemu: str | None) -> Boot:
        return accel.prepare(qemu, network=True)

    def _prepare(self, stack: ExitStack, boot: Boot) -> Libvirtd:
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idletime-")))
        # In this order: the interface's far end goes with the host's, and the namespace with it.
        self._sink = stack.enter_context(Namespace())
        result = stack.enter_context(Libvirtd(boot, "police", hook=True))
        result.call("mount", "-t", "sysfs", "sysfs", "/sys")  # of this network
        self._sink.command("ip", "link", "add", UPLINK, "type", "veth", "peer", "name", FAR)
        self._sink.command("ip", "link", "set", UPLINK, "netns", str(result.init_pid))
        bucket = ["root", "tbf", "rate", f"{LINK.rate_mbit}mbit", "burst", str(LINK.burst_bytes), "limit", str(LINK.queue_bytes)]
        for line in (f"link add {BRIDGE} type bridge", f"link set {BRIDGE} up", f"link set {UPLINK} master {BRIDGE} up"):
            result.call("ip", *line.split())
        result.call("sh", "-c", f"[ ! -e /proc/sys/{BRIDGE_SYSCTL} ] || echo 0 >/proc/sys/{BRIDGE_SYSCTL}")
        result.call("tc", "qdisc", "add", "dev", UPLINK, *bucket)
        self._sink.command("tc", "qdisc", "add", "dev", FAR, *bucket)
        self._sink.command("ip", "address", "add", f"{SINK_ADDRESS}/{PREFIX}", "dev", FAR)
        self._sink.command("ip", "link", "set", FAR, "up")
        return result

    def start(self, argv: list[str], log: Path) -> Process:
        """Start a process at the sink."""
        return self._sink.start(argv, log)

    def _devices(self, name: str, number: int) -> list[str]:
        return [f"<interface type='bridge'><mac address='{self._tap(number).mac}'/><source bridge='{BRIDGE}'/><model type='virtio'/>"
                "<driver name='qemu'/></interface>"]

    @staticmethod
    def _tap(number: int) -> Tap:
        return Tap(Rig.names[number], number, [])

    def _started(self, domain: Domain, number: int) -> None:
        assert domain.guest
        configure(domain.guest, self._tap(number))

    def parameters(self) -> dict[str, Any]:
        return {"link": LINK.parameters()}

    def _sends(self, domain: Domain, role: str, intensity: int, seconds: float) -> Load:
        assert domain.guest
        return domain.guest.netload("send", host=SINK_ADDRESS, port=PORTS[role], protocol="tcp", intensity=intensity,
                                    quantum_ms=pair.QUANTUM_MS, quantum_bytes=quantum_bytes(LINK.rate_mbit, intensity), seconds=seconds)

    def _greedy(self) -> Load:
        self._other = ExitStack()
        self._stack.push(self._other)
        self._takes = self._other.enter_context(Sink(self, "sink", protocol="tcp", port=PORTS["background"], seconds=MOST_SECONDS))
        return self._sends(self.background, "background", 100, MOST_SECONDS)

    def _measure(self, intensity: int, seconds: float) -> dict[str, Any]:
        with Sink(self, "sink", protocol="tcp", port=PORTS["foreground"], seconds=MOST_SECONDS) as sink:
            load = self._sends(self.foreground, "foreground", intensity, SETTLE_SECONDS + seconds)
            begin = time.monotonic_ns() + int(SETTLE_SECONDS * 1e9)
            result = load.result()
            self._window = Window(begin, begin + int(seconds * 1e9))
            return {"foreground": result, "foreground_rate": goodput_mbit(sink.report(), self._window)}

    def _over(self, load: Load) -> float:
        load.stop()
        load.result()
        with self._other:
            return goodput_mbit(self._takes.report(), self._window)


class ProcessorsRig(Rig):
    """The same with this host's processors."""

    names = ("fg", "bg", "bg2")
    ways = (NONE, EII, IPD)
    inner = ""
    thresholds = "device-percent = 0"

    @staticmethod
    def _boot(qemu: str | None) -> Boot:
        system = initramfs.get_initramfs(kernel.get_kernel(), programs=[paths.find_tool("cpuload", "loadgen")])
        return replace(accel.prepare(qemu), initramfs=system)

    def _prepare(self, stack: ExitStack, boot: Boot) -> Libvirtd:
        return stack.enter_context(Libvirtd(boot, "police", hook=True))

    def _devices(self, name: str, number: int) -> list[str]:
        return []

    def parameters(self) -> dict[str, Any]:
        return {"processors": len(os.sched_getaffinity(0))}

    @staticmethod
    def _computes(domain: Domain, intensity: int, seconds: float) -> Load:
        assert domain.guest
        return Load(domain.guest, "cpuload", {"intensity": intensity, "quantum_ms": pair.QUANTUM_MS, "seconds": seconds})

    def _greedy(self) -> Load:
        *self._others, last = (self._computes(domain, 100, MOST_SECONDS) for domain in self.backgrounds)
        return last

    def _used(self) -> float:
        """Processor seconds of all background VMs so far."""
        return sum(domain.dom.info()[4] / 1e9 for domain in self.backgrounds)

    def _measure(self, intensity: int, seconds: float) -> dict[str, Any]:
        before, begin = self._used(), time.monotonic()
        result = self._computes(self.foreground, intensity, seconds).result()
        self._served = (self._used() - before) / (time.monotonic() - begin)
        return {"foreground": result, "foreground_rate": result["operations_per_second"]}

    def _over(self, load: Load) -> float:
        for each in self._others:
            each.stop()
            each.result()
        return super()._over(load)


RIGS = {"disk": Rig, "uplink": UplinkRig, "processors": ProcessorsRig}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.police", description="A background VM that is stopped, or held.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "police", help="folder of the results")
    parser.add_argument("--resource", choices=RIGS, default="disk", help="what they contend for (disk)")
    parser.add_argument("--seconds", type=float, default=40, help="of a run")
    parser.add_argument("--over-time", action="store_true", help="what both do each second, while the foreground comes and goes")
    parser.add_argument("--qemu", metavar="PATH", help="the patched QEMU (the staged one)")
    return parser.parse_args()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = _arguments()
    if arguments.over_time and arguments.resource != "disk":
        raise SystemExit("error: --over-time is about the disk")
    of = "-over-time" if arguments.over_time else "" if arguments.resource == "disk" else f"-{arguments.resource}"
    results = ResultsFile(arguments.output / f"police{of}.jsonl")

    def work() -> None:
        run_folder.guard()
        kind = RIGS[arguments.resource]
        cells = [Cell(way, 100) for way in TRACED] if arguments.over_time else [
            cell for intensity in INTENSITIES for way in kind.ways for cell in (Cell(ALONE, intensity, way), Cell(way, intensity))]
        if missing := results.missing(cells):
            with ExitStack() as stack:
                rig = kind(stack, arguments.qemu)
                results.write("conditions", seconds=arguments.seconds, **rig.parameters(), **rig.facts)
                if arguments.over_time:
                    work_off(missing, lambda _: 3 * THIRD_SECONDS + 8,
                             lambda cell: results.write("run", key=cell.key, cell=asdict(cell), **rig.over_time(cell)))
                else:
                    work_off(missing, lambda cell: 12 if cell.way == ALONE else arguments.seconds + 8,
                             lambda cell: results.write("run", key=cell.key, cell=asdict(cell), **rig.run(cell, arguments.seconds)))
        (report.over_time if arguments.over_time else report.report)(results.path)

    return exit_status(work, lambda: f"the finished runs are in {results.path}; the same command goes on")


if __name__ == "__main__":
    quiet_libvirt()
    sys.exit(main())

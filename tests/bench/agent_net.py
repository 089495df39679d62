"""What `idletime run -- iperf3` does to foregrounds on the same uplink: series, nothing asserted.

    python3 -m tests.bench.agent_net [--seconds 5] [--output build/bench/agent-net.jsonl]

A guest with the agent, whose NIC has class `guest`, sends with iperf3 as fast as it can, under `idletime run`. The
foreground, TCP too, is in another VM or in the same one. "unheld": the NIC's class is `foreground`, so marks mean nothing.

One JSON line a run, with all parameters.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.framework import accel, agent, host, kernel, paths, series
from tests.framework.guest import Guest
from tests.framework.interrupt import exit_status
from tests.framework.qemu import Machine
from tests.testbed.link import SINK_ADDRESS, Link, Model
from tests.testbed.nic import NIC, RESOURCE, attach_nic, configure
from tests.testbed.sink import Sink, Window, goodput_mbit

LINK = Model(rate_mbit=100)
PORT = 5001
REPEATS = 3
SETTLE_SECONDS = 1.0
"""From the start of the loads to the window that is measured."""
MARGIN_SECONDS = 30.0
"""The sink listens so much longer: a busy host starts loads late."""

CASES = [("other", "alone"), *((where, how) for where in ("other", "same") for how in ("unheld", "5ms", "20ms")), ("same", "alone")]
"""Where the foreground is, and how the marked program is held."""

INTERVALS_US = {"alone": 5000, "unheld": 0, "5ms": 5000, "20ms": 20000}


class Uplink:
    """A context manager: two guests on one uplink, "other" of class foreground, "same" of class guest with the agent."""

    def __init__(self, model: Model = LINK, guest_kernel: str = "") -> None:
        self._model = model
        self._kernel = series.get_series(guest_kernel) if guest_kernel else kernel.get_kernel()

    def __enter__(self) -> Uplink:
        boot = agent.boot_with_agent(accel.prepare(network=True), self._kernel, network=True)
        self.conditions = host.facts(boot)
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idletime-")))
            self.link = stack.enter_context(Link(self._model))
            self.machines: dict[str, Machine] = {}
            for name, device_class in (("other", "foreground"), ("same", "guest")):
                tap = self.link.add_tap(name)
                arguments = attach_nic(tap, folder / "arena", device_class, max_inflight=2)
                self.machines[name] = stack.enter_context(Machine(boot, name, arguments, tap.fds))
                self.link.release(tap)
                configure(self.machines[name].guest, tap)
            self.marking = self.machines["same"].guest
            agent.AgentGuest(self.marking).start()
            stack.callback(self.link.start(["iperf3", "--server"], self.link.folder / "iperf3").stop)
            self._await_server(self.marking)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @staticmethod
    def _await_server(guest: Guest) -> None:
        """iperf3 does not say when it listens: ask until it does."""
        guest.run(f"for _ in $(seq 100); do nc -w 1 {SINK_ADDRESS} 5201 </dev/null && exit; usleep 50000; done; exit 1")

    def control(self, how: str) -> None:
        """The interval, and whether marks mean anything."""
        for machine in self.machines.values():
            machine.qmp.execute("qom-set", path=f"/objects/{RESOURCE}", property="interval-us", value=INTERVALS_US[how])
        device_class = "foreground" if how == "unheld" else "guest"
        self.machines["same"].qmp.execute("idletime-set", device=NIC, **{"class": device_class})

    def measure(self, where: str, how: str, seconds: float) -> dict[str, Any]:
        """One run: Mbit/s of the foreground within the window, and of iperf3 over its whole run."""
        self.control(how)
        total = seconds + SETTLE_SECONDS
        before = self.machines["same"].qmp.execute("query-idletime")[0]["devices"][0]["background"]["requests"]
        iperf3 = f"idletime run -- iperf3 --json --client {SINK_ADDRESS} --connect-timeout 20000 --time {total + 1:g}"
        with Sink(self.link, "sink", protocol="tcp", port=PORT, seconds=total + MARGIN_SECONDS) as sink:
            marked = self.marking.start(iperf3) if how != "alone" else None
            load = self.machines[where].guest.netload("send", host=SINK_ADDRESS, port=PORT, protocol="tcp", seconds=total)
            begin = time.monotonic() + SETTLE_SECONDS
            load.result()
            window = Window(round(begin * 1e9), round((begin + seconds) * 1e9))
            report = json.loads(self.marking.finish(marked, "iperf3", 60).text) if marked else None
            foreground = goodput_mbit(sink.report(), window)
        after = self.machines["same"].qmp.execute("query-idletime")[0]["devices"][0]["background"]["requests"]
        background = report["end"]["sum_received"]["bits_per_second"] / 1e6 if report else None
        return {"foreground_mbit_s": foreground, "iperf3_mbit_s": background, "background_packets": after - before}


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.agent_net", description="Marked iperf3: series.")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run (5)")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "agent-net.jsonl", help="written anew")
    arguments = parser.parse_args()
    return exit_status(lambda: _run(arguments.seconds, arguments.output))


def _run(seconds: float, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as output, Uplink() as uplink:
        def write(**values: Any) -> None:
            line = json.dumps({"program": "agent-net", **values})
            print(line, file=output, flush=True)
            print(line, flush=True)

        write(kind="conditions", link=LINK.parameters(), repeats=REPEATS, **uplink.conditions)
        for where in ("other", "same"):
            uplink.measure(where, "unheld", 1.0)
        for repeat in range(REPEATS):
            for where, how in CASES if repeat % 2 == 0 else reversed(CASES):
                write(kind="run", foreground=where, case=how, repeat=repeat, interval_us=INTERVALS_US[how],
                      seconds=seconds, **uplink.measure(where, how, seconds))


if __name__ == "__main__":
    sys.exit(main())

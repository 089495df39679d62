"""What Idletime would do on an uplink of this host: what the kernel tells of it, and then the network's demo on a model of its rate.

    python3 -m tests.bench.uplink INTERFACE [--rate-mbit N] [--facts]

`make demo UPLINK=INTERFACE` calls it. To measure the uplink itself its packets would have to reach somebody, and whoever that
is did not ask for a flood. So nothing is sent and nothing is set here: the interface is read, and the measured uplink is a
token bucket of the same rate in network namespaces of this program's own. Its figures are the rate's, not this network's.
"""

from __future__ import annotations

import argparse
import os
import sys

from tests.framework import accel, paths
from tests.framework.interrupt import exit_status
from tests.report.netresults import ETHERNET_BYTES, MTU
from tests.testbed import interface
from tests.testbed.interface import Facts

MOST_MBIT = {"tcg": 100, "kvm": 1000}
"""What the guests of the demo fill with certainty; above it processors are what is contended for, and no uplink."""

UNKNOWN_MBIT = 100

PACKETS, LEAST_US = 4, 2000
"""The interval of an uplink with auto=on: uplink/interval.c."""

SECONDS = 2


def interval_us(rate_mbit: int) -> int:
    """What auto=on would use at this rate."""
    return max(LEAST_US, PACKETS * (MTU + ETHERNET_BYTES) * 8 // rate_mbit)


def _known(value: object) -> str:
    return "not known" if value in (None, ()) else ", ".join(value) if isinstance(value, tuple) else str(value)


def facts_text(facts: Facts) -> str:
    """What the kernel tells."""
    rate = f"{facts.rate_mbit} Mbit/s, {facts.duplex or 'unknown'} duplex" if facts.rate_mbit else "not told (a virtual interface, or no link)"
    place = f"{facts.bridge}, beside {_known(facts.neighbours) if facts.neighbours else 'nobody'}" if facts.bridge else "none"
    through = {None: "no (br_netfilter is not loaded)", False: "no", True: "yes (br_netfilter)"}[facts.br_netfilter]
    rows = {
        "link": "up" if facts.link_up else "down", "rate": rate, "MTU": facts.mtu, "driver": _known(facts.driver),
        "transmit queues": facts.queues, "qdisc": _known(facts.qdiscs), "made of": ", ".join(facts.below) or "itself",
        "bridge": place, "bridged packets pass iptables": through,
    }
    return "\n".join(f"  {name:<31}{value}" for name, value in rows.items())


def advice(facts: Facts) -> list[str]:
    """What Idletime would do on it, and what the operator has to say."""
    if facts.is_bridge:
        return [f"{facts.name} is a bridge: the resource is the port that leads out of it; ask for that one."]
    rate = facts.rate_mbit or UNKNOWN_MBIT
    lines = [f"The resource would be called {facts.name}; it is that of all VMs whose taps are on "
             f"{facts.bridge or 'a bridge with it, or that the host routes out by it'}.",
             f"The interval with auto: {interval_us(rate) / 1000:g} ms{'' if facts.rate_mbit else f', if its rate is {rate} Mbit/s'}."]
    if facts.br_netfilter:
        lines.append("br_netfilter is on, so the kernel forgets whose a packet is, and QEMU has to be told what the link carries.\n"
                     f"In a file of /etc/idletime/resources.d, with the rate that you really have:  [{facts.name}]  rate = \"{rate}Mbit\"")
    else:
        lines.append("A rate need not be set: the host says when a packet has left.")
    if not facts.link_up:
        lines.append("The link is down: nothing passes it now.")
    return lines


def modelled_mbit(facts: Facts, accelerator: str, wanted: int | None) -> tuple[int, str]:
    """The rate of the model, and why it is that."""
    if wanted:
        return wanted, "as asked for"
    most, rate = MOST_MBIT[accelerator], facts.rate_mbit
    if rate is None:
        return UNKNOWN_MBIT, "as the interface tells no rate; RATE_MBIT=N asks for another"
    if rate > most:
        return most, f"as guests under {accelerator.upper()} fill no {rate} Mbit/s here; RATE_MBIT=N asks for another"
    return rate, "that of the interface"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.uplink", description="What Idletime would do on an uplink.")
    parser.add_argument("interface")
    parser.add_argument("--rate-mbit", type=int, metavar="N", help="rate of the model; without it the interface's, as far as the guests reach")
    parser.add_argument("--facts", action="store_true", help="only say what the interface is")
    return parser.parse_args()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`; then that of the network's demo."""
    arguments = _arguments()

    def work() -> None:
        facts = interface.read(arguments.interface)
        print(f"{facts.name}, as this host's kernel has it:\n{facts_text(facts)}\n")
        print("\n".join(advice(facts)))
        print(f"\nNothing was sent through {facts.name}, and nothing will be: whoever is behind it did not ask for it. So what its network\n"
              "would do is not known; what follows is a model of the rate, in network namespaces of its own.", flush=True)
        if arguments.facts:
            return
        rate, why = modelled_mbit(facts, accel.prepare(network=True).accel, arguments.rate_mbit)
        print(f"Modelled: {rate} Mbit/s, {why}.\n", flush=True)
        output = paths.BUILD / "demo-uplink"
        os.execv(sys.executable, [sys.executable, "-m", "tests.bench.net", "short", "--seconds", str(SECONDS),
                                  "--rate-mbit", str(rate), "--output", str(output)])

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())

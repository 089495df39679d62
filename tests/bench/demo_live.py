# SPDX-License-Identifier: GPL-2.0-or-later
"""The live demo: the demo's two VMs run, and Cockpit's page shows what their disk does while one moves the interval.

    python3 -m tests.bench.demo_live [--quantum-ms N]

The foreground is busy for 30 % of each quantum; the background reads without a pause. The page is served on 127.0.0.1 to
whoever has the password that is printed, which is made for this run. It runs until Ctrl-C. Needs root: libvirtd and
cockpit-ws run in namespaces of their own.
"""

from __future__ import annotations

import argparse
import os
import sys

from tests.bench.demo import DISK
from tests.bench.demo_libvirt import BACKGROUND, FOREGROUND, LibvirtPair
from tests.bench.pair import BACKGROUND_LOAD
from tests.framework import accel
from tests.framework.cockpit import PAGE, Cockpit, lacking, make_visitor
from tests.framework.interrupt import exit_status
from tests.framework.libvirtd import quiet_libvirt

QUANTUM_MS = 1000
"""Ten bursts in the ten seconds that the page shows."""

LOAD_SECONDS, OUTSTANDING = 600, 4


class Lacking(RuntimeError):
    """This machine has no Cockpit, or the page is not built."""


def browse(cockpit: Cockpit) -> str:
    """What to tell the visitor. The browser is his: this program is root's, and browsers do not run as root."""
    url = cockpit.url + PAGE
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return f"Open {url}"
    return f"This machine has no display. Elsewhere: ssh -L {cockpit.port}:127.0.0.1:{cockpit.port} HERE, and open {url}"


def show(quantum_ms: int) -> None:
    """Until somebody ends it."""
    if missing := lacking():
        raise Lacking(f"not there: {', '.join(missing)}; run 'make demo-live', which installs and builds them")
    with LibvirtPair(accel.prepare(), DISK, quantum_ms) as pair:
        pair.control(5000, 3)
        visitor, cockpit = make_visitor(pair.host), Cockpit(pair.host, user=None)
        try:
            print(f"{FOREGROUND} is the foreground, {BACKGROUND} the background: set its interval below the timeline.\n"
                  f"{browse(cockpit)}\n"
                  f"User name {visitor.name}, password {visitor.password}\nCtrl-C ends it.", flush=True)
            while True:
                loads = [
                    pair.background.guest.load(**BACKGROUND_LOAD, outstanding=OUTSTANDING, seconds=LOAD_SECONDS),
                    pair.foreground.guest.load(**pair.foreground_load, outstanding=1, seconds=LOAD_SECONDS)]
                for load in loads:
                    load.result()
        finally:
            cockpit.stop()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.demo_live", description="What the disk of two VMs does, live.")
    parser.add_argument("--quantum-ms", type=int, default=QUANTUM_MS, metavar="N",
                        help=f"the foreground is busy for 30 %% of each N ms ({QUANTUM_MS})")
    arguments = parser.parse_args()
    quiet_libvirt()
    return exit_status(lambda: show(arguments.quantum_ms), unavailable=(Lacking,))


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: GPL-2.0-or-later
"""idletime-openstack-evict: the program, on a controller; several may run, and one of them acts."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Sequence

from . import evict_settings, settings
from .compute import Compute
from .evict_settings import PROGRAM
from .evictor import Evictor
from .leader import Alone, Elected, Leader
from .metrics import Metrics
from .notify import notify
from .placement import Placement

ALIVE_SECONDS = 60.0
"""A fifth of the unit's WatchdogSec."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 ended by a signal or --once done, 1 --once failed, 2 wrong settings."""
    logging.basicConfig(format="%(name)s: %(message)s", level=logging.INFO)
    logging.getLogger("keystoneauth").setLevel(logging.ERROR)  # says again what we say
    metrics = Metrics()
    try:
        conf = evict_settings.load(sys.argv[1:] if arguments is None else arguments)
        policy = evict_settings.policy(conf)
        said = conf.eviction
        leader: Leader = Elected(said.coordination) if said.coordination else Alone()
        evictor = Evictor(Compute(evict_settings.nova(conf)), Placement(settings.keystone(conf)), leader, policy, metrics)
        _serve(metrics, said.metrics_address, said.metrics_port)
    except settings.SettingsError as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return 2
    try:
        return _once(evictor) if conf.once else _run(evictor, said.look_seconds)
    finally:
        leader.stop()


def _serve(metrics: Metrics, address: str, port: int) -> None:
    if not port:
        return
    try:
        metrics.serve(address, port)
    except OSError as error:
        raise settings.SettingsError(f"[eviction] metrics_address '{address}', metrics_port {port}: {error.strerror or error}; "
                                     "remedy: an address of this host and a free port, or metrics_port = 0") from error


def _once(evictor: Evictor) -> int:
    return 0 if evictor.try_look() else 1


def _run(evictor: Evictor, look_seconds: int) -> int:
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    notify(READY="1")
    while not ended.is_set():
        evictor.try_look()
        left = float(look_seconds)
        while left > 0 and not ended.wait(min(left, ALIVE_SECONDS)):
            left -= ALIVE_SECONDS
            notify(WATCHDOG="1")
    notify(STOPPING="1")
    return 0


if __name__ == "__main__":
    sys.exit(main())

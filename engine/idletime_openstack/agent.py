# SPDX-License-Identifier: GPL-2.0-or-later
"""idletime-openstack: keeps what Placement knows of this host's spare time. Facts, a pure decision, an act, all anew each time.

Nothing is kept but what was said last, so that the same reason is logged once. Placement that is not there, or refuses, is
asked again at the next look; servers run and boot meanwhile as Placement knew it last, and those of other flavors as ever.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from . import gauge, settings
from .gauge import Gauge, Resource
from .placement import Conflict, Placement, PlacementError
from .providers import KINDS, RENEW_SECONDS, Present, SetInventory, Step, prefix, steps, wanted
from .saying import Saying

log = logging.getLogger("idletime-openstack")

ROUNDS = 3
"""Make a provider, give it traits, give it its inventory."""

RETIRED = Gauge(problem="this host offers nothing any more, as --retire asks")

LASTING = 3
"""Looks in a row that end in a conflict: that is no chance any more, and is said."""


class Agent:
    """One compute node. read: gives the gauge; clock: seconds that do not go back."""

    def __init__(self, placement: Placement, host: str, read: Callable[[], Gauge],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._placement, self._host, self._read, self._clock = placement, host, read, clock
        self._say = Saying(log).say
        self._prepared = False
        self._renewed: float | None = None
        self._conflicts = 0

    def look(self) -> list[Step]:
        """Bring Placement to what the gauge says; what was done. Raises PlacementError."""
        found = self._read()
        self._say("gauge", found.problem)
        if not self._prepared:
            self._placement.prepare()
            self._prepared = True
        root = self._placement.root(self._host)
        self._say("root", "" if root else f"Placement has no provider '{self._host}'; remedy: start nova-compute once, or set "
                  "provider in [idletime] (openstack resource provider list)")
        done: list[Step] = []
        now = self._clock()
        renew = self._renewed is None or now - self._renewed >= RENEW_SECONDS
        conflict: Conflict | None = None
        missed = False
        for number in range(ROUNDS if root else 0):
            there = self._placement.children(self._host, str(root))
            want = wanted(self._host, str(root), found.resources or unknown(self._host, there, found))
            todo = steps(want, there, renew and number == 0)
            conflict = None
            for step in todo:
                try:
                    self._placement.do(str(root), step)
                except Conflict as error:
                    conflict, missed = error, True  # of one resource; the others' steps are done
                    continue
                self._log(step)
                done.append(step)
            if not todo:
                break
        if conflict:
            raise conflict
        if root and renew and not missed:
            self._renewed = now
        return done

    def try_look(self) -> bool:
        """As look(); what goes wrong is logged once, and the next look comes."""
        try:
            self.look()
            self._say("placement", "")
            self._conflicts = 0
            return True
        except Conflict as error:
            self._conflicts += 1
            if self._conflicts >= LASTING:
                self._say("placement", str(error))
            log.debug("%s", error)  # the next look sees what is there then
        except PlacementError as error:
            self._say("placement", str(error))
        except Exception as error:  # whatever it is, the next look comes
            self._say("placement", f"a fault of ours: {type(error).__name__}: {error}")
        return False

    def _log(self, step: Step) -> None:
        if isinstance(step, SetInventory):
            log.debug("%s: %s", step.uuid, step.inventories)
        else:
            log.info("%s", step)


def unknown(host: str, there: Sequence[Present], found: Gauge) -> tuple[Resource, ...]:
    """Without a gauge the providers stay, and nothing is free in them; what was empty stays so. A gauge without resources has
    none. Pure."""
    if not found.problem:
        return ()
    return tuple(Resource(one.name.removeprefix(prefix(host)), "disk" if "CUSTOM_IDLETIME_DISK" in one.traits else "interface",
                          False, None) for one in there if KINDS.keys() & one.traits)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 ended by a signal, --once or --retire done, 1 these failed, 2 wrong settings."""
    logging.basicConfig(format="%(name)s: %(message)s", level=logging.INFO)
    try:
        conf = settings.load(sys.argv[1:] if arguments is None else arguments)
        agent = Agent(Placement(settings.keystone(conf)), settings.provider(conf),
                      (lambda: RETIRED) if conf.retire else lambda: gauge.read(Path(conf.idletime.gauge)))
    except settings.SettingsError as error:
        print(f"idletime-openstack: error: {error}", file=sys.stderr)
        return 2
    if conf.once or conf.retire:
        return 0 if agent.try_look() else 1
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    while not ended.is_set():
        agent.try_look()
        ended.wait(conf.idletime.look_seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: GPL-2.0-or-later
"""idletimed: joins libvirt's events, guest agents and QEMUs.

    idletimed [--config FILE] [--connect URI] [--debug]

Events mark domains; a few threads settle the marked ones; agents' states are wishes that the next look takes into
account. Nothing is kept here that is not in libvirt or in QEMU: when it is down, all stays as it was set, and when
it comes back it looks at everything once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import secrets
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..conf import resources, rules
from ..resolve.tree import Tree
from . import settings as settings_room
from .channel import Channel, Ears
from .guests import Agent
from .hands import Hands
from .host import Host, Listener
from .protocol import State
from .settings import Settings
from .settle import Looked, Memory, settle
from .waiting import Queue
from .ways import Watch

TICK_SECONDS = 5.0
"""How often silence and hanging threads are looked for."""

log = logging.getLogger("idletimed")


class Daemon:
    """All of it. Context: the event loop; only settle() runs elsewhere."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.session = f"host-{secrets.token_hex(4)}"
        self.loop = asyncio.get_running_loop()
        self.queue, self.memory = Queue(), Memory()
        self.agents: dict[str, Agent] = {}
        self.channels: dict[str, Channel] = {}
        self.said: dict[str, tuple[str, ...]] = {}
        self.wrong: tuple[str, ...] = ()
        self.wake = asyncio.Event()
        self.begun = 0
        self.tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references
        self.stopping = False
        self.host = Host(settings.uri, Listener(self.appeared, self.touched, self.reset))
        self.hands = Hands(self.host.open)
        self.watch = Watch(self._touch_all)

    # ---- what happens

    def appeared(self, uuids: list[str]) -> None:
        """libvirt is there, with these domains."""
        for uuid in self.queue.known() - set(uuids):
            self._forget(uuid)
        for uuid in uuids:
            self.touched(uuid)

    def touched(self, uuid: str) -> None:
        """Something happened to a domain."""
        self.queue.touch(uuid, self.loop.time())
        self.wake.set()

    def _touch_all(self) -> None:
        self._read_files()
        for uuid in self.queue.known():
            self.touched(uuid)

    def reset(self, uuid: str) -> None:
        """A guest was reset: its processes are gone, and so is what they asked for."""
        agent = self.agents.get(uuid)
        if agent is not None and agent.forget():
            self.touched(uuid)

    def heard(self, uuid: str, state: State) -> None:
        """An agent said what it wants."""
        agent, channel = self.agents[uuid], self.channels[uuid]
        now = self.loop.time()
        if agent.hear(state, now):
            channel.charge_wish(now)
            self.touched(uuid)
        else:
            channel.say(agent.message())

    # ---- what is done

    async def run(self) -> None:
        """Settle what is marked, until stop()."""
        self._read_files()
        ticker = asyncio.create_task(self._tick())
        try:
            while not self.stopping:
                self._begin_all()
                await self._sleep()
        finally:
            ticker.cancel()
            for channel in self.channels.values():
                channel.close()
            self.watch.close()
            self.host.close()
            self.hands.close()

    def stop(self) -> None:
        """End run(); QEMUs keep what they have."""
        self.stopping = True
        self.wake.set()

    async def _sleep(self) -> None:
        wait = self.queue.wait_seconds(self.loop.time()) if self.begun < self.hands.room() else None
        self.wake.clear()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.wake.wait(), wait)

    def _begin_all(self) -> None:
        while self.begun < self.hands.room() and (uuid := self.queue.take(self.loop.time())) is not None:
            self.begun += 1
            task = asyncio.create_task(self._settle(uuid))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _settle(self, uuid: str) -> None:
        agent = self.agents.get(uuid)
        asked = agent.asked if agent else None
        looked, succeeded = None, False
        try:
            looked = await self.hands.do(settle, uuid, asked, self.settings, self.memory)
            succeeded = looked is None or not looked.failed
        except Exception as error:  # whatever it is, the other domains are served
            self._say(uuid, uuid, (f"{type(error).__name__}: {error}",))
        self.begun -= 1
        self.queue.done(uuid, self.loop.time(), succeeded)
        if looked is not None:
            self._seen(uuid, looked, asked)
        elif succeeded:
            self._forget(uuid)
        self.wake.set()

    def _seen(self, uuid: str, looked: Looked, asked: Any) -> None:
        self._say(uuid, looked.name, looked.problems)
        if not looked.active or looked.channel is None:
            self._hang_up(uuid)
            return
        if uuid in self.channels and self.channels[uuid].path != looked.channel:
            self._hang_up(uuid)  # another run of the domain
        agent = self.agents.setdefault(uuid, Agent(self.session, self.loop.time()))
        agent.see(looked, asked)
        if uuid not in self.channels:
            ears = Ears(agent.message, lambda state: self.heard(uuid, state))
            self.channels[uuid] = Channel(looked.name, looked.channel, ears)
        elif (message := agent.message()) != agent.told:
            agent.told = message
            self.channels[uuid].say(message)

    def _say(self, uuid: str, name: str, problems: tuple[str, ...]) -> None:
        """Log what is new: the same problem of a domain is said once."""
        for problem in problems:
            if problem not in self.said.get(uuid, ()):
                log.warning("domain '%s': %s", name, problem)
        self.said[uuid] = problems

    def _hang_up(self, uuid: str) -> None:
        self.agents.pop(uuid, None)
        channel = self.channels.pop(uuid, None)
        if channel is not None:
            channel.close()

    def _forget(self, uuid: str) -> None:
        self._hang_up(uuid)
        self.said.pop(uuid, None)
        self.memory.made.pop(uuid, None)
        self.queue.forget(uuid)

    async def _tick(self) -> None:
        last, resync = self.loop.time(), self.loop.time()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self.loop.time()
            try:
                self._look_around(now, last)
            except Exception:  # whatever it is, the next tick comes
                log.exception("a fault of ours; going on")
            if now - resync >= self.settings.resync_seconds:
                resync = now
                self._touch_all()
            last = now

    def _read_files(self) -> None:
        """What is wrong below /etc/idletime is logged once; such files are left out until they are mended."""
        tree = Tree("/")
        found = tuple(map(str, (*resources.load(tree).findings, *rules.load(tree).findings)))
        for problem in found:
            if problem not in self.wrong:
                log.warning("%s", problem)
        self.wrong = found

    def _look_around(self, now: float, last: float) -> None:
        """What time alone brings: silent agents, threads that hang."""
        for uuid, agent in list(self.agents.items()):
            if agent.tick(now, last):
                self.touched(uuid)
        if hanging := self.hands.watch(time.monotonic()):
            log.warning("%d domains do not answer for more than 10 s; the others are served", hanging)
            self.wake.set()


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="idletimed", description="Keeps running domains at their Idletime policy.")
    parser.add_argument("--config", type=Path, default=settings_room.FILE, metavar="FILE",
                        help=f"settings ({settings_room.FILE})")
    parser.add_argument("--connect", metavar="URI", help="libvirt to serve, instead of the setting")
    parser.add_argument("--debug", action="store_true", help="say more")
    return parser.parse_args(argv)


async def _run(settings: Settings) -> None:
    daemon = Daemon(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        daemon.loop.add_signal_handler(number, daemon.stop)
    await daemon.run()


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 ended by a signal, 2 wrong settings."""
    arguments = _arguments(argv)
    logging.basicConfig(format="idletimed: %(message)s", level=logging.DEBUG if arguments.debug else logging.INFO)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    try:
        settings = settings_room.load(arguments.config)
    except settings_room.SettingsError as error:
        print(f"idletimed: error: {error}", file=sys.stderr)
        return 2
    if arguments.connect:
        settings = replace(settings, uri=arguments.connect)
    asyncio.run(_run(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())

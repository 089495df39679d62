# SPDX-License-Identifier: GPL-2.0-or-later
"""idletimed: joins libvirt's events, guest agents and QEMUs.

    idletimed [--config FILE] [--connect URI] [--debug] [--release]

Events mark domains; a few threads settle the marked ones; agents' states are wishes that the next look takes into
account. VMs without libvirt are looked at by the clock (folder.py). Some are stopped as a whole for a while (police.py), and go
on when it ends. Nothing else is kept here that is not in libvirt or in
QEMU: when it is down, all stays as it was set, and when it comes back it looks at everything once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import resource
import secrets
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import libvirt

from .. import VERSION, state
from ..conf import files, resources, rules
from ..gauge.place import Place, places
from ..resolve.tree import Tree
from . import alive, arena, native, police
from . import settings as settings_room
from .api import Api
from .channel import Channel, Ears
from .folder import UNSEEN_SECONDS, Folder
from .gauge import Gauges
from .guests import Agent
from .hands import Hands
from .host import Host, Listener
from .linger import Linger
from .memory import Memory
from .metrics_look import Counts, Looks
from .observe import decide
from .observers import Observers
from .police import Police
from .protect import Protection
from .protocol import State
from .records import Records
from .settings import Settings
from .settle import Looked, settle
from .space import Space
from .waiting import Queue
from .watched import Part
from .ways import Watch

TICK_SECONDS = 2.0
"""How often silence, hanging threads and changed files are looked for."""

OBSERVE_SECONDS = 0.25
"""What many looks bring is one decision about observers: all VMs are in it."""

EXPORTS_SECONDS = (0.1, 0.5, 2.0)
"""When to look for the exports of a backup that has begun: its program may read through them at once."""

ASKED_MOST = 4
"""Threads for what the API is asked, where QEMUs hang."""

_FOLDERS = (rules.FOLDER, resources.FOLDER)

log = logging.getLogger("idletimed")


class Daemon:
    """All of it. Context: the event loop; only settle() runs elsewhere."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.session = f"host-{secrets.token_hex(4)}"
        self.loop = asyncio.get_running_loop()
        self.queue, self.rules = Queue(), rules.Rules()
        before = files.remembered(Tree("/", settings.run_dir))
        self.kept_rules, self.kept_resources = dict(before), dict(before)
        self.agents: dict[str, Agent] = {}
        self.channels: dict[str, Channel] = {}
        self.said: dict[str, tuple[str, ...]] = {}
        self.wrong: tuple[str, ...] = ()
        self.read: files.Stamps = ()
        self.arenas: frozenset[str] = frozenset()
        self.resynced = 0.0
        self.wake = asyncio.Event()
        self.observing: asyncio.TimerHandle | None = None
        self.begun = 0
        self.tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references
        self.stopping, self.counts = False, Counts()
        self.host = Host(settings.uri, Listener(
            self.appeared, self.touched, self.reset, self.counts.deeds.moved)) if settings.uri else None
        self.hands = Hands(self.host.open if self.host else lambda: None)
        self.parts: dict[str, Part] = {}
        self.unseen: set[str] | None = set() if self.host is None else None  # domains not looked at yet; None: nobody knows
        self.waits_until = 0.0  # for those of them that cannot be looked at
        self.observers, self.said_of = Observers(settings), resources.Resources()
        self.asked = Hands(self.hands.connect, 1, ASKED_MOST) if settings.uri and settings.api.socket else None
        self.api = Api(settings.run_dir, self.asked, lambda: (self.rules, self.said_of))
        self.metrics = self.api.looks = Looks(settings, self.counts, self.hands.connect, self.api.respond)
        self.folder = Folder(settings, lambda: self.rules, self._say, self.observe, self.counts.look)
        self.gauges = Gauges(settings.run_dir, self._places)
        self.police = Police(self.hands.connect, settings.suspend, rate=settings.rate, touch=self.touched,
                             deeds=self.counts.deeds, parts=lambda: self.parts.values())
        self.memory = Memory(self.hands.connect, settings, self.touched, deeds=self.counts.deeds)
        self.space = Space(self.hands.connect, settings, self.touched, self.counts.deeds)
        self.linger = Linger(self.hands.connect, settings, self.touched, self.police.stopped_seconds, self.counts.deeds)
        self.watch = Watch(self.touch_all)
        self.names: dict[str, str] = {}  # UUID of each domain that runs
        self.later: dict[str, asyncio.TimerHandle] = {}  # domains with jobs that have a deadline
        self.records = Records(native.RECORDS.get(settings.uri), self.rerouted)

    # ---- what happens

    def appeared(self, uuids: list[str]) -> None:
        """libvirt is there, with these domains."""
        state.keep_domains(self.settings.run_dir, uuids)
        for uuid in self.queue.known() - set(uuids):
            self._forget(uuid)
        if self.unseen is None:
            self.unseen, self.waits_until = set(uuids), self.loop.time() + UNSEEN_SECONDS
        for uuid in uuids:
            self.queue.touch(uuid, self.loop.time(), event=False)
        self.wake.set()
        self.records.watch()
        self.observe()

    def touched(self, uuid: str) -> None:
        """Something happened to a domain."""
        self.queue.touch(uuid, self.loop.time())
        self.wake.set()

    def rerouted(self, name: str) -> None:
        """Something else is behind a device of a running domain."""
        if name in self.names:
            self.touched(self.names[name])

    def touch_all(self) -> None:
        """Look at everything anew: a signal, a change of routes or files, or the clock."""
        self._read_files()
        for uuid in self.queue.known():
            self.queue.touch(uuid, self.loop.time(), event=False)
        self.wake.set()
        self.folder.touch_all()

    def observe(self) -> None:
        """Bring observers to what holds, soon."""
        if self.observing is None and not self.stopping:
            self.observing = self.loop.call_later(OBSERVE_SECONDS, self._observe)

    def _observe(self) -> None:
        """Not before all VMs have been looked at: those that run go on meanwhile."""
        self.observing = None
        alone = self.folder.parts()
        if self.unseen is None or self.unseen or alone is None:
            return
        said = {one.name: one.observe for one in self.said_of.all}
        idle = {one.name for one in self.said_of.all if one.idle_class}
        self.observers.want(decide([*self.parts.values(), *alone], said, idle) if self.settings.observer else ())

    def _places(self) -> Callable[[], tuple[Place, ...]]:
        """For the gauge: what is known now; its thread looks up the rest."""
        parts, said = [*self.parts.values(), *(self.folder.parts() or ())], self.said_of
        return lambda: places(parts, said, self.settings.run_dir, Tree("/"))

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
            agent.told = b""  # each state has its answer, one that is repeated too
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
            if self.observing is not None:
                self.observing.cancel()
            for handle in self.later.values():
                handle.cancel()
            await self.linger.close()
            await self.police.close()
            await self.memory.close()
            await self.space.close()
            for channel in self.channels.values():
                channel.close()
            self.metrics.close()
            await self.gauges.close()
            self.observers.close()
            self.watch.close()
            self.records.close()
            self.folder.close()
            if self.host:
                self.host.close()
            self.hands.close()
            if self.asked:
                self.asked.close()
            state.remove_daemon(self.settings.run_dir)

    def stop(self) -> None:
        """End run(); QEMUs keep what they have, and VMs that were stopped go on."""
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
        looked, succeeded, began = None, False, time.monotonic()
        try:
            looked = await self.hands.do(settle, uuid, asked, self.settings, self.rules)
            succeeded = looked is None or not looked.failed
        except Exception as error:  # whatever it is, the other domains are served
            self._say(uuid, uuid, (f"{type(error).__name__}: {error}",))
        self.begun -= 1
        self.counts.look(began, not succeeded)
        self.queue.done(uuid, self.loop.time(), succeeded)
        try:
            if looked is not None:
                self._seen(uuid, looked, asked)
            elif succeeded:
                self._forget(uuid)
        except Exception as error:  # a fault of ours; this one is looked at again at the next event, the others go on
            self._say(uuid, uuid, (f"a fault of ours: {type(error).__name__}: {error}",))
        if self.unseen and succeeded:
            self.unseen.discard(uuid)
        self.observe()
        self.wake.set()

    def _seen(self, uuid: str, looked: Looked, asked: Any) -> None:
        self._say(uuid, looked.name, looked.problems)
        self.police.seen(uuid, looked)
        self.memory.seen(uuid, looked)
        self.space.seen(uuid, looked)
        self.linger.seen(uuid, looked)
        self._forget_name(uuid)
        self._again(uuid, looked.again_seconds)
        for seconds in EXPORTS_SECONDS if looked.more_to_come else ():
            self.loop.call_later(seconds, self._touch, uuid)
        if looked.active:
            self.names[looked.name] = uuid
            if looked.part is not None:
                self.parts[uuid] = looked.part
        else:
            self.parts.pop(uuid, None)
            state.remove_domain(self.settings.run_dir, uuid)
        if looked.channel is None:
            self._hang_up(uuid)
            return
        if uuid in self.channels and (self.channels[uuid].path, self.channels[uuid].pid) != (looked.channel, looked.pid):
            self._hang_up(uuid)  # another run of the domain
        agent = self.agents.setdefault(uuid, Agent(self.session, self.loop.time()))
        agent.see(looked, asked)
        if uuid not in self.channels:
            ears = Ears(agent.message, lambda state: self.heard(uuid, state))
            self.channels[uuid] = Channel(looked.name, looked.channel, ears, looked.pid)
        elif (message := agent.message()) != agent.told:
            agent.told = message
            self.channels[uuid].say(message)

    def _again(self, uuid: str, seconds: float | None) -> None:
        """Look at a domain once more after so long, whatever happens before."""
        if uuid in self.later:
            self.later.pop(uuid).cancel()
        if seconds is not None:
            self.later[uuid] = self.loop.call_later(seconds, self._touch_again, uuid)

    def _touch_again(self, uuid: str) -> None:
        self.later.pop(uuid, None)
        self._touch(uuid)

    def _touch(self, uuid: str) -> None:
        self.queue.touch(uuid, self.loop.time(), event=False)
        self.wake.set()

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

    def _forget_name(self, uuid: str) -> None:
        self.names = {name: one for name, one in self.names.items() if one != uuid}

    def _forget(self, uuid: str) -> None:
        self._hang_up(uuid)
        self._forget_name(uuid)
        self._again(uuid, None)
        self.police.forget(uuid)
        self.memory.forget(uuid)
        self.space.forget(uuid)
        self.linger.forget(uuid)
        self.parts.pop(uuid, None)
        state.remove_domain(self.settings.run_dir, uuid)
        self.said.pop(uuid, None)
        self.queue.forget(uuid)
        if self.unseen:
            self.unseen.discard(uuid)

    async def _tick(self) -> None:
        last = self.resynced = self.loop.time()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self.loop.time()
            try:
                self._look_around(now, last)
                self._resync(now)
            except Exception:  # whatever it is, the next tick comes
                log.exception("a fault of ours; going on")
            last = now

    def _resync(self, now: float) -> None:
        """Look at everything where a file has changed or an arena is gone, and now and then, were an event ever lost."""
        before, self.arenas = self.arenas, arena.present(self.settings.run_dir)
        changed = files.stamps(Tree("/"), _FOLDERS) != self.read or bool(before - self.arenas)
        if changed or now - self.resynced >= self.settings.resync_seconds:
            self.resynced = now
            self.touch_all()

    def _read_files(self) -> None:
        """What is wrong below /etc/idletime is logged once. Until it is mended a file counts as it was before, so that no VM
        changes its class, or loses its resource, by a slip of the pen; one that was never right is left out."""
        tree = Tree("/")
        self.read = files.stamps(tree, _FOLDERS)
        self.rules = rules.load(tree, self.kept_rules)
        self.said_of = resources.load(tree, self.kept_resources)
        found = tuple(map(str, (*self.said_of.findings, *self.rules.findings)))
        for problem in found:
            if problem not in self.wrong:
                log.warning("%s", problem)
        self.wrong = found
        with contextlib.suppress(OSError):
            state.write_daemon(self.settings.run_dir, found, self.settings.uri, VERSION)
            state.write_files(self.settings.run_dir, self.kept_rules | self.kept_resources)

    def _look_around(self, now: float, last: float) -> None:
        """What time alone brings: silent agents, threads that hang."""
        for uuid, agent in list(self.agents.items()):
            if agent.tick(now, last):
                self.touched(uuid)
        hanging, before = self.hands.watch(time.monotonic()), self.counts.hanging
        self.counts.tick(hanging)
        if hanging:
            if hanging != before:
                log.warning("%d domains do not answer for more than 10 s; the others are served", hanging)
            self.wake.set()
        if self.unseen and now > self.waits_until:
            self.unseen = set()  # whoever hangs is not waited for
            self.observe()


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="idletimed", description="Keeps running domains at their Idletime policy.")
    parser.add_argument("--config", type=Path, default=settings_room.FILE, metavar="FILE",
                        help=f"settings ({settings_room.FILE})")
    parser.add_argument("--connect", metavar="URI", help="libvirt to serve, instead of the setting")
    parser.add_argument("--release", action="store_true",
                        help="let VMs go on that an idletimed stopped which was killed, and end")
    parser.add_argument("--debug", action="store_true", help="say more")
    parser.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    return parser.parse_args(argv)


async def _run(settings: Settings) -> None:
    daemon = Daemon(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        daemon.loop.add_signal_handler(number, daemon.stop)
    daemon.loop.add_signal_handler(signal.SIGHUP, daemon.touch_all)
    await daemon.run()


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 ended by a signal, 1 not possible here, 2 wrong settings."""
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
    try:
        lock = alive.hold(settings.run_dir)
    except OSError as error:
        print(f"idletimed: error: cannot use {settings.run_dir}: {error.strerror}; remedy: run it as root", file=sys.stderr)
        return 1
    if lock is None:
        print(f"idletimed: error: another idletimed is at work in {settings.run_dir}; remedy: end that one", file=sys.stderr)
        return 1
    _more_descriptors()
    with contextlib.closing(os.fdopen(lock)):
        if arguments.release:
            return _release(settings)
        asyncio.run(_run(settings))
    return 0


def _more_descriptors() -> None:
    """One for each VM with an agent's channel, and more: systemd and shells give 1,024 unless they are asked."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # where that is not allowed, it does with what there is
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _release(settings: Settings) -> int:
    """Exit status: 0 nothing is stopped any more, 1 something is, or may be."""
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    try:
        done, problems = police.release(libvirt.open(settings.uri)) if settings.uri else ([], [])
    except libvirt.libvirtError as error:
        done, problems = [], [f"{settings.uri}: {error.get_error_message()}; remedy: is libvirtd (or virtqemud) running?"]
    try:
        Protection("", Path(settings.run_dir)).bring({})
    except OSError as error:
        problems.append(f"memory.low of VMs: {error}; remedy: write 0 to it below /sys/fs/cgroup")
    for name in done:
        print(f"domain '{name}' goes on")
    for problem in problems:
        print(f"idletimed: error: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: GPL-2.0-or-later
"""migrate: libvirt's own live migration, as idle load, with what there is to see of it while it runs.

    1  the live policy says that jobs, and so migration, are background; idletimed attaches it
    2  libvirt migrates; each second a look says how far it is
    3  the live policy is what it was, there or here; idletimed sees to that where this command is killed
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import libvirt

from .. import change, domains, jobview, meanwhile, resolve, state
from ..conf import rules
from ..domains import HostError
from ..errors import Exit, IdletimeError
from ..jobview import JobStatus
from ..patience import Patience
from ..policy import Class, edit
from ..resolve.tree import Tree
from ..verdict import Verdict, of_domain
from . import show

LOOK_SECONDS = 1.0
LINE_SECONDS = 10.0
"""Between two lines where nobody sits at a terminal; and for how long nothing is known before that is said."""

_MIB = 1 << 20
_CLEAR = "\r\033[K"
"""To the beginning of a terminal's line, which is empty then."""


def line(name: str, one: JobStatus) -> str:
    """How far it is, for people. Pure."""
    parts = [f"{name}: {one.done / _MIB:.0f} MiB sent, {(one.total - one.done) / _MIB:.0f} MiB left"]
    if one.rate is not None:
        parts.append(f"{one.rate / _MIB:.1f} MiB/s")
    if one.urgent:
        parts.append("as in stock QEMU, to be done in time")
    elif one.class_ is not None:
        parts.append(one.class_ + (", held now" if one.held else ""))
    if one.left_seconds is not None:
        parts.append(f"{one.left_seconds:.0f} s to go")
    return ", ".join(parts)


def diverging(name: str, go: str) -> str:
    """What to say of a guest that writes more than is sent. go: what its policy does then. Pure."""
    if go == Class.FOREGROUND.value:
        return f"note: '{name}' writes more than leaves: at this pace it does not end, so it goes on as in stock QEMU"
    return (f"note: '{name}' writes more than leaves: at this pace it does not end; remedy: wait for a quieter hour, or begin "
            "again without --idle, with --if-diverging foreground or with --auto-converge")


# ---- the command

def run(options: argparse.Namespace, connection: Any, domain: Any) -> int:
    """Exit status 0: it runs there. Raises HostError."""
    name = domain.name()
    if (options.by or options.if_diverging != "wait") and not options.idle:
        raise HostError("--by or --if-diverging without --idle: what is no idle load is done as soon as it can; "
                        "remedy: add --idle",
                        Exit.USAGE)
    if not domain.isActive():
        raise HostError(f"'{name}' does not run; remedy: migrate what runs, and copy the definition of what does not")
    there = domains.connect(options.destination, read_only=False)
    signal.signal(signal.SIGTERM, _interrupted)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
        signal.signal(signal.SIGHUP, _interrupted)
    starts = bool(domain.isPersistent() and domain.autostart())
    with _idle(options, connection, domain, there) if options.idle else contextlib.nullcontext():
        thread = _Migration(domain, there, _flags(options, domain), _parameters(options))
        try:
            _follow(options, connection, domain, thread)
        except KeyboardInterrupt:
            _deafen()
            while thread.is_alive():  # there is no job before libvirt has begun
                with contextlib.suppress(libvirt.libvirtError):
                    domain.abortJob()
                thread.join(LOOK_SECONDS)
            if thread.failed:
                raise
            print(f"note: it was too late to end the migration of '{name}'", file=sys.stderr)
    with domains.translated(f"migrate '{name}'"):
        thread.result()
    if starts:
        with domains.translated(f"let '{name}' start with its host"):
            there.lookupByUUIDString(domain.UUIDString()).setAutostart(True)
    show.result(options, {"name": name, "destination": options.destination}, [f"{name}: runs at {options.destination}"])
    return Exit.OK


def _interrupted(_number: int, _frame: Any) -> None:
    """SIGTERM and SIGHUP are as Ctrl-C: the migration is ended, and the policy put back."""
    _deafen()
    raise KeyboardInterrupt


def _deafen() -> None:
    """A closed terminal sends more than one signal, and people press Ctrl-C again; the next would cut the end off."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _flags(options: argparse.Namespace, domain: Any) -> int:
    flags = libvirt.VIR_MIGRATE_LIVE
    if domain.isPersistent():
        flags |= libvirt.VIR_MIGRATE_PERSIST_DEST | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
    flags |= libvirt.VIR_MIGRATE_AUTO_CONVERGE if options.auto_converge else 0
    return int(flags | (libvirt.VIR_MIGRATE_UNSAFE if options.unsafe else 0))


def _parameters(options: argparse.Namespace) -> dict[str, str]:
    return {libvirt.VIR_MIGRATE_PARAM_URI: options.migrate_uri} if options.migrate_uri else {}


class _Migration(threading.Thread):
    """libvirt's call returns when it is over."""

    def __init__(self, domain: Any, there: Any, flags: int, parameters: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self._domain, self._there, self._flags, self._parameters = domain, there, flags, parameters
        self._error: libvirt.libvirtError | None = None
        self.start()

    def run(self) -> None:
        try:
            self._domain.migrate3(self._there, self._parameters, self._flags)
        except libvirt.libvirtError as error:
            self._error = error

    @property
    def failed(self) -> bool:
        """When it is over: the VM runs here."""
        return self._error is not None

    def result(self) -> None:
        """Raises libvirtError."""
        self.join()
        if self._error is not None:
            raise self._error


def _follow(options: argparse.Namespace, connection: Any, domain: Any, thread: _Migration) -> None:
    """Say how far it is until it is over; --json says nothing in between."""
    teller, ask = _Teller(domain.name(), options.if_diverging), domains.is_qemu(connection)
    pool = ThreadPoolExecutor(1)  # libvirtd may let a look wait for a long time
    patience = Patience(lambda: domains.connect(options.connect, read_only=False))
    look: Future[jobview.Look] | None = None
    try:
        while not options.json and thread.is_alive():
            look = look or pool.submit(jobview.look, connection, ask, options.run_dir, domain, patience)
            wait([look], LOOK_SECONDS)
            if not look.done():
                teller.nothing("libvirtd has not answered yet")
                continue
            try:
                teller.tell(look.result())
            except (HostError, libvirt.libvirtError) as error:
                teller.nothing(str(error))
            look = None
            thread.join(LOOK_SECONDS)
        thread.join()
        teller.end()
    finally:
        pool.shutdown(wait=False)


class _Teller:
    """Writes down how far it is, for people: over the last line at a terminal, else a line now and then."""

    def __init__(self, name: str, go: str) -> None:
        self._name, self._go = name, go
        self._terminal = sys.stderr.isatty()
        self._before: jobview.Look | None = None
        self._said, self._known, self._warned = 0.0, time.monotonic(), False

    def tell(self, now: jobview.Look) -> None:
        """What a look has found."""
        if now.silent:
            self.nothing("QEMU does not answer")
            return
        found = [one for one in jobview.build(self._before or now, now, time.time()) if one.type == "migration"]
        self._before, self._known = now, time.monotonic()
        if not found or not found[0].total:
            return  # it has not begun to send
        self._line(line(self._name, found[0]))
        if found[0].diverges and not self._warned:
            self._warned = True
            self._print(diverging(self._name, self._go))

    def nothing(self, why: str) -> None:
        """A look has found nothing out."""
        if time.monotonic() - self._known >= LINE_SECONDS:
            self._line(f"{self._name}: how far it is cannot be told: {why}")

    def end(self) -> None:
        """Leave no line behind that is not true any more."""
        self._print("", end="")

    def _line(self, text: str) -> None:
        if self._terminal:
            self._print(text, end="")
        elif time.monotonic() - self._said >= LINE_SECONDS:
            self._said = time.monotonic()
            self._print(text)

    def _print(self, text: str, end: str = "\n") -> None:
        print((_CLEAR if self._terminal else "") + text, end=end, file=sys.stderr, flush=True)


# ---- as idle load, for this time

@contextlib.contextmanager
def _idle(options: argparse.Namespace, connection: Any, domain: Any, there: Any) -> Iterator[None]:
    """Jobs are background in the live policy meanwhile. What is stored is not touched."""
    local = not urlsplit(connection.getURI()).netloc
    if local:
        meanwhile.clear(domain)
    one = replace(change.look(domain), persistent=False, config=None)
    known = rules.load(Tree("/", options.run_dir))
    host = resolve.Host(lookup=domains.HostLookup(connection), run_dir=options.run_dir)

    def judge(xml: str) -> Verdict:
        return of_domain(xml, known, host, options.run_dir)

    decision = judge(one.xml).decision
    its = edit.element_text(decision.text) if decision.text is not None else None
    plain = its or edit.plain(decision.class_ if decision.policy is not None else Class.FOREGROUND.value)
    settings = {"jobs": "background", **({"jobs-by": options.by} if options.by else {}),
                **({"jobs-diverging": options.if_diverging} if options.if_diverging != "wait" else {})}
    changed = change.plan(one, lambda live: edit.with_settings(live or plain, settings), judge)
    if local:  # elsewhere nobody could tell whether this process has ended
        meanwhile.keep(one.handle, meanwhile.mine(changed.after, one.live))
    change.write(changed)
    try:
        outcomes = change.wait([changed.expected], options.run_dir) if changed.expected is not None else []
        for problem in [problem for outcome in outcomes for problem in outcome.problems]:
            print(f"{one.name}: {problem}", file=sys.stderr)
        said = state.domain(options.run_dir, one.uuid)
        if said is None or said.migration is None:
            print(f"note: the migration of '{one.name}' is not held: this host's uplink is not known; remedy: "
                  f"'virt-idletime check {one.name}' says why", file=sys.stderr)
        yield
    finally:
        _restore(one, there, local)


def _restore(one: change.Domain, there: Any, local: bool) -> None:
    """Where it runs now."""
    for host in (one.handle, there):
        with contextlib.suppress(libvirt.libvirtError, IdletimeError):
            found = one.handle if host is one.handle else there.lookupByUUIDString(one.uuid)
            if found.isActive():
                if local:
                    meanwhile.put_back(found)
                else:
                    domains.set_policy(found, one.live, True, False)
                return
    print(f"warning: the live policy of '{one.name}' could not be put back: its jobs are background until it is started anew; "
          f"remedy: virt-idletime enable {one.name} --set jobs=foreground", file=sys.stderr)

# SPDX-License-Identifier: GPL-2.0-or-later
"""`virt-idletime migrate`: what it says meanwhile, and the live policy, which is what it was when all is over."""

from __future__ import annotations

import contextlib
import signal
import threading
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import libvirt
import pytest

from idletime import change, domains, jobview, meanwhile, resolve
from idletime.cli import arguments, migrate
from idletime.conf import rules
from idletime.domains import HostError
from idletime.facts import Resolution
from idletime.jobview import JobStatus, Look
from idletime.policy import NAMESPACE, parse
from played import with_metadata
from test_change import BARE, FakeDomain, edit

MIB = 1 << 20


class Live(FakeDomain):
    """What is written is in its live XML."""

    def setMetadata(self, kind: int, text: str | None, key: str | None, uri: str, flags: int) -> None:
        if uri == NAMESPACE:
            super().setMetadata(kind, text, key, uri, flags)
        self.xml[False] = with_metadata(self.xml[False], uri, text)


class Moving(Live):
    """fails: libvirt's word. The call ends when the test lets it."""

    def __init__(self, live: str = BARE, fails: str = "", config: str | None = BARE) -> None:
        super().__init__(config, live)
        self.fails, self.go, self.flags, self.aborted, self.early = fails, threading.Event(), 0, 0, 0
        self.go.set()

    def migrate3(self, there: Any, parameters: dict[str, str], flags: int) -> Any:
        assert parameters == {}
        self.flags = flags
        self.go.wait()
        if self.fails:
            raise libvirt.libvirtError(self.fails)
        there.domain, self.xml[False] = Live(None, self.xml[False]), None

    def abortJob(self) -> None:
        self.aborted += 1
        if self.aborted <= self.early:
            raise libvirt.libvirtError("no job is active")
        self.go.set()


class There:
    """The other host."""

    domain: FakeDomain | None = None

    def lookupByUUIDString(self, _uuid: str) -> FakeDomain:
        if self.domain is None:
            raise libvirt.libvirtError("no domain")
        return self.domain


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> There:
    host = There()
    monkeypatch.setattr(domains, "connect", lambda _uri, read_only: host)
    monkeypatch.setattr(domains, "is_qemu", lambda _connection: True)
    monkeypatch.setattr(change, "wait", lambda _expected, _run_dir: [])
    monkeypatch.setattr(resolve.Host, "resolve", lambda _self, _source: Resolution("sda"))
    monkeypatch.setattr(migrate, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(jobview, "look", lambda *_: Look(0.0))
    return host


def given(*more: str) -> Namespace:
    options = arguments.parser().parse_args(["migrate", "vm", "qemu+ssh://other/system", *more])
    options.run_dir = "/nonexistent"
    return options


def run(domain: FakeDomain, *more: str, uri: str = "qemu:///system") -> int:
    return migrate.run(given(*more), SimpleNamespace(getURI=lambda: uri), domain)


def written(domain: FakeDomain) -> list[str | None]:
    return [text for text, *_ in domain.written]


def status(**more: Any) -> JobStatus:
    known = {"rate": 5.0 * MIB, "class_": "background", "held": True, **more}
    return JobStatus("vm", "", "migration", 30 * MIB, 100 * MIB, **known)


def test_what_it_says_meanwhile() -> None:
    assert migrate.line("vm", status(left_seconds=14.2)) == \
        "vm: 30 MiB sent, 70 MiB left, 5.0 MiB/s, background, held now, 14 s to go"
    assert migrate.line("vm", status(urgent=True)).endswith("as in stock QEMU, to be done in time")
    assert migrate.line("vm", status(rate=None, class_=None)) == "vm: 30 MiB sent, 70 MiB left"


def test_a_guest_that_writes_more_than_leaves() -> None:
    assert "goes on as in stock QEMU" in migrate.diverging("vm", "foreground")
    assert "--if-diverging foreground" in migrate.diverging("vm", "wait")


def test_one_that_is_let_go_if_it_would_not_end(there: There) -> None:
    domain = Moving(edit.in_domain(BARE, edit.plain("background")))
    assert run(domain, "--idle", "--if-diverging", "foreground") == 0
    assert '<job class="background" diverging="foreground"/>' in str(written(domain)[0]).replace("idletime:", "")


def test_as_idle_load(there: There, capsys: pytest.CaptureFixture[str]) -> None:
    """The live policy here and, when all is over, there; what is stored is not touched."""
    domain = Moving(edit.in_domain(BARE, edit.plain("background")))
    assert run(domain, "--idle", "--by", "06:00") == 0
    (text,) = written(domain)
    assert text and 'class="background"' in text and '<job class="background" by="06:00"/>' in text.replace("idletime:", "")
    assert domain.flags & libvirt.VIR_MIGRATE_LIVE and domain.flags & libvirt.VIR_MIGRATE_PERSIST_DEST
    assert there.domain is not None
    (back,) = written(there.domain)
    assert back and "job" not in back and "background" in back
    assert capsys.readouterr().out == "vm: runs at qemu+ssh://other/system\n"


def test_what_somebody_wrote_meanwhile_stays(there: There, monkeypatch: pytest.MonkeyPatch) -> None:
    domain = Moving(edit.in_domain(BARE, edit.plain("background")))
    other = edit.plain("foreground")
    monkeypatch.setattr(change, "wait", lambda _expected, _run_dir: domains.set_policy(domain, other, True, False) or [])
    assert run(domain, "--idle") == 0
    assert there.domain is not None and written(there.domain) == [] and "meanwhile" not in str(there.domain.xml[False])


def test_after_one_that_was_killed(there: There) -> None:
    """What it left is not taken for the policy; beside one that runs there is none."""
    plain, left = edit.plain("background"), edit.with_settings(edit.plain("background"), {"jobs": "background"})
    domain = Moving(edit.in_domain(BARE, left))
    meanwhile.keep(domain, meanwhile.mine(left, plain))
    with pytest.raises(HostError, match="is under way"):
        run(domain, "--idle")
    meanwhile.keep(domain, replace(meanwhile.mine(left, plain), started=1))
    assert run(domain, "--idle") == 0
    assert there.domain is not None
    assert "job" not in str(there.domain.xml[False]) and "background" in str(there.domain.xml[False])


def test_from_another_host_there_is_no_record(there: There, monkeypatch: pytest.MonkeyPatch) -> None:
    """idletimed there would put it back at once."""
    domain = Moving(edit.in_domain(BARE, edit.plain("background")))
    seen: list[str] = []
    monkeypatch.setattr(change, "wait", lambda _expected, _run_dir: seen.append(str(domain.xml[False])) or [])
    assert run(domain, "--idle", uri="qemu+ssh://root@this/system") == 0
    assert "job" in seen[0] and "meanwhile" not in seen[0]
    assert there.domain is not None and "job" not in str(there.domain.xml[False])


def test_one_without_a_policy_is_foreground_meanwhile(there: There) -> None:
    domain = Moving()
    assert run(domain, "--idle") == 0
    assert 'class="foreground"' in str(written(domain)[0]) and there.domain is not None and written(there.domain) == [None]


def test_what_a_rule_says_stays_in_force(there: There, monkeypatch: pytest.MonkeyPatch) -> None:
    text = edit.with_device(edit.plain("foreground"), "disk", "vda", {"class": "background"})
    rule = rules.Rule(parse(text), {"name": ("vm",)}, (), "a.toml line 1", text)
    monkeypatch.setattr(rules, "load", lambda _tree: rules.Rules((rule,)))
    domain = Moving()
    assert run(domain, "--idle") == 0
    (said,) = written(domain)
    assert said and '<disk target="vda" class="background"/>' in said and '<job class="background"/>' in said
    assert there.domain is not None and written(there.domain) == [None]


def test_one_that_fails_stays_as_it_was(there: There) -> None:
    domain = Moving(fails="the line is cut")
    with pytest.raises(HostError, match="cannot migrate 'vm'"):
        run(domain, "--idle")
    assert len(domain.written) == 2 and written(domain)[1] is None


@contextlib.contextmanager
def signalled(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> Iterator[None]:
    """As soon as the command says something, it gets this signal."""
    def nothing(*_: Any) -> Look:
        raise libvirt.libvirtError("no such job")

    monkeypatch.setattr(jobview, "look", nothing)
    monkeypatch.setattr(migrate._Teller, "nothing", lambda *_: signal.raise_signal(number))
    before = [(each, signal.getsignal(each)) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    # Whoever runs the tests in the background may have had SIGINT ignored.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)
    try:
        yield
    finally:
        for each, handler in before:
            signal.signal(each, handler)


@pytest.mark.parametrize("early", [0, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ended_by_a_signal(there: There, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, early: int) -> None:
    """Also before libvirt has begun, and the policy is put back."""
    domain = Moving(fails="aborted")
    domain.early = early
    domain.go.clear()
    with signalled(monkeypatch, number), pytest.raises(KeyboardInterrupt):
        run(domain, "--idle")
    assert domain.aborted == early + 1 and written(domain)[1] is None


def test_an_end_that_comes_too_late(there: There, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In the switchover: it runs there, and starts with that host."""
    class Late(Moving):
        def abortJob(self) -> None:
            self.go.set()
            raise libvirt.libvirtError("in its switchover")

    domain = Late()
    domain.starts = 1
    domain.go.clear()
    with signalled(monkeypatch, signal.SIGINT):
        assert run(domain) == 0
    assert there.domain is not None and there.domain.starts == 1
    assert "it was too late to end the migration of 'vm'" in capsys.readouterr().err


def test_pressed_again_while_it_ends(there: There, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Moving):
        def abortJob(self) -> None:
            self.aborted += 1
            signal.raise_signal(signal.SIGINT)
            if self.aborted == 2:
                self.go.set()

    domain = Slow(fails="aborted")
    domain.go.clear()
    with signalled(monkeypatch, signal.SIGINT), pytest.raises(KeyboardInterrupt):
        run(domain, "--idle")
    assert domain.aborted == 2 and written(domain)[1] is None
    assert not any(isinstance(one, migrate._Migration) for one in threading.enumerate())


@pytest.mark.parametrize("starts", [0, 1])
def test_what_starts_with_its_host_does_there(there: There, starts: int) -> None:
    """libvirt itself does not take that along."""
    domain = Moving()
    domain.starts = starts
    assert run(domain) == 0
    assert there.domain is not None and there.domain.starts == starts


@pytest.mark.parametrize("hangs, says", [(False, "no such job"), (True, "libvirtd has not answered yet")])
def test_when_libvirtd_tells_nothing(there: There, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                     hangs: bool, says: str) -> None:
    """The migration goes on; who waits for it is told that nobody knows how far it is."""
    domain, said = Moving(), threading.Event()
    domain.go.clear()

    def mute(*_: Any) -> Look:
        if hangs:
            said.wait()
        raise libvirt.libvirtError("no such job")

    def nothing(teller: Any, why: str) -> None:
        spoken(teller, why)
        said.set()
        domain.go.set()

    spoken = migrate._Teller.nothing
    monkeypatch.setattr(migrate._Teller, "nothing", nothing)
    monkeypatch.setattr(migrate, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(jobview, "look", mute)
    assert run(domain, "--idle") == 0
    assert f"vm: how far it is cannot be told: {says}\n" in capsys.readouterr().err


def test_its_policy_decides_without_idle(there: There) -> None:
    domain = Moving(config=None)
    assert run(domain, "--auto-converge", "--unsafe") == 0 and domain.written == []
    assert domain.flags == libvirt.VIR_MIGRATE_LIVE | libvirt.VIR_MIGRATE_AUTO_CONVERGE | libvirt.VIR_MIGRATE_UNSAFE


def test_what_makes_no_sense(there: There, capsys: pytest.CaptureFixture[str]) -> None:
    for more in (("--by", "06:00"), ("--if-diverging", "foreground")):
        with pytest.raises(HostError, match="without --idle"):
            run(Moving(), *more)
    with pytest.raises(HostError, match="does not run"):
        run(FakeDomain(BARE, None))
    with pytest.raises(SystemExit):
        given("--by", "25:00")
    assert "'25:00' is no time of day" in capsys.readouterr().err


def test_a_line_now_and_then(there: There, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nobody sits at a terminal; of a guest that does not converge once."""
    domain, looks = Moving(), []

    def look(*_: Any) -> Look:
        looks.append(1)
        if len(looks) > 3:
            domain.go.set()
        return Look(float(len(looks)))

    domain.go.clear()
    monkeypatch.setattr(jobview, "look", look)
    monkeypatch.setattr(jobview, "build", lambda *_: [status(diverges=True)])
    assert run(domain) == 0
    first, note = capsys.readouterr().err.splitlines()
    assert first.startswith("vm: 30 MiB sent") and note.startswith("note: 'vm' writes more than leaves")

# SPDX-License-Identifier: GPL-2.0-or-later
"""`virt-idletime jobs`: rates and ends from two looks, what holds a job, and what is not known."""

from __future__ import annotations

import threading
import time
from argparse import Namespace
from dataclasses import replace
from typing import Any

import libvirt
import pytest

from fakes import job, resource
from idletime import jobview, state
from idletime.cli import commands, show
from idletime.errors import MonitorError
from idletime.jobview import Look, Seen, build
from idletime.patience import Patience
from idletime.qmp import UNKNOWN_COMMAND

MIB = 1 << 20
BACKUP = "backup-vda-libvirt-1-format"
XML = """<domain type='kvm'><name>{name}</name><devices>
<disk type='file' device='disk'><source file='/a'/><target dev='vda' bus='virtio'/></disk>
<disk type='file' device='disk'><source file='/b'/><target dev='vdb' bus='virtio'/></disk></devices></domain>"""


def have(requests: int = 10, held: int = 0, id_: str = BACKUP, **more: Any) -> list[dict[str, Any]]:
    learned = {"service-us": 20000, "spare": {"second": 0.5}}
    return [{**resource("sda", []), "learned": learned, "jobs": [{**job(id_, requests, held), **more}]}]


def seen(done: int, total: int = 100 * MIB, type_: str = "backup") -> Seen:
    return Seen("vm", "vda", type_, done, total)


def one(before: Look, after: Look) -> jobview.JobStatus:
    (found,) = build(before, after, 1000.0)
    return found


def test_rate_and_end() -> None:
    """15 starts of 20 ms in two seconds are 0.15 of the time; half of it was idle."""
    found = one(Look(10.0, (seen(20 * MIB),), {"vm": have(10)}), Look(12.0, (seen(40 * MIB),), {"vm": have(25, held=1)}))
    assert (found.done_percent, found.rate, found.left_seconds, found.end) == (40.0, 10 * MIB, 6.0, 1006.0)
    assert (found.class_, found.resource, found.held) == ("background", "sda", True)
    assert found.idle_used_percent == pytest.approx(30.0)


def test_chunks_that_waited() -> None:
    hold = {"boundaries-us": [1000, 5000], "bins": [6, 3, 1], "max-us": 7000, "drained-us": 0}
    now = Look(1.0, (seen(0),), {"vm": have(hold=hold)})
    assert one(now, now).waited_percent == 40.0
    none = Look(1.0, (seen(0),), {"vm": have(hold={**hold, "bins": [0, 0, 0]})})
    assert one(none, none).waited_percent is None


@pytest.mark.parametrize("earlier", [(), (seen(50 * MIB),), (seen(1, type_="copy"),)], ids=["new", "anew", "another"])
def test_no_rate_where_there_was_another_job(earlier: tuple[Seen, ...]) -> None:
    found = one(Look(1.0, earlier), Look(2.0, (seen(20 * MIB),), {"vm": ()}))
    assert (found.rate, found.end, found.class_, found.resource) == (None, None, "foreground", None)


def test_a_job_that_does_not_move_has_no_end() -> None:
    found = one(Look(1.0, (seen(5),)), Look(2.0, (seen(5),)))
    assert (found.rate, found.left_seconds, found.class_) == (0.0, None, None)
    assert one(Look(1.0), Look(2.0, (seen(0, 0),))).done_percent is None


def test_another_disks_job_and_one_that_is_detaching() -> None:
    for other in (have(id_="backup-vdb-libvirt-1-format"), have(detaching=True), have(id_="job0")):
        now = Look(1.0, (seen(0),), {"vm": other})
        assert one(now, now).class_ == "foreground"


def test_a_migrations_copy_of_a_disk() -> None:
    """libvirt calls it by the disk's alias."""
    copy = replace(seen(0, type_="copy"), alias="virtio-disk0")
    now = Look(1.0, (copy,), {"vm": have(id_="drive-virtio-disk0", held=1)})
    assert (one(now, now).class_, one(now, now).resource, one(now, now).held) == ("background", "sda", True)
    other = Look(1.0, (copy,), {"vm": have(id_="drive-virtio-disk1")})
    assert one(other, other).class_ == "foreground"


def test_old_figures_are_not_shown() -> None:
    """Who may not ask QEMU knows the class from idletimed's last look, and nothing of now."""
    now = Look(1.0, (seen(0),), {"vm": have(held=1)}, asked=False)
    found = one(now, now)
    assert (found.class_, found.resource) == ("background", "sda")
    assert (found.held, found.waited_percent, found.idle_used_percent) == (None, None, None)


def test_used_is_not_known_without_a_learner_or_of_another_job() -> None:
    bare = [{key: value for key, value in each.items() if key != "learned"} for each in have()]
    now = Look(1.0, (seen(0),), {"vm": bare})
    assert one(now, Look(2.0, now.jobs, now.have)).idle_used_percent is None
    later = Look(2.0, (seen(0),), {"vm": have(id_="backup-vda-libvirt-9-format")})
    assert one(Look(1.0, (seen(0),), {"vm": have()}), later).idle_used_percent is None


def test_an_export_has_a_rate_and_no_end() -> None:
    """What reads it may read as much as it likes."""
    export = [{**resource("sda", []), "exports": [job("libvirt-nbd-x")], "jobs": [job(BACKUP)]}]

    def at(seconds: float, mib: int) -> Look:
        return Look(seconds, (Seen("vm", "vda", "export", mib * MIB, id="libvirt-nbd-x"), seen(0)), {"vm": export})

    found, backup = build(at(1.0, 10), at(3.0, 30), 1000.0)
    assert (found.type, found.rate, found.done_percent, found.left_seconds, found.end) == ("export", 10 * MIB, None, None, None)
    assert (found.class_, found.resource, backup.type) == ("background", "sda", "backup")


# ---- looking

class Domain:
    """jobs: by disk, type, done and total. taints: whether somebody has spoken to its monitor."""

    def __init__(self, name: str, jobs: dict[str, tuple[int, int, int]], taints: tuple[str, ...] = ("custom-monitor",)) -> None:
        self._name, self.jobs, self.taints, self.asked = name, jobs, taints, 0
        self.moving = {"type": libvirt.VIR_DOMAIN_JOB_NONE}

    def name(self) -> str:
        return self._name

    def UUIDString(self) -> str:
        return self._name

    def ID(self) -> int:
        return 1

    def isActive(self) -> bool:
        return True

    def XMLDesc(self, _flags: int) -> str:
        return XML.format(name=self._name)

    def messages(self, _flags: int) -> list[str]:
        return list(self.taints)

    def jobStats(self) -> dict[str, int]:
        return self.moving

    def blockJobInfo(self, disk: str, _flags: int) -> dict[str, int]:
        if disk not in self.jobs:
            return {}
        type_, done, total = self.jobs[disk]
        return {"type": type_, "bandwidth": 0, "cur": done, "end": total}


class Connection:
    def __init__(self, *there: Domain) -> None:
        self.there = there

    def isAlive(self) -> bool:
        return True

    def lookupByUUIDString(self, uuid: str) -> Domain:
        return next(one for one in self.there if one.UUIDString() == uuid)

    def getAllDomainStats(self, _stats: int, _flags: int) -> list[Any]:
        return [(domain, {"state.state": libvirt.VIR_DOMAIN_RUNNING}) for domain in self.there]


@pytest.fixture
def qemus(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What each QEMU answers, by the name of its domain."""
    answers: dict[str, Any] = {}

    class Monitor:
        def __init__(self, domain: Domain) -> None:
            self.domain = domain

        def execute(self, _name: str, _arguments: Any = None) -> Any:
            self.domain.asked += 1
            answer = answers[self.domain.name()]
            if isinstance(answer, MonitorError):
                raise answer
            return answer

    monkeypatch.setattr(jobview, "DomainMonitor", Monitor)
    return answers


BACKUP_TYPE, COPY_TYPE = libvirt.VIR_DOMAIN_BLOCK_JOB_TYPE_BACKUP, libvirt.VIR_DOMAIN_BLOCK_JOB_TYPE_COPY


def test_whom_a_look_asks(qemus: dict[str, Any]) -> None:
    """Nobody who has no job, and nobody to whose monitor no one has spoken: libvirt would mark it."""
    busy = Domain("busy", {"vda": (BACKUP_TYPE, 1, 2), "vdb": (COPY_TYPE, 3, 4)})
    quiet, plain = Domain("quiet", {}), Domain("plain", {"vda": (99, 0, 0)}, taints=())
    qemus["busy"] = have()
    found = jobview.look(Connection(busy, quiet, plain), True, "/nonexistent")
    assert found.jobs == (Seen("busy", "vda", "backup", 1, 2), Seen("busy", "vdb", "copy", 3, 4),
                          Seen("plain", "vda", "unknown", 0, 0))
    assert (busy.asked, quiet.asked, plain.asked) == (1, 0, 0) and found.have == {"busy": qemus["busy"], "plain": ()}


def test_who_is_stock_and_who_does_not_answer(qemus: dict[str, Any]) -> None:
    domain = Domain("vm", {"vda": (BACKUP_TYPE, 1, 2)})
    qemus["vm"] = MonitorError("not found", UNKNOWN_COMMAND)
    assert jobview.look(Connection(domain), True, "/nonexistent").have == {"vm": ()}
    qemus["vm"] = MonitorError("the line is cut")
    assert jobview.look(Connection(domain), True, "/nonexistent").have == {"vm": None}


def test_who_hangs_keeps_nobody_waiting(qemus: dict[str, Any]) -> None:
    """Nor is it asked again."""
    hangs, free, begun = Domain("hangs", {"vda": (BACKUP_TYPE, 1, 2)}), threading.Event(), []
    hangs.jobStats = lambda: begun.append(1) or {} if free.wait(60) else {}  # type: ignore[method-assign]
    qemus["vm"] = have()
    there = Connection(hangs, Domain("vm", {"vda": (BACKUP_TYPE, 1, 2)}))
    patience = Patience(lambda: there, 1.0)
    for _ in range(2):
        found = jobview.look(there, True, "/nonexistent", None, patience)
        assert [one.domain for one in found.jobs] == ["vm"] and found.silent == ("hangs",)
    qemus["hangs"] = have()
    free.set()
    while patience.late:
        time.sleep(0.01)
    assert begun == [1]
    found = jobview.look(Connection(hangs), True, "/nonexistent", None, patience)
    assert found.silent == () and [one.domain for one in found.jobs] == ["hangs"]


def test_a_reader_has_what_idletimed_has_seen(qemus: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    domain = Domain("vm", {"vda": (BACKUP_TYPE, 1, 2)})
    said = state.DomainState("vm", "vm", 1, "", "foreground", "domain", "", "", True, 0.0, query=tuple(have()))
    monkeypatch.setattr(state, "domain", lambda _run_dir, _uuid: said)
    found = jobview.look(Connection(domain), False, "/nonexistent")
    assert found.have == {"vm": said.query} and not found.asked and domain.asked == 0
    monkeypatch.setattr(domain, "ID", lambda: 2)
    assert jobview.look(Connection(domain), False, "/nonexistent").have == {"vm": None}


def test_a_domain_that_ends_meanwhile(qemus: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    gone, here = Domain("gone", {"vda": (BACKUP_TYPE, 1, 2)}), Domain("here", {"vda": (BACKUP_TYPE, 1, 2)})

    def refuse(_flags: int) -> str:
        raise libvirt.libvirtError("no domain")

    monkeypatch.setattr(gone, "XMLDesc", refuse)
    qemus["here"] = []
    assert [each.domain for each in jobview.look(Connection(gone, here), True, "/nonexistent").jobs] == ["here"]


def test_a_migration_is_a_row_while_it_runs(qemus: dict[str, Any]) -> None:
    domain = Domain("vm", {})
    qemus["vm"] = [{**resource("up0", []), "migrations": [job("outgoing", held=1)]}]
    assert jobview.look(Connection(domain), True, "/nonexistent").jobs == ()
    domain.moving = {"type": libvirt.VIR_DOMAIN_JOB_UNBOUNDED, "operation": libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT,
                     "data_processed": 30 * MIB, "data_remaining": 10 * MIB}
    found = one(now := jobview.look(Connection(domain), True, "/nonexistent"), now)
    assert (found.disk, found.type, found.done_percent) == ("", "migration", 75.0)
    assert (found.class_, found.resource, found.held) == ("background", "up0", True)
    domain.moving = {**domain.moving, "operation": libvirt.VIR_DOMAIN_JOB_OPERATION_BACKUP}
    assert jobview.look(Connection(domain), True, "/nonexistent").jobs == ()


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    found = one(Look(10.0, (seen(20 * MIB),), {"vm": have(10)}), Look(12.0, (seen(40 * MIB),), {"vm": have(25, held=1)}))
    show.jobs([found])
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == "domain disk job done % MiB/s class resource held waited % of idle % end by".split()
    end = time.strftime("%F %T", time.localtime(1006.0)).split()
    assert row.split() == ["vm", "vda", "backup", "40.0", "10.0", "background", "sda", "yes", "0.0", "30.0", *end, "-"]


def test_the_command(qemus: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Waits between its looks only where there is something to see."""
    domain, waited = Domain("vm", {"vda": (BACKUP_TYPE, 1, 2)}), []
    qemus["vm"] = have()
    options = Namespace(connect="qemu:///system", readonly=False, domain=None, run_dir="/nonexistent", delay=7.0, json=True)
    monkeypatch.setattr(commands, "_connect", lambda _options, _numbers: (Connection(domain), True))
    monkeypatch.setattr(commands.domains, "connect", lambda _uri, _read_only: Connection(domain))
    monkeypatch.setattr(commands.time, "sleep", waited.append)
    assert commands.jobs(options) == 0 and waited == [7.0]
    assert '"class": "background"' in capsys.readouterr().out
    domain.jobs = {}
    assert commands.jobs(options) == 0 and waited == [7.0, 0.0] and capsys.readouterr().out == "[]\n"

# SPDX-License-Identifier: GPL-2.0-or-later
"""Block jobs of a domain: which of them become background, on what resource, and when idletimed hears of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lxml import etree

from fakes import FakeQemu, image, job, resource, running_export, running_job, stock
from idletime import jobs, state
from idletime.devices import devices_of
from idletime.errors import MonitorError
from idletime.facts import DeviceFacts, DiskJobs, HostFacts, Migration, Plan, Resolution, Source
from idletime.hostd import act, host, settle
from idletime.plan import choose
from idletime.policy.model import Class, Policy
from idletime.steps import Command
from test_hostd_settle import LIVE, Domain, Look, enforced, look, policy, told  # noqa: F401  (look: a fixture)

JOBS = "<i:job class='background'/>"
COPY, BACKUP, COMMIT = "copy-vda-libvirt-5-format", "backup-vda-libvirt-2-storage", "commit-vdb-libvirt-3-format"
VDB = "<disk type='file'><source file='/b'/><target dev='vdb' bus='virtio'/><alias name='virtio-disk1'/></disk>"
ONE, TWO = DiskJobs("vda", "idletime-sda"), DiskJobs("vdb", "idletime-sdb")


def on_disks(domain: Domain) -> dict[str, str]:
    """Without the uplink of this host, if it has one."""
    return {id_: " ".join(name for name in names.split() if name.startswith("sd")) for id_, names in
            domain.qemu.attached_jobs.items()}


# ---- which, and where

def wanted(disks: tuple[DiskJobs, ...], *there: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
    found, problems = jobs.wanted(Plan(jobs=disks), jobs.running(there))
    return {one.id: one.resource for one in found if one.attachable}, problems


def test_each_job_is_of_its_disk() -> None:
    there = [running_job(COPY, "mirror"), running_job(BACKUP), running_job(COMMIT, "commit")]
    assert wanted((ONE, TWO), *there) == ({COPY: "idletime-sda", BACKUP: "idletime-sda", COMMIT: "idletime-sdb"}, [])
    assert wanted((TWO,), *there) == ({COMMIT: "idletime-sdb"}, [])
    assert wanted((), *there) == ({}, [])
    assert [(one.disk, one.type) for one in jobs.running(there)] == [("vda", "copy"), ("vda", "backup"), ("vdb", "commit")]


@pytest.mark.parametrize("id_, status, attached", [
    ("drive-virtio-disk0", "running", True), ("drive-virtio-disk0", "ready", False), ("drive-virtio-disk7", "running", False)])
def test_a_migrations_copy_of_a_disk_is_held_until_it_has_caught_up(
        look: Look, id_: str, status: str, attached: bool) -> None:  # noqa: F811
    """Then the switchover waits for what the guest writes. One of a disk that is left alone is left alone, too."""
    one = Domain(policy("foreground", inner=JOBS))
    one.qemu.jobs = [running_job(id_, "mirror", "running")]
    look(one)
    one.qemu.jobs = [running_job(id_, "mirror", status)]
    look(one)
    one.qemu.left()
    assert on_disks(one) == ({id_: "sda"} if attached else {})


def test_what_a_job_writes_is_held_too() -> None:
    """A copy to another disk is on both resources, an export of the disk on one; what it writes no more, it leaves."""
    both = DiskJobs("vda", "idletime-sda", also=("idletime-sdb",))
    found, _ = jobs.wanted(Plan(jobs=(both,)), [*jobs.running([running_job(COPY)]),
                                                jobs.Running("e", "vda", "export", "running", kind="export")])
    assert [(one.kind, one.resource) for one in found] == [("job", "idletime-sda"), ("job", "idletime-sdb"),
                                                           ("export", "idletime-sda")]
    want, empty = found[:2], [resource("sda", []), resource("sdb", [])]

    def command(name: str) -> Command:
        return Command("idletime-attach", {"job": COPY, "resource": name, "class": "background"})

    assert jobs.steps(want, empty).commands == (command("idletime-sda"), command("idletime-sdb"))
    sda = {**resource("sda", []), "jobs": [job(COPY)]}
    sdb = {**resource("sdb", []), "jobs": [job(COPY)]}
    assert jobs.steps(want, [sda, empty[1]]).commands == (command("idletime-sdb"),)
    assert jobs.steps(want, [sda, sdb]).nothing
    assert jobs.steps(want[:1], [sda, sdb]) == jobs.Steps((Command("idletime-detach", {"job": COPY}),), pending=True)
    leaving = {**sdb, "jobs": [job(COPY, detaching=True)]}
    assert jobs.steps(want[:1], [sda, leaving]) == jobs.Steps(pending=True)
    assert jobs.steps(want, [{**sda, "id": "mine"}, empty[1]]).nothing, "somebody else has attached it"


def test_a_migrations_copy_is_held_on_the_uplink_too() -> None:
    """After migration, of which QEMU learns that it is one."""
    plan = Plan(jobs=(DiskJobs("vda", "idletime-sda", "virtio-disk0"),), migration=Migration("idletime-up0"))
    there = jobs.running([running_job("drive-virtio-disk0", "mirror", "running")], {"virtio-disk0": "vda"})
    found, _ = jobs.wanted(plan, there)
    assert [(one.kind, one.resource) for one in found] == [("migration", "idletime-up0"), ("job", "idletime-sda"),
                                                           ("job", "idletime-up0")]
    found, _ = jobs.wanted(plan, there, ["outgoing"])
    assert [one.resource for one in found] == ["idletime-sda"], "of an uplink on which there is no migration QEMU makes a disk"


MIRROR = """<mirror type='network' job='copy'><format type='raw'/><source protocol='nbd' name='b'>
<host name='10.0.0.5' port='1'/></source></mirror>"""
BACKUPS = """<domainbackup mode='{mode}'><disks><disk name='vda' backup='yes' type='file'><driver type='qcow2'/>
<{where} file='/nowhere/b'/></disk><disk name='vdb' backup='no'/></disks></domainbackup>"""


def test_a_copy_to_another_host(look: Look, tmp_path: Path) -> None:  # noqa: F811
    """The server's resource is that of all disks that are on it. As the mirror goes, the job is left on the disk's."""
    one = Domain(policy("foreground", inner=JOBS))
    one.qemu.jobs = [running_job(COPY, "mirror")]
    bare = one.xml
    one.xml = one.xml.replace("<alias name='virtio-disk0'/>", f"<alias name='virtio-disk0'/>{MIRROR}")
    assert look(one).problems == ()
    (server,) = [name for name in one.qemu.attached_jobs[COPY].split() if name != "sda"]
    assert "10.0.0.5" in server and told(tmp_path).in_force
    assert state.plan_of(told(tmp_path)).jobs[0].also == (f"idletime-{server}",)
    one.xml = bare
    look(one)
    one.qemu.left()
    look(one)
    assert one.qemu.attached_jobs == {COPY: "sda"} and told(tmp_path).in_force


@pytest.mark.parametrize("mode, where, files", [("push", "target", ["/nowhere/b"]), ("pull", "scratch", [])])
def test_what_a_backup_writes(mode: str, where: str, files: list[str]) -> None:
    """A scratch file is written when the guest writes, and that waits for nothing."""
    (disk,) = devices_of(etree.fromstring(LIVE.format(policy="", more="")),
                         etree.fromstring(BACKUPS.format(mode=mode, where=where)))
    assert [copy.name for copy in disk.copies] == files


def test_a_target_that_cannot_be_resolved() -> None:
    """It is said, and the job is held for what it reads."""
    gone, here = Source("disk", "file", "/gone"), Source("disk", "file", "/here")
    disk = DeviceFacts("disk", "vda", frozenset({"vda"}), "a", here, copies=(gone, here))
    facts = HostFacts({here: Resolution("sda"), gone: Resolution(None, problem="no such file", remedy="make it")})
    plan, (note,) = choose(Policy(Class.FOREGROUND, jobs=True), [disk], facts)
    assert plan.jobs == (DiskJobs("vda", "idletime-sda", "a"),)
    assert "for what it writes ('/gone'): no such file" in str(note)


def test_a_job_that_libvirt_did_not_start() -> None:
    """On a VM with one resource there is no question; on one with several it is said."""
    assert wanted((ONE,), running_job("job0")) == ({"job0": "idletime-sda"}, [])
    found, (problem,) = wanted((ONE, TWO), running_job("job0"))
    assert found == {} and "block job 'job0' is not held" in problem


@pytest.mark.parametrize("status, attachable", [
    ("created", False), ("running", True), ("paused", True), ("ready", True), ("standby", True), ("waiting", False),
    ("pending", False), ("aborting", False), ("concluded", False)])
def test_what_does_not_run_is_not_attached_and_not_detached(status: str, attachable: bool) -> None:
    want, _ = jobs.wanted(Plan(jobs=(ONE,)), jobs.running([running_job(COPY, status=status)]))
    assert bool(jobs.steps(want, [resource("sda", [])]).commands) == attachable
    assert jobs.steps(want, [{**resource("sda", []), "jobs": [job(COPY)]}]).nothing


def test_a_disk_that_is_on_another_resource_now() -> None:
    """First it leaves; somebody else's resource is nobody's business here."""
    want = [jobs.JobPlan(COPY, "idletime-sda", True)]
    there = {**resource("sdb", []), "jobs": [job(COPY)]}
    assert jobs.steps(want, [there]) == jobs.Steps((Command("idletime-detach", {"job": COPY}),), pending=True)
    leaving = {**there, "jobs": [job(COPY, detaching=True)]}
    assert jobs.steps(want, [leaving]) == jobs.Steps(pending=True)
    assert jobs.steps([], [{**there, "id": "mine"}]).nothing


# ---- a look at a domain

def test_jobs_come_and_go(look: Look, tmp_path: Path) -> None:  # noqa: F811
    """Of a foreground VM, too: its own requests stay foreground."""
    one = Domain(policy("foreground", inner=JOBS))
    look(one)
    assert one.qemu.attached_jobs == {} and told(tmp_path).in_force
    one.qemu.jobs = [running_job(COPY, "mirror")]
    assert look(one).problems == () and one.qemu.attached_jobs == {COPY: "sda"}
    assert one.qemu.state == {"virtio-disk0": ("sda", "foreground", "")} and told(tmp_path).in_force
    one.qemu.changes  # noqa: B018
    assert not look(one).failed and one.qemu.changes == []
    one.qemu.ended(COPY)
    look(one)
    assert one.qemu.changes == [] and told(tmp_path).jobs == (
        {"target": "vda", "resource": "idletime-sda", "alias": "virtio-disk0", "by": "", "also": []},)


def test_a_policy_that_loses_its_jobs(look: Look, tmp_path: Path) -> None:  # noqa: F811
    """The job goes on as a stock one; not in force before it has left."""
    one = Domain(policy("foreground", inner=JOBS))
    one.qemu.jobs = [running_job(BACKUP)]
    look(one)
    assert one.qemu.attached_jobs == {BACKUP: "sda"}
    one.xml, one.qemu.busy = LIVE.format(policy=policy("foreground"), more=""), {BACKUP}
    assert look(one).failed and not told(tmp_path).in_force
    one.qemu.left()
    assert not look(one).failed and told(tmp_path).in_force and one.qemu.attached_jobs == {}
    one.xml = LIVE.format(policy=policy("foreground", inner=JOBS), more="")
    look(one)
    assert one.qemu.attached_jobs == {BACKUP: "sda"}
    one.xml = LIVE.format(policy="", more="")
    look(one)
    look(one)
    assert one.qemu.attached_jobs == {} and one.qemu.resources == {}


def test_without_the_element_nobody_asks_for_jobs(look: Look) -> None:  # noqa: F811
    one = Domain(policy())
    one.qemu.jobs = [running_job(BACKUP)]
    look(one)
    assert "query-block-jobs" not in one.qemu.sent and one.qemu.attached_jobs == {}


def test_a_stock_emulator(look: Look) -> None:  # noqa: F811
    one = Domain(policy("foreground", inner=JOBS), stock())
    one.qemu.jobs = [running_job(BACKUP)]
    assert look(one).problems == (act.STOCK,) and one.qemu.changes == []
    whole = Domain(enforced("auto", inner=JOBS), stock())
    assert look(whole).problems == (act.STOCK_JOBS,)


def test_an_earlier_qemu_of_ours(look: Look) -> None:  # noqa: F811
    """It holds devices, and knows no jobs: that is said, and the devices are held."""

    class Early(FakeQemu):
        def do_query_idletime(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
            return [{key: value for key, value in one.items() if key != "jobs"} for one in super().do_query_idletime(arguments)]

    one = Domain(policy(inner=JOBS), Early(there=["virtio-disk0"]))
    one.qemu.jobs = [running_job(BACKUP)]
    assert look(one).problems == (jobs.OLD,) and one.qemu.state == {"virtio-disk0": ("sda", "background", "")}


def test_a_vm_that_is_stopped_as_a_whole(look: Look) -> None:  # noqa: F811
    """Its jobs go on meanwhile."""
    one = Domain(enforced("suspend", inner=JOBS))
    one.qemu.jobs = [running_job(BACKUP)]
    assert look(one).problems == () and one.qemu.state == {} and one.qemu.attached_jobs == {BACKUP: "sda"}


def test_a_job_that_ends_while_it_is_attached(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """QEMU refuses, and nothing is wrong. What it refuses of one that runs is said, and tried again."""
    one = Domain(policy("foreground", inner=JOBS))
    one.qemu.jobs = [running_job(BACKUP)]
    obey = one.qemu.do_idletime_attach

    def end_first(arguments: dict[str, Any]) -> None:
        if "job" in arguments:
            one.qemu.ended(arguments["job"])
        obey(arguments)

    monkeypatch.setattr(one.qemu, "do_idletime_attach", end_first)
    looked = look(one)
    assert looked.problems == () and not looked.failed and f"idletime-attach {BACKUP}" in one.qemu.sent
    other = Domain(policy("foreground", inner=JOBS), FakeQemu(there=["virtio-disk0"], refused=[BACKUP]))
    other.qemu.jobs = [running_job(BACKUP)]
    looked = look(other)
    assert looked.failed and looked.problems[0].startswith(f"block job {BACKUP}: QEMU refused")
    assert other.qemu.state == {"virtio-disk0": ("sda", "foreground", "")}


def test_who_does_not_answer_about_jobs(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    one = Domain(policy("foreground", inner=JOBS))

    def refuse(_arguments: dict[str, Any]) -> None:
        raise MonitorError("libvirt refused a monitor command: cannot acquire state change lock")

    monkeypatch.setattr(one.qemu, "do_query_block_jobs", refuse, raising=False)
    looked = look(one)
    assert looked.failed and "state change lock" in looked.problems[0]


def test_disks_on_two_resources(look: Look) -> None:  # noqa: F811
    own = policy("background", inner="<i:disk target='vdb' resource='sdb'/>" + JOBS)
    one = Domain(own, FakeQemu(there=["virtio-disk0", "virtio-disk1"]), more=VDB)
    one.qemu.jobs = [running_job(COPY, "mirror"), running_job(COMMIT, "commit"), running_job("drive-virtio-disk1", "mirror")]
    assert look(one).problems == () and on_disks(one) == {COPY: "sda", COMMIT: "sdb", "drive-virtio-disk1": "sdb"}


# ---- exports

EXPORT, SCRATCH = "libvirt-nbd-libvirt-9-format", "libvirt-9-format"


def exporting(qemu: FakeQemu, *below: str, export: str = EXPORT) -> FakeQemu:
    """vda is /a on /base, vdb is /b on /base; an export of a scratch file on these images."""
    qemu.disks = {"virtio-disk0": image("/a", "/base"), "virtio-disk1": image("/b", "/base")}
    qemu.exports = [running_export(export, SCRATCH)]
    qemu.nodes = {SCRATCH: image(*below), "other": image("/other")}
    return qemu


def of_exports(qemu: FakeQemu, targets: dict[str, str]) -> list[tuple[str, str]]:
    found = jobs.exports(qemu.exports, qemu.do_query_named_block_nodes({}), qemu.do_query_block({}), targets)
    return [(one.id, one.disk) for one in found]


@pytest.mark.parametrize("below, disk", [(("/scratch", "/a", "/base"), "vda"), (("/scratch", "/b", "/base"), "vdb"),
                                         (("/elsewhere",), "")])
def test_an_export_is_of_the_disk_that_it_reads(below: tuple[str, ...], disk: str) -> None:
    """Disks with one base: the first image below the scratch file tells."""
    both = {"virtio-disk0": "vda", "virtio-disk1": "vdb"}
    assert of_exports(exporting(FakeQemu(), *below), both) == [(EXPORT, disk)]


def test_an_export_of_a_disk_that_is_not_meant() -> None:
    """It is that disk's, though its name is not known, and so nobody's here."""
    qemu = exporting(FakeQemu(), "/scratch", "/b", "/base")
    (found,) = jobs.exports(qemu.exports, qemu.do_query_named_block_nodes({}), qemu.do_query_block({}), {"virtio-disk0": "vda"})
    assert jobs.wanted(Plan(jobs=(ONE,)), [found]) == ([], [])


def test_exports_that_are_left_alone() -> None:
    """A migration's, into the disk itself; other types than NBD."""
    assert of_exports(exporting(FakeQemu(), "/a", "/base"), {"virtio-disk0": "vda"}) == []
    qemu = exporting(FakeQemu(), "/scratch", "/a", "/base")
    qemu.exports[0]["type"] = "vhost-user-blk"
    assert of_exports(qemu, {"virtio-disk0": "vda"}) == []


def test_a_pull_backup(look: Look, tmp_path: Path) -> None:  # noqa: F811
    """Its exports come after its jobs, and nobody tells: more looks."""
    one = Domain(policy("foreground", inner=JOBS))
    one.qemu.jobs = [running_job(BACKUP)]
    first = look(one)
    assert first.more_to_come and not first.failed and first.problems == () and one.qemu.attached_exports == {}
    exporting(one.qemu, "/scratch", "/a", "/base")
    assert not look(one).more_to_come and one.qemu.attached_exports == {EXPORT: "sda"}
    assert told(tmp_path).in_force and told(tmp_path).exports == {EXPORT: "vda"}
    one.qemu.changes  # noqa: B018
    look(one)
    assert one.qemu.changes == []
    one.xml = LIVE.format(policy=policy("foreground"), more="")
    look(one)
    assert one.qemu.attached_exports == {} == one.qemu.attached_jobs


def test_exports_of_an_earlier_qemu_of_ours(look: Look) -> None:  # noqa: F811
    class Early(FakeQemu):
        def do_query_idletime(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
            said = super().do_query_idletime(arguments)
            return [{key: value for key, value in one.items() if key != "exports"} for one in said]

    one = Domain(policy("foreground", inner=JOBS), exporting(Early(there=["virtio-disk0"]), "/scratch", "/a"))
    one.qemu.jobs = [running_job(COPY)]
    assert look(one).problems == (jobs.OLD_EXPORTS,) and one.qemu.attached_jobs == {COPY: "sda"}


# ---- migration

MOVES = Migration("idletime-up0", "06:00")


def active(remaining: int = 700) -> dict[str, Any]:
    ram = {"transferred": 200, "remaining": remaining}
    return {"status": "active", "ram": ram, "disk": {"transferred": 100, "remaining": 0}}


def test_migration_is_attached_before_it_runs() -> None:
    """QEMU holds whichever comes. Nothing of it is sent to a QEMU that does not know it."""
    found, problems = jobs.wanted(Plan(migration=MOVES), [])
    assert (found, problems) == ([jobs.JobPlan("outgoing", "idletime-up0", True, "migration")], [])
    there = resource("up0", [])
    want = {"migration": True, "resource": "idletime-up0", "class": "background"}
    assert jobs.steps(found, [there]).commands == (Command("idletime-attach", want),)
    attached = {**there, "migrations": [job("outgoing")]}
    assert jobs.steps(found, [attached]).nothing
    assert jobs.steps([], [attached]).commands == (Command("idletime-detach", {"migration": True}),)
    foreign = {**attached, "id": "theirs"}
    assert jobs.steps([], [foreign]).nothing


@pytest.fixture
def uplink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the default route."""
    found = settle.resolve.Host.resolve
    of_host = SimpleNamespace(type="user", device="interface")
    monkeypatch.setattr(settle.resolve.Host, "resolve", lambda self, source: Resolution("up0") if (
        source.type, source.device) == (of_host.type, of_host.device) else found(self, source))


def test_migration_goes_with_the_jobs(look: Look, tmp_path: Path, uplink: None) -> None:  # noqa: F811
    one = Domain(policy("foreground", inner=JOBS))
    assert look(one).problems == () and one.qemu.attached_migration == ["up0"]
    assert told(tmp_path).in_force and told(tmp_path).migration == {"resource": "idletime-up0", "by": "", "diverging": "wait"}
    one.qemu.changes  # noqa: B018
    look(one)
    assert one.qemu.changes == [] and "query-migrate" not in one.qemu.sent
    one.xml = LIVE.format(policy=policy("foreground"), more="")
    look(one)
    look(one)
    assert one.qemu.attached_migration == [] and "idletime-up0" not in one.qemu.resources


def test_migration_of_an_earlier_qemu_of_ours(look: Look, uplink: None) -> None:  # noqa: F811
    class Early(FakeQemu):
        def do_query_idletime(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
            said = super().do_query_idletime(arguments)
            return [{key: value for key, value in one.items() if key != "migrations"} for one in said]

    one = Domain(policy("foreground", inner=JOBS), Early(there=["virtio-disk0"]))
    one.qemu.jobs = [running_job(COPY)]
    assert look(one).problems == (jobs.OLD_MIGRATION,) and one.qemu.attached_jobs == {COPY: "sda"}


# ---- its start

class Loop:
    def call_soon_threadsafe(self, whom: Callable[..., None], *what: Any) -> None:
        whom(*what)


@pytest.fixture
def heard() -> tuple[Callable[..., None], list[str]]:
    """Tell of an event of QEMU's; and which domains were touched."""
    touched: list[str] = []
    hears = object.__new__(host.Host)
    hears._loop, hears._made = Loop(), set()  # type: ignore[assignment]
    hears.listener = host.Listener(lambda _: None, touched.append, lambda _: None)

    def tell(details: Any) -> None:
        text = details if isinstance(details, str) or details is None else json.dumps(details)
        hears._job(None, Domain(), host.JOB, 1, 2, text, None)

    return tell, touched


def test_a_job_is_heard_of_when_it_runs_first(heard: tuple[Callable[..., None], list[str]]) -> None:
    """Not at each of its pauses, of which every drain makes one."""
    tell, touched = heard
    for status in ("created", "running", "paused", "running", "ready", "standby", "waiting", "pending", "concluded", "null"):
        tell({"id": COPY, "status": status})
    assert touched == ["0-0"]
    tell({"id": COPY, "status": "created"})
    tell({"id": COPY, "status": "running"})
    assert touched == ["0-0", "0-0"]


def test_what_is_no_event_of_a_job(heard: tuple[Callable[..., None], list[str]]) -> None:
    tell, touched = heard
    for details in (None, "", "[", "[]", "1", {"id": COPY}, {"status": "created"}, {"id": COPY, "status": ["created"]}):
        tell(details)
    for number in range(2 * host.JOBS_MOST):
        tell({"id": str(number), "status": "created"})
    tell({"id": "0", "status": "running"})
    tell({"id": str(2 * host.JOBS_MOST - 1), "status": "running"})
    assert touched == ["0-0"]

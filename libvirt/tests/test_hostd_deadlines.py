# SPDX-License-Identifier: GPL-2.0-or-later
"""Deadlines: of block jobs, exports and migrations of a domain, and of a VM; a migration that would not end."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from lxml import etree

from fakes import running_job
from idletime import due, jobs
from idletime.conf import rules
from idletime.facts import Migration, Plan
from idletime.hostd import settle
from idletime.hostd.settle import Looked
from idletime.police import deadline
from test_hostd_jobs import COPY, EXPORT, JOBS, MOVES, ONE, TWO, active, uplink  # noqa: F401  (uplink: a fixture)
from test_hostd_settle import LIVE, Domain, Look, look, policy, told  # noqa: F401  (look: a fixture)

NIGHT = "<i:job class='background' by='06:00'/>"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What time it is, for looks."""
    now = [time.mktime((2026, 11, 24, 5, 0, 0, 0, 0, -1))]
    for module in (settle, rules):
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: now[0]))
    return now


def test_a_job_that_would_be_late_is_let_go_and_is_background_again_where_there_is_time(
        look: Look, tmp_path: Path, clock: list[float]) -> None:  # noqa: F811
    """An hour: a thousandth of it a second at full speed, next to nothing as background. What idletimed forgets in between, it
    has written down."""
    one, done = Domain(policy("foreground", inner=NIGHT)), 0

    def at(seconds: float, more: int) -> Looked:
        nonlocal done
        clock[0], done = clock[0] + seconds, done + more
        one.qemu.jobs = [running_job(COPY, "mirror", done=done, total=1_000_000)]
        return look(one)

    assert at(0, 0).again_seconds == deadline.PERIOD_SECONDS and one.qemu.attached_jobs == {COPY: "sda"}
    assert told(tmp_path).deadlines[COPY]["deadline"] == clock[0] + 3600
    at(12, 12)
    assert one.qemu.attached_jobs == {} and told(tmp_path).deadlines[COPY]["urgent"]  # what is full speed?
    at(12, 12_000)
    assert one.qemu.attached_jobs == {COPY: "sda"} and not told(tmp_path).deadlines[COPY]["urgent"]
    at(2200, 100)
    assert one.qemu.attached_jobs == {COPY: "sda"}
    at(200, 100)
    assert one.qemu.attached_jobs == {} and told(tmp_path).in_force
    one.qemu.ended(COPY)
    assert look(one).again_seconds is None and told(tmp_path).deadlines == {}


def test_a_deadline_that_is_changed_and_taken_away(look: Look, tmp_path: Path, clock: list[float]) -> None:  # noqa: F811
    one = Domain(policy("foreground", inner=NIGHT))
    one.qemu.jobs = [running_job(COPY, "mirror")]
    look(one)
    one.xml = LIVE.format(policy=policy("foreground", inner=NIGHT.replace("06", "07")), more="")
    look(one)
    assert told(tmp_path).deadlines[COPY]["deadline"] == clock[0] + 7200
    one.xml = LIVE.format(policy=policy("foreground", inner=JOBS), more="")
    assert look(one).again_seconds is None and one.qemu.attached_jobs == {COPY: "sda"}


def test_a_job_that_is_another_one_of_the_same_name(clock: list[float]) -> None:
    """It has done less; its deadline is the next one."""
    night = Plan(jobs=(replace(ONE, by="06:00"),))
    first = jobs.tracked(night, jobs.running([running_job(COPY, done=50)]), {}, clock[0])
    later = clock[0] + 2 * 3600
    assert jobs.tracked(night, jobs.running([running_job(COPY, done=51)]), first, later)[COPY].urgent
    again = jobs.tracked(night, jobs.running([running_job(COPY, done=1)]), first, later)[COPY]
    assert not again.urgent and again.deadline == later + 23 * 3600


def test_jobs_without_a_deadline(clock: list[float]) -> None:
    """A migration's that has caught up, one that does not run yet, and those of a disk whose deadline nobody knows."""
    there = jobs.running([running_job("drive-virtio-disk0", "mirror", "ready"), running_job(COPY, status="created")])
    night = [replace(ONE, by="06:00"), replace(TWO, by="06:00")]
    assert jobs.tracked(Plan(jobs=tuple(night)), there, {}, clock[0]) == {}
    unknown = jobs.running([running_job("job0")])
    assert set(jobs.tracked(Plan(jobs=tuple(night)), unknown, {}, clock[0])) == {"job0"}


def test_an_export_is_background_until_its_deadline(clock: list[float]) -> None:
    """How much is left of it only its reader knows."""
    night, found = Plan(jobs=(replace(ONE, by="06:00"),)), jobs.Running(EXPORT, "vda", "export", "running", kind="export")
    tracks = jobs.tracked(night, [found], {}, clock[0])
    for seconds in range(0, 3600, 5):
        tracks = jobs.tracked(night, [found], tracks, clock[0] + seconds)
        assert tracks[EXPORT].urgent == (3600 - seconds <= deadline.MARGIN_SECONDS)
    assert jobs.tracked(night, [found], tracks, clock[0] + 7200)[EXPORT].urgent


# ---- of a migration

def test_a_migration_that_has_to_be_done(clock: list[float]) -> None:
    """Urgent, it is as in stock QEMU; the rest grows while the guest writes."""
    (found,) = jobs.migration(active())
    assert (found.done, found.total) == (300, 1000)
    assert not any(jobs.migration(said) for said in ({}, {"status": "setup"}, {"status": "completed"}, {"status": "failed"}))
    track = jobs.tracked(Plan(migration=MOVES), [found], {}, clock[0])["outgoing"]
    assert track.by == "06:00" and not track.urgent
    late = jobs.tracked(Plan(migration=MOVES), [found], {"outgoing": track}, track.deadline)
    assert late["outgoing"].urgent and jobs.wanted(Plan(migration=MOVES), [found], ["outgoing"]) == ([], [])
    assert jobs.tracked(Plan(migration=Migration("idletime-up0")), [found], {}, clock[0]) == {}


def test_a_migration_with_a_deadline_is_looked_at(
        look: Look, tmp_path: Path, clock: list[float], uplink: None) -> None:  # noqa: F811
    one = Domain(policy("foreground", inner=NIGHT))
    assert look(one).again_seconds is None
    one.qemu.migration = active()
    assert look(one).again_seconds == deadline.PERIOD_SECONDS and set(told(tmp_path).deadlines) == {"outgoing"}
    clock[0] = told(tmp_path).deadlines["outgoing"]["deadline"]
    look(one)
    assert one.qemu.attached_migration == []


def test_a_migration_that_would_not_end_is_let_go_where_the_policy_says_so(
        look: Look, tmp_path: Path, clock: list[float], uplink: None) -> None:  # noqa: F811
    """To its end; without a deadline, and with one that is far."""
    for inner in (JOBS.replace("/>", " diverging='foreground'/>"), NIGHT.replace("/>", " diverging='foreground'/>")):
        one = Domain(policy("foreground", inner=inner))
        one.qemu.migration = active()
        look(one)
        assert one.qemu.attached_migration == ["up0"]
        one.qemu.diverges = True
        look(one)
        assert one.qemu.attached_migration == [] and told(tmp_path).deadlines["outgoing"]["urgent"]
        one.qemu.diverges = False
        assert look(one).again_seconds == deadline.PERIOD_SECONDS and one.qemu.attached_migration == []
        one.qemu.migration = {}
        look(one)
        assert one.qemu.attached_migration == ["up0"] and told(tmp_path).deadlines == {}
    waits = Domain(policy("foreground", inner=JOBS))
    waits.qemu.migration, waits.qemu.diverges = active(), True
    look(waits)
    look(waits)
    assert waits.qemu.attached_migration == ["up0"]


# ---- of a VM

TENANT = policy("background", inner="<i:cpu class='idle'/><i:disk target='vda' resource='sda' class='background'/>").replace(
    "class='background'", "class='background' by='06:00'", 1)


def test_a_vm_is_foreground_from_its_deadline_on(look: Look, tmp_path: Path, clock: list[float]) -> None:  # noqa: F811
    one = Domain(TENANT)
    assert look(one).again_seconds == 3600 and one.qemu.state == {"virtio-disk0": ("sda", "background", "")}
    assert told(tmp_path).why == "its metadata has one; background until 06:00"
    clock[0] += 3599
    assert look(one).again_seconds == 1 and told(tmp_path).class_ == "background"
    clock[0] += 1
    assert look(one).again_seconds is None and one.qemu.state == {"virtio-disk0": ("sda", "foreground", "")}
    said = told(tmp_path)
    assert (said.class_, said.why) == ("foreground", "its metadata has one; it was background until 06:00, and that is over")
    clock[0] += 86400
    look(one)
    assert told(tmp_path).class_ == "foreground"  # for the rest of its run


def test_a_deadline_of_a_vm_that_is_changed_and_taken_away(look: Look, tmp_path: Path, clock: list[float]) -> None:  # noqa: F811
    one = Domain(TENANT)
    look(one)
    clock[0] += 3600
    look(one)
    one.xml = one.xml.replace("06:00", "07:00", 1)
    assert look(one).again_seconds == 3600 and told(tmp_path).class_ == "background"
    assert due.of_domain(etree.fromstring(one.xml)) == due.Due(clock[0] + 3600, "07:00")
    one.xml = one.xml.replace(" by='07:00'", "").replace(' by="07:00"', "", 1)
    assert look(one).again_seconds is None and told(tmp_path).class_ == "background"
    assert due.of_domain(etree.fromstring(one.xml)) is None


def test_a_record_that_makes_no_sense_counts_as_none(look: Look, tmp_path: Path, clock: list[float]) -> None:  # noqa: F811
    one = Domain(TENANT + "<i:due xmlns:i='urn:idletime:due:1' at='noon' by='06:00'/>")
    assert look(one).again_seconds == 3600 and told(tmp_path).class_ == "background"

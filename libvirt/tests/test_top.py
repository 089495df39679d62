# SPDX-License-Identifier: GPL-2.0-or-later
"""virt-idletime top: looks, what two of them come to, and the view's keys. The terminal itself: tests/e2e/test_top.py."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace

import libvirt
import pytest

import fakes
from idletime import state
from idletime.cli import live, show
from idletime.status import BlockJob, DeviceStatus, DomainStatus, ResourceStatus
from idletime.top import model, sample, table, view
from idletime.top.model import Counted, Look, after
from test_arena import lives, write_arena
from test_change import BACKGROUND, BARE, UUID, FakeDomain, marked, said


def vm(name="bg", requests=0, state_="background", class_="background", **more):
    """A VM with a disk of so many requests of 4 KiB, all of its class."""
    own = {f"{class_}_requests": requests, f"{class_}_bytes": 4096 * requests}
    other = "foreground" if class_ == "background" else "background"
    device = DeviceStatus("disk", "vda", "virtio-disk0", "idletime-sda", class_, class_, "idletime-sda", 2, 1,
                          **{f"{other}_requests": 0, f"{other}_bytes": 0, **own}, promotions=more.pop("promotions", 0))
    resource = ResourceStatus("idletime-sda", "sda", more.pop("path", "/run/idletime/sda"), 20000, (), state_,
                              more.pop("interval_us", 5000), collisions=more.pop("collisions", 0),
                              collision_cost_us=more.pop("cost", 0))
    return DomainStatus(name, f"uuid-{name}", "running", True, class_, "demote", "domain", "", True, (device,), (resource,),
                        **more)


def look(at, *vms, **more):
    return Look(100.0 + at, 1000.0 + at, vms, **more)


def test_rates_are_those_between_two_looks():
    """After 2 s: 100 requests of 4 KiB are 50 and 0.2 MB a second; 10 ms of waiting in 2 s are 0.5 %."""
    first = after(None, look(0, vm(requests=10), vm("fg", 5, "unknown", "foreground")))
    assert first.seconds is None and first.devices[0].requests_per_s is None and first.resources[0].background_per_s is None
    now = after(first, look(2, vm(requests=110, collisions=4, cost=10000, promotions=1), vm("fg", 9, "unknown", "foreground")))
    bg, fg = now.devices
    assert (bg.vm, bg.requests_per_s, bg.bytes_per_s, bg.promotions_per_s) == ("bg", 50, 204800, 0.5)
    assert (fg.vm, fg.requests_per_s) == ("fg", 2)
    (sda,) = now.resources
    assert (sda.background_per_s, sda.foreground_per_s, sda.held, sda.in_service) == (50, 2, 4, 2)
    assert (sda.collisions_per_s, sda.collision_cost, sda.interval_us, sda.state) == (2, 0.005, 5000, "background")
    assert table.resource(sda) == ("sda", "background", 5, 2, 50, 0.0, 0.2, 4, 2.0, 0.5)
    assert table.device(bg) == ("bg", "vda", "sda", "background", 50, 0.2, 2, 1, 0.5, True)


@pytest.mark.parametrize("later", [vm(requests=3), vm(requests=50, figures_at=900.0), vm("new", 50)])
def test_no_rate_is_made_of_what_does_not_belong_together(later):
    """QEMU began anew; the figures are of an earlier look; the VM is another one."""
    now = after(after(None, look(0, vm(requests=10))), look(1, later))
    assert now.devices[0].requests_per_s is None and table.device(now.devices[0])[4] is None


def test_what_others_do():
    """What libvirt counts of a VM that is not attached; what the kernel counts beyond ours."""
    bare = DomainStatus("web", "uuid-web", "running", True)
    one, two = (look(at, vm(requests=1000 * at), bare, kernel={"sda": 10_000_000 * at},
                     unattached=(Counted("uuid-web", "disk", "vda", 7 * at, 700 * at),)) for at in (0, 1))
    now = after(after(None, one), two)
    assert [(row.vm, row.class_, row.bytes_per_s) for row in now.devices] == [
        (model.ELSE, "host", 10_000_000 - 4_096_000), ("bg", "background", 4_096_000), ("web", "stock", 700)]
    assert now.devices[2].requests_per_s == 7 and not now.devices[0].uuid
    unknown = after(after(None, one), look(1, vm(requests=5, figures_at=1.0), kernel={"sda": 5}))
    assert [row.bytes_per_s for row in unknown.devices] == [None, None]


def job(requests=0, held=1):
    return BlockJob("backup-vda-libvirt-1-format", "backup", "vda", "idletime-sda", held, 1, requests, 65536 * requests, 0)


def test_a_block_job_is_a_row_and_counts_as_background():
    """In a second 20 chunks of 64 KiB of a backup beside 5 requests of 4 KiB; in the next one it has ended."""
    first = after(None, look(0, replace(vm(requests=0), block_jobs=(job(),)), kernel={"sda": 0}))
    now = after(first, look(1, replace(vm(requests=5), block_jobs=(job(20),)), kernel={"sda": 20 * 65536 + 5 * 4096 + 7}))
    backup, bg, rest = now.devices
    assert (backup.target, backup.kind, backup.class_, backup.resource) == ("vda backup", "job", "background", "sda")
    assert (backup.requests_per_s, backup.bytes_per_s, backup.held, backup.in_service) == (20, 20 * 65536, 1, 1)
    assert backup.key != bg.key and backup.uuid == bg.uuid and rest.bytes_per_s == 7
    (sda,) = now.resources
    assert (sda.background_per_s, sda.background_bytes_per_s, sda.held, sda.in_service) == (25, 20 * 65536 + 5 * 4096, 3, 2)
    ended = after(now, look(2, vm(requests=10)))
    assert [row.kind for row in ended.devices] == ["disk"] and ended.resources[0].background_per_s == 5


def test_a_vm_that_nobody_may_ask_is_unknown_and_not_stock():
    asked = DomainStatus("a", "uuid-a", "running", True, "background", in_force=None)
    (row,) = after(None, look(0, asked, unattached=(Counted("uuid-a", "disk", "vda", 1, 1),))).devices
    assert (row.class_, row.wanted) == ("unknown", "background")
    assert table.device(row)[3] == "unknown (background)"


def test_order():
    rows = after(after(None, look(0, vm("a"), vm("b"), vm("c"))), look(1, vm("a", 1), vm("b", 3), vm("c", 2))).devices
    assert [row.vm for row in rows] == ["b", "c", "a"] == [row.vm for row in model.ordered(rows, "requests")]
    assert [row.vm for row in model.ordered(rows, "name")] == ["a", "b", "c"] == [
        row.vm for row in model.ordered(rows, "held")]  # all hold two


def test_the_last_minute():
    """A letter a second; where nobody looked, what was seen before; what is older than a minute is gone."""
    now = None
    for at, state_ in ((0, "idle"), (10, "foreground"), (11, "preemption"), (15, "background")):
        now = after(now, look(at, vm(state_=state_)))
    assert now.resources[0].strip == " " * 44 + "i" * 10 + "F" + "PPPP" + "B"
    now = after(now, look(70.5, vm(state_="lost")))
    assert now.resources[0].strip == "P" * 4 + "B" * 55 + "L"
    assert now.history["sda"][0][0] == 111.0


@pytest.mark.parametrize("states, seen", [
    (("idle", "foreground"), "foreground"), (("preemption", "idle"), "preemption"),
    (("background", "foreground"), "background"), (("background", "lost"), "lost"),
    (("unknown", None), "unknown"), (("unknown", "idle"), "idle"),
])
def test_one_state_of_several_views(states, seen):
    found = after(None, look(0, *(vm(f"vm{at}", state_=one) for at, one in enumerate(states))))
    assert found.resources[0].state == seen


def test_a_resource_goes_when_its_minute_is_over():
    now = after(after(None, look(0, vm())), look(30))
    assert now.resources[0].strip.rstrip(" ")[-1] == "B" and now.resources[0].background_per_s is None
    assert after(now, look(61)).resources == ()


def test_json_and_tables_are_one_model(capsys, golden):
    now = after(after(None, look(0, vm(requests=0), kernel={"sda": 0})), look(1, vm(requests=5), kernel={"sda": 99}))
    live._line(now)
    line = capsys.readouterr().out
    assert line.count("\n") == 1 and json.loads(line)["devices"][0]["class"] == "background"
    from conftest import DATA
    golden(DATA / "show" / "top.json", json.dumps(json.loads(line), indent=1) + "\n")
    live._tables(now)
    golden(DATA / "show" / "top.txt", capsys.readouterr().out.split("  ", 1)[1])


# ---- how often

def test_pace(monkeypatch):
    """A look of 27 ms comes every 3 s; the first one, which learns everything, is not counted."""
    busy = [0.0]
    monkeypatch.setattr(sample.time, "process_time", lambda: busy[0])
    pace = sample.Pace(1.0)
    busy[0] += 5.0
    assert pace.wait_seconds() == 1.0
    for _ in range(50):
        busy[0] += 0.027
        wait = pace.wait_seconds()
    assert wait == pytest.approx(3.0)
    busy[0] += 1000
    assert pace.wait_seconds() == sample.LONGEST_SECONDS
    for _ in range(50):
        busy[0] += 0.001
        wait = pace.wait_seconds()
    assert wait == 1.0


# ---- looks

class Running(FakeDomain):
    """A domain that runs; how often its XML was read is counted."""

    def __init__(self, xml, answer=None, name="vm"):
        super().__init__(xml, xml)
        self.reads, self.answer, self._name = 0, answer, name

    def name(self):
        return self._name

    def XMLDesc(self, flags):
        self.reads += 1
        return super().XMLDesc(flags)


class Connection:
    """What libvirt answers: domains that run, and what they have counted."""

    def __init__(self, *there):
        self.there, self.fails = list(there), False

    def getAllDomainStats(self, stats, flags):
        assert stats == libvirt.VIR_DOMAIN_STATS_STATE and flags & libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
        if self.fails:
            raise libvirt.libvirtError("the line is gone")
        return [(one, {"state.state": libvirt.VIR_DOMAIN_RUNNING}) for one in self.there]

    def isAlive(self):
        return True

    def lookupByUUIDString(self, uuid):
        return next(one for one in self.there if one.UUIDString() == uuid)

    def domainListGetStats(self, there, stats, flags):
        counted = {"block.count": 1, "block.0.name": "vda", "block.0.rd.reqs": 3, "block.0.rd.bytes": 4096}
        return [(one, counted) for one in there]


@pytest.fixture
def sampler(tmp_path, monkeypatch):
    """sampler(domain): of a host with this one; QEMU answers what domain.answer says."""
    monkeypatch.setattr(sample, "DomainMonitor", lambda domain: domain.answer or fakes.FakeQemu())
    monkeypatch.setattr(sample.rules, "load", lambda _tree: sample.rules.Rules())
    state.write_daemon(str(tmp_path), (), "", "0")

    def make(*there, may_ask=True):
        return sample.Sampler(lambda: (Connection(*there), may_ask), str(tmp_path), True)
    return make


def answers(held=2):
    return fakes.FakeQemu([fakes.resource("sda", [fakes.device("virtio-disk0", held=held)], "preemption")])


def test_xml_is_read_when_idletimed_has_said_something_new(sampler, tmp_path):
    domain = Running(marked(), answers())
    state.write_domain(str(tmp_path), said())
    its = sampler(domain)
    for _ in range(3):
        (one,) = its.look().vms
    assert (one.devices[0].held, one.resources[0].state, one.figures_at) == (2, "preemption", None)
    assert domain.reads == 1
    state.write_domain(str(tmp_path), said(problems=["refused"]))
    (one,) = its.look().vms
    assert domain.reads == 2 and one.problems[0] == "refused"


def test_without_idletimed_it_is_found_out(sampler, tmp_path, monkeypatch):
    """And again after a while, as nobody says that something has changed."""
    state.remove_daemon(str(tmp_path))
    domain = Running(marked(), answers())
    its = sampler(domain)
    found = its.look()
    assert found.vms[0].class_ == "background" and found.vms[0].devices[0].resource == "idletime-sda"
    assert "idletimed does not run" in found.notes[0]
    its.look()
    assert domain.reads == 1
    monkeypatch.setattr(sample, "FRESH_SECONDS", -1.0)
    its._known.clear()
    its.look()
    its.look()
    assert domain.reads == 3


def test_who_is_not_attached_is_counted_by_libvirt(sampler):
    found = sampler(Running(BARE)).look()
    assert found.unattached == (Counted(UUID, "disk", "vda", 3, 4096),)
    assert found.vms[0].class_ is None and found.vms[0].devices == ()


def test_who_may_only_look(sampler, tmp_path):
    state.write_domain(str(tmp_path), said())
    found = sampler(Running(marked(), answers()), may_ask=False).look()
    (one,) = found.vms
    assert found.notes[0].startswith("figures are those of idletimed's last looks")
    assert one.figures_at == 1000.0 and one.devices[0].held == 0


def test_a_qemu_that_hangs(sampler, tmp_path, monkeypatch):
    """The look does not wait for it, and it is not asked twice."""
    monkeypatch.setattr(sample, "ANSWER_SECONDS", 0.01)
    free, asked = threading.Event(), []

    class Hangs:
        def execute(self, name, arguments=None):
            asked.append(name)
            assert free.wait(60)
            return []

    state.write_domain(str(tmp_path), said())
    its = sampler(Running(marked(), Hangs()))
    for _ in range(3):
        (one,) = its.look().vms
    assert one.figures_at == 1000.0 and asked == ["query-idletime"]
    assert its._patience.late == {UUID}
    free.set()
    while its._patience.late:
        time.sleep(0.01)


def test_libvirt_goes_and_comes(sampler, tmp_path):
    its = sampler(Running(marked(), answers()))
    its.look()
    its._connection.fails = True
    found = its.look()
    assert found.vms == () and found.notes[0].startswith("cannot list the domains: ")
    assert its.look().vms


def test_states_by_the_boards_where_nobody_looks(sampler, tmp_path):
    """The board has a participant in service."""
    write_arena(tmp_path / "sda")
    its = sampler()
    with lives(tmp_path / "sda", "foreground"):
        found = its._arenas([vm(state_="unknown", path=str(tmp_path / "sda"))])
        assert its._arenas([vm(state_="idle", path=str(tmp_path / "sda"))]) == {}
    assert found["sda"] in ("foreground", "preemption", "idle")
    assert its._arenas([vm(state_="unknown", path="/nonexistent")]) == {}
    assert after(None, look(0, vm(state_="unknown"), arenas={"sda": "foreground"})).resources[0].strip[-1] == "F"


# ---- keys

@pytest.mark.parametrize("class_, of_vm, interval, words", [
    ("background", "foreground", "", ["mark", "u", "--class", "background"]),
    ("guest", "", "", ["mark", "u", "--class", "guest"]),
    ("foreground", "background", "", ["enable", "u"]),
    ("unmark", "guest", "", ["unmark", "u"]),
    ("unmark", "foreground", "", ["disable", "u"]),
    ("guest", "guest", "5000", ["mark", "u", "--class", "guest", "--set", "interval-us=5000", "--set", "auto=off"]),
    ("background", "background", "auto", ["mark", "u", "--class", "background", "--set", "auto=on"]),
    ("foreground", "foreground", "5000", ["enable", "u", "--set", "interval-us=5000", "--set", "auto=off"]),
])
def test_commands(class_, of_vm, interval, words):
    """Those of the command line, which says the rest."""
    row = model.DeviceRow("a", "u", "vda", "disk", "sda", of_vm, of_vm, of_vm, None, None)
    assert view.command(row, class_, interval) == words


class Nobody:
    """A sampler that is never asked."""


@pytest.fixture
def shown(monkeypatch):
    """A view after two looks, whose commands say what they are; and what was carried out."""
    done = []

    def act(arguments):
        done.append(arguments)
        return "interval-us=0" not in " ".join(arguments), " ".join(arguments)
    its = view.View(Nobody(), 1.0, act, show.aligned, True)
    monkeypatch.setattr(its._loop.screen, "get_cols_rows", lambda: (160, 40))
    monkeypatch.setattr(view.threading.Thread, "start", lambda self: self.run())
    monkeypatch.setattr(its, "_post", lambda what: what())
    there = vm("fg", 0, "unknown", "foreground"), DomainStatus("web", "w", "running", True)
    for at in (0, 1):
        its._posted.append(look(at, vm(requests=5 * at), *there,
                                kernel={"sda": 0}, unattached=(Counted("w", "disk", "vda", 0, 0),), notes=("a note",)))
    its._take(b"")
    return its, done


def press(its, *keys):
    for key in keys:
        its._keys([key], None)
    return its._foot.text


def test_the_screen(shown):
    its, _ = shown
    lines = its._top.text.splitlines()
    assert lines[0] == "3 VMs, rates of 1.0 s, sorted by bytes" and lines[1] == "a note"
    assert lines[2].startswith("resource  state") and lines[3].startswith("sda ") and lines[4] == " " * 60 + "BB"
    assert [row.row.vm for row in its._rows] == ["bg", model.ELSE, "fg", "web"]
    assert its._foot.text == view.HELP


def test_a_narrow_screen(shown, monkeypatch):
    """At 80 columns nothing is cut off: what is left out are columns, those that matter least."""
    its, _ = shown
    assert "in service" in its._head.text and "fg MB/s" in its._top.text
    monkeypatch.setattr(its._loop.screen, "get_cols_rows", lambda: (80, 24))
    its._draw()
    lines = [*its._top.text.splitlines(), its._head.text, *(row.base_widget.text for row in its._rows)]
    assert max(map(len, lines)) <= 80
    assert lines[2].split("  ")[-1] == "fg waits %" and its._head.text.split()[-2:] == ["in", "force"]
    assert "fg MB/s" not in its._top.text and "held" in its._head.text


def test_a_change_is_confirmed(shown):
    its, done = shown
    assert press(its, "c").startswith("class of bg: b background")
    assert press(its, "x") == view.HELP and done == []
    assert press(its, "c", "g").startswith("mark uuid-bg --class guest --dry-run\ny: do it")
    assert press(its, "n") == view.HELP and len(done) == 1
    assert press(its, "c", "f", "y") == f"enable uuid-bg\n{view.HELP}"
    assert done[-1] == ["enable", "uuid-bg"]
    assert press(its, "i", "7", "backspace", "8", "0", "enter").startswith(
        "mark uuid-bg --class background --set interval-us=80 --set auto=off --dry-run\n")
    press(its, "esc")
    press(its, "i", "9", "esc")
    press(its, "i", "enter")
    assert done[-1][-1] == "--dry-run" and len(done) == 4
    refused = press(its, "i", "0", "enter")
    assert refused.endswith(f"--dry-run\n{view.HELP}") and press(its, "y") == refused and len(done) == 5
    assert press(its, "c", "window resize").startswith("class of bg")


def test_what_is_no_vm_is_not_changed(shown):
    its, done = shown
    its._rows.set_focus(1)
    assert press(its, "c") == view.HELP
    its._rows.set_focus(3)
    assert press(its, "i").startswith("web has no policy, so no interval") and done == []


def test_the_selected_one_stays_selected(shown):
    its, _ = shown
    its._rows.set_focus(2)
    press(its, "s", "s", "s")
    assert "sorted by name" in its._top.text and its._selected().vm == "fg"
    its._posted.append(look(2, vm("fg", 50, "unknown", "foreground"), vm("aa", 5)))
    its._take(b"")
    assert its._selected().vm == "fg"


def test_a_fault_of_ours_ends_it(shown, monkeypatch):
    its, _ = shown
    monkeypatch.setattr(its._sampler, "look", lambda: 1 // 0, raising=False)
    with pytest.raises(ZeroDivisionError):
        its._look()


def test_paused(shown):
    its, _ = shown
    press(its, " ")
    its._posted.append(look(2, vm("later")))
    its._take(b"")
    assert "PAUSED" in its._top.text and its._rows[0].row.vm == "bg"
    assert press(its, "c", "f", "y").startswith("enable uuid-bg\n") and its._rows[0].row.vm == "bg"
    press(its, " ")
    assert its._rows[0].row.vm == "later"


def test_names_that_a_terminal_obeys(shown):
    its, _ = shown
    its._posted.append(look(2, vm("\x1b[2Jx")))
    its._take(b"")
    assert "\x1b" not in its._rows[0].base_widget.text and "?[2Jx" in its._rows[0].base_widget.text


def test_many_resources_leave_room_for_devices(shown):
    its, _ = shown
    views = [DomainStatus(f"v{n}", f"u{n}", "running", True, "background", resources=(
        ResourceStatus(f"idletime-d{n}", f"d{n:02}", "/x", 1, state="idle"),)) for n in range(30)]  # and sda, of before
    its._posted.append(look(2, *views))
    its._take(b"")
    assert "and 25 more, which --batch shows" in its._top.text


def test_batch_ends(sampler, monkeypatch, capsys):
    """After as many looks as were asked for, and one more that the first rates need."""
    monkeypatch.setattr(live.time, "sleep", lambda _seconds: None)
    its = sampler(Running(marked(BACKGROUND), answers()))
    assert len(list(live._models(its, 1.0, 3))) == 3

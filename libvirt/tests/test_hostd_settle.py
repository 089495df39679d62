# SPDX-License-Identifier: GPL-2.0-or-later
"""One look at a running domain, with a libvirt and a QEMU that are played: what is sent, what is said, what is left alone."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import libvirt
import pytest
from lxml import etree

from fakes import FakeQemu, device, resource, stock
from idletime import meanwhile, state
from idletime.conf.rules import Rules
from idletime.errors import MonitorError
from idletime.hostd import act, native, reclaim, rights, settle, stopped, wish
from idletime.hostd.protocol import QueueWish, Wish
from idletime.hostd.settings import Settings
from idletime.policy import Class, CpuClass, Policy
from played import with_metadata

LIVE = """<domain type='kvm'><name>d</name><vcpu>4</vcpu><metadata>{policy}</metadata>
<devices><emulator>/bin/false</emulator>
<disk type='file' device='disk'><source file='/nowhere'/><target dev='vda' bus='virtio'/><alias name='virtio-disk0'/></disk>
{more}</devices></domain>"""
MEMORY = "<i:memory low='1MiB' high='2MiB'/>"
POLICY = "<i:policy xmlns:i='urn:idletime:policy:1' class='{class_}'><i:disk resource='{resource}'/>{inner}</i:policy>"

FOREGROUND = Rules(default=Policy(Class.FOREGROUND), default_place="a.toml line 1")


def policy(class_: str = "background", resource: str = "sda", inner: str = "") -> str:
    return POLICY.format(class_=class_, resource=resource, inner=inner)


class Domain:
    """A running domain. taints: what libvirt says of it; qemu: at its monitor."""

    def __init__(self, its_policy: str = "", qemu: FakeQemu | None = None, taints: tuple[str, ...] = (),
                 more: str = "") -> None:
        self.xml = LIVE.format(policy=its_policy, more=more)
        self.qemu = qemu or FakeQemu(there=["virtio-disk0"])
        self.taints, self.active, self.set = list(taints), True, {}

    def lookupByUUIDString(self, _uuid: str) -> Domain:
        return self

    def getCapabilities(self) -> str:
        return ("<capabilities><host><secmodel><model>dac</model><baselabel type='kvm'>+0:+0</baselabel></secmodel></host>"
                "</capabilities>")

    def name(self) -> str:
        return "d"

    def UUIDString(self) -> str:
        return "0-0"

    def ID(self) -> int:
        return 1

    def info(self) -> list[int]:
        return [libvirt.VIR_DOMAIN_RUNNING]

    def isActive(self) -> bool:
        return self.active

    def isPersistent(self) -> bool:
        return False

    def messages(self, _flags: int) -> list[str]:
        return self.taints

    def XMLDesc(self, _flags: int) -> str:
        return self.xml

    def backupGetXMLDesc(self) -> str:
        error = libvirt.libvirtError("no backup")
        error.err = (libvirt.VIR_ERR_NO_DOMAIN_BACKUP, 0, "no backup", 0, "", None, None, 0, 0)
        raise error

    def setMetadata(self, _kind: int, element: str | None, _key: str | None, uri: str, flags: int) -> None:
        assert flags == libvirt.VIR_DOMAIN_AFFECT_LIVE
        self.xml = with_metadata(self.xml, uri, element)

    def setSchedulerParametersFlags(self, values: dict[str, int], _flags: int) -> None:
        self.set.update(values)
        shares = f"<cputune><shares>{values['cpu_shares']}</shares></cputune>"
        bare = re.sub("<cputune>.*</cputune>", "", self.xml)
        self.xml = bare.replace("<devices>", shares + "<devices>")

    def setMemoryParameters(self, values: dict[str, int], _flags: int) -> None:
        raise libvirt.libvirtError("no cgroup")


class Monitor:
    """What settle() takes for the monitor of a domain: libvirt taints who is spoken to."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain

    def execute(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        self.domain.taints = ["tainted: custom monitor control commands issued"]
        return self.domain.qemu.execute(name, arguments)


Look = Callable[..., settle.Looked]


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Look:
    """Look at it once."""
    monkeypatch.setattr(settle, "DomainMonitor", Monitor)
    settings = Settings(run_dir=str(tmp_path / "run"), owner="0:0")
    state.write_daemon(settings.run_dir, (), "", "")

    def once(domain: Domain, wanted: Wish | None = None, known: Rules = Rules()) -> settle.Looked:
        result = settle.settle(domain, "0-0", wanted, settings, known)
        assert result is not None
        return result

    return once


def told(tmp_path: Path) -> state.DomainState:
    found = state.domain(str(tmp_path / "run"), "0-0")
    assert found is not None
    return found


def test_a_running_domain(look: Look, tmp_path: Path) -> None:
    """Attached, its arena made, told to everybody; a second look finds nothing to do."""
    one = Domain(policy())
    assert look(one).problems == ()
    assert one.qemu.state == {"virtio-disk0": ("sda", "background", "")}
    assert (tmp_path / "run/sda").is_dir()
    found = told(tmp_path)
    assert (found.class_, found.by, found.in_force, found.run) == ("background", "domain", True, 1)
    one.qemu.changes  # noqa: B018
    assert look(one).problems == () and one.qemu.changes == []


def test_who_has_no_policy_is_never_spoken_to(look: Look, tmp_path: Path) -> None:
    """Libvirt would mark it; a domain that somebody has spoken to may have something of ours."""
    one = Domain()
    look(one)
    assert one.qemu.sent == [] and one.taints == []
    assert (told(tmp_path).class_, told(tmp_path).in_force) == ("none", True)
    left = Domain(qemu=FakeQemu([resource("sda", [device("virtio-disk0")])]), taints=("tainted: custom-monitor",))
    look(left)
    assert left.qemu.state == {} and left.qemu.resources == {}


def test_a_policy_that_was_taken_out(look: Look) -> None:
    """Stock again; or what the rules say."""
    one = Domain(policy())
    look(one)
    one.xml = LIVE.format(policy="", more="")
    look(one)
    assert one.qemu.state == {} and one.qemu.resources == {}
    other = Domain(policy())
    look(other)
    other.xml = LIVE.format(policy=policy("foreground"), more="")
    look(other, known=FOREGROUND)
    assert other.qemu.state == {"virtio-disk0": ("sda", "foreground", "")}


def test_rules_are_carried_out(look: Look, tmp_path: Path) -> None:
    known = Rules(default=Policy(Class.BACKGROUND), default_place="a.toml line 1")
    one = Domain()
    looked = look(one, known=known)
    assert looked.policy is not None and looked.policy.class_ is Class.BACKGROUND
    assert told(tmp_path).by == "default"


def test_a_stock_emulator(look: Look, tmp_path: Path) -> None:
    """Said with its remedy, and left as it is."""
    one = Domain(policy(), stock())
    assert look(one).problems == (act.STOCK,) and not look(one).failed
    assert one.qemu.changes == []
    assert not told(tmp_path).in_force and told(tmp_path).query is None


# ---- stopped as a whole

def enforced(how: str, class_: str = "background", inner: str = "") -> str:
    return policy(class_, inner=inner).replace("class=", f"enforce='{how}' class=", 1)


def test_who_is_stopped_as_a_whole_is_not_held(look: Look, tmp_path: Path) -> None:
    """Nobody speaks to its QEMU; what QEMU had of ours before, it loses."""
    one = Domain(enforced("suspend"))
    looked = look(one)
    assert looked.choice is not None and looked.choice.suspend and looked.background and one.qemu.sent == []
    (access,) = looked.accesses
    assert (access.counted, access.resource, access.arena) == ("vda", "sda", str(tmp_path / "run/sda"))
    assert told(tmp_path).in_force and told(tmp_path).suspends and "(enforce='suspend')" in told(tmp_path).enforced
    one.xml = LIVE.format(policy=policy(), more="")
    assert look(one).choice.interval and one.qemu.state  # type: ignore[union-attr]
    one.xml = LIVE.format(policy=enforced("suspend"), more="")
    assert look(one).choice.suspend and one.qemu.state == {}  # type: ignore[union-attr]


def test_a_stock_emulator_is_stopped_with_auto(look: Look, tmp_path: Path) -> None:
    one = Domain(enforced("auto"), stock())
    looked = look(one)
    assert looked.problems == () and looked.choice is not None and looked.choice.suspend and looked.grant.plan.devices == ()
    assert told(tmp_path).in_force and told(tmp_path).better == "start it with Idletime's QEMU"


def test_a_guest_that_lowers_its_vm(look: Look) -> None:
    """As foreground on the board it would stop itself."""
    one = Domain(enforced("suspend", "foreground", DEMOTE), more=CHANNEL)
    assert one.qemu.state == {} and not look(one).choice.suspend  # type: ignore[union-attr]
    assert one.qemu.state == {"virtio-disk0": ("sda", "foreground", "")}
    looked = look(one, Wish(True))
    assert looked.choice.suspend and looked.background and one.qemu.state == {}  # type: ignore[union-attr]
    looked = look(one, Wish(False))
    assert not looked.choice.suspend and one.qemu.state  # type: ignore[union-attr]


def test_a_guest_whose_qemu_holds_nothing(look: Look) -> None:
    """It is told so, instead of that it is background."""
    one = Domain(enforced("interval", "foreground", DEMOTE), stock(), more=CHANNEL)
    grant = look(one, Wish(True)).grant
    assert not grant.background and [refusal.code for refusal in grant.refused] == [rights.NOT_HELD]
    assert "its QEMU is stock" in grant.refused[0].reason


def test_a_guest_of_which_nothing_is_scheduled(look: Look) -> None:
    """One without a policy, and one whose policy names no device: each has its answer."""
    looked = look(Domain(more=CHANNEL), Wish(True))
    assert [refusal.code for refusal in looked.grant.refused] == ["control-none"] and looked.wish == Wish(True)
    none = policy("foreground", "none", DEMOTE)
    looked = look(Domain(none, more=CHANNEL), Wish(True))
    assert [refusal.code for refusal in looked.grant.refused] == [rights.NOT_HELD] and not looked.grant.background
    assert not look(Domain(none, more=CHANNEL)).grant.refused


def test_who_does_not_answer_has_a_policy_still(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that says nothing of it lets nobody go on. That there is no policy is an answer."""
    record = f"<s:stopped xmlns:s='{stopped.NAMESPACE}' seconds='4' why='sda'/>"
    one = Domain(enforced("auto") + record)

    def hang(*_: Any) -> None:
        raise MonitorError("libvirt refused a monitor command: the line is cut")

    monkeypatch.setattr(one.qemu, "execute", hang)
    looked = look(one)
    assert (looked.failed, looked.choice, looked.stopped) == (True, None, stopped.Record(4, "sda"))
    wrong = Domain(policy("idle") + record)
    assert (look(wrong).choice, look(wrong).stopped) == (None, stopped.Record(4, "sda"))
    gone = look(Domain(record))
    assert gone.choice is not None and not gone.choice.suspend and gone.stopped is not None


@pytest.mark.parametrize(("now", "suspends"), [
    (policy("foreground"), False), (enforced("auto", "foreground"), False), (enforced("suspend"), True)])
def test_what_is_known_whoever_answers(look: Look, monkeypatch: pytest.MonkeyPatch, now: str, suspends: bool) -> None:
    """Who is made foreground goes on, and who is to be stopped is, also where its QEMU cannot be asked."""
    one = Domain(now, taints=("tainted: custom monitor control commands issued",))

    def hang(*_: Any) -> None:
        raise MonitorError("libvirt refused a monitor command: the line is cut")

    monkeypatch.setattr(one.qemu, "execute", hang)
    looked = look(one)
    assert looked.failed and looked.choice is not None
    assert (looked.choice.suspend, looked.choice.interval) == (suspends, False)


def test_status_says_that_it_is_stopped(look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of one that runs is from between two acts."""
    one = Domain(enforced("suspend") + f"<s:stopped xmlns:s='{stopped.NAMESPACE}' seconds='4' why='sda'/>")
    look(one)
    assert told(tmp_path).stopped == ""
    monkeypatch.setattr(one, "info", lambda: [libvirt.VIR_DOMAIN_PAUSED])
    look(one)
    assert told(tmp_path).stopped == "sda"


def test_a_wrong_policy_changes_nothing(look: Look, tmp_path: Path) -> None:
    one = Domain(policy())
    look(one)
    one.xml = one.xml.replace("class=\"background\"", "class='idle'").replace("class='background'", "class='idle'")
    before = one.qemu.state
    looked = look(one)
    assert "class='idle' is not known" in looked.problems[0] and not looked.failed
    assert one.qemu.state == before
    assert told(tmp_path).problems == looked.problems and not told(tmp_path).in_force


def test_a_monitor_that_does_not_answer(look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a migration: another try; until then observers leave out whom they left out."""
    one = Domain(policy())
    before = look(one)
    assert before.part is not None and before.part.uses

    def refuse(_name: str, _arguments: Any = None) -> Any:
        raise MonitorError("libvirt refused a monitor command: cannot acquire state change lock")

    monkeypatch.setattr(one.qemu, "execute", refuse)
    looked = look(one)
    assert looked.failed and "cannot acquire state change lock" in looked.problems[0] and looked.part is None
    assert not told(tmp_path).in_force


def test_a_device_that_comes_and_goes(look: Look) -> None:
    one = Domain(policy())
    look(one)
    second = "<disk type='file'><source file='/b'/><target dev='vdb' bus='virtio'/><alias name='virtio-disk1'/></disk>"
    one.xml, one.qemu.there = LIVE.format(policy=policy(), more=second), {"virtio-disk0", "virtio-disk1"}
    look(one)
    assert set(one.qemu.state) == {"virtio-disk0", "virtio-disk1"}
    one.xml = LIVE.format(policy=policy(), more="")
    one.qemu.resources["idletime-sda"]["devices"].pop()
    assert look(one).problems == () and list(one.qemu.state) == ["virtio-disk0"]


# ---- the guest's wish

DEMOTE = "<i:guest control='demote'/>"
CHANNEL = "<channel type='unix'><source path='/c'/><target type='virtio' name='org.idletime.agent.0'/></channel>"


def test_a_guest_lowers_itself(look: Look) -> None:
    """On record before it is in force, and after a restart without being asked again."""
    one = Domain(policy("foreground", inner=DEMOTE), more=CHANNEL)
    looked = look(one, Wish(True))
    assert looked.channel == "/c" and looked.problems == ()
    assert one.qemu.state == {"virtio-disk0": ("sda", "background", "")}
    assert wish.of_domain(etree.fromstring(one.xml)) == Wish(True)
    assert look(one).grant.background
    look(one, Wish())
    assert one.qemu.state == {"virtio-disk0": ("sda", "foreground", "")}
    assert wish.NAMESPACE not in one.xml


def test_what_qemu_refuses_of_a_wish_is_refused(look: Look) -> None:
    """The policy itself is in force."""
    one = Domain(policy("foreground", inner=DEMOTE), more=CHANNEL)
    look(one)
    obey = one.qemu.do_idletime_set

    def refuse(arguments: dict[str, Any]) -> None:
        if arguments.get("background-queues"):
            raise MonitorError("QEMU refused idletime-set: no")
        obey(arguments)

    one.qemu.do_idletime_set = refuse  # type: ignore[method-assign]
    looked = look(one, Wish(False, (QueueWish({"target": "vda"}, "1"),)))
    assert [refusal.code for refusal in looked.grant.refused] == ["failed"]
    assert one.qemu.state == {"virtio-disk0": ("sda", "foreground", "")} and looked.problems == ()


def test_a_wish_is_not_blamed_for_another_device(look: Look) -> None:
    """One that QEMU always refuses to attach; the wish for the other one is in force."""
    second = "<disk type='file'><source file='/b'/><target dev='vdb' bus='virtio'/><alias name='virtio-disk1'/></disk>"
    one = Domain(policy("foreground", inner=DEMOTE), FakeQemu(there=["virtio-disk0"]), more=CHANNEL + second)
    looked = look(one, Wish(False, (QueueWish({"target": "vda"}, "1"),)))
    assert looked.failed and "virtio-disk1: QEMU refused idletime-attach" in looked.problems[0]
    assert one.qemu.state == {"virtio-disk0": ("sda", "foreground", "1")} and looked.grant.refused == ()


def test_a_migration_lets_nothing_be_kept(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    """What libvirt refuses for now is said and tried again, and keeps no disk from its resource."""
    one = Domain(policy(inner="<i:cpu class='minimal'/>"))

    def refuse(*_: Any) -> None:
        raise libvirt.libvirtError("cannot acquire state change lock")

    monkeypatch.setattr(one, "setMetadata", refuse)
    looked = look(one)
    assert looked.failed and "state change lock" in looked.problems[0]
    assert one.qemu.state == {"virtio-disk0": ("sda", "background", "")}


def test_without_a_channel(look: Look) -> None:
    (problem,) = look(Domain(policy(inner=DEMOTE))).problems
    assert "has no channel org.idletime.agent.0; remedy: virsh attach-device" in problem


# ---- a command that was killed

@pytest.mark.parametrize(("command", "left"), [
    ({}, True), ({"started": 0}, False), ({"pid": 1 << 30}, False), ({"boot": "another host's"}, False),
    ({"started": 0, "space": "a container's"}, True),
    ({"boot": "another host's", "policy": "somebody wrote another one"}, None)])
@pytest.mark.parametrize("before", [policy(inner=MEMORY), None])
def test_a_policy_that_was_for_a_while(look: Look, command: dict[str, Any], left: bool | None, before: str | None) -> None:
    """It is put back when its command has ended without doing so, or ran on another host; not over somebody else's."""
    one = Domain(policy(inner="<i:job class='background'/>"))
    now = etree.tostring(etree.fromstring(one.xml).find("metadata")[0], encoding="unicode")
    meanwhile.keep(one, replace(meanwhile.mine(now, before), **command))
    again = look(one).again_seconds
    assert (meanwhile.NAMESPACE in one.xml) == bool(left) == (again is not None)
    said = etree.fromstring(one.xml).iterfind("./metadata/{urn:idletime:policy:1}*/*")
    found = {etree.QName(each).localname for each in said}
    assert found == ({"disk", "job"} if left is not False else {"disk", "memory"} if before else set())


# ---- processor and memory

def test_the_share_goes_back_to_what_it_was(look: Look) -> None:
    one = Domain(policy(inner="<i:cpu class='minimal'/>"))
    one.setSchedulerParametersFlags({"cpu_shares": 50}, 0)
    look(one)
    assert one.set == {"cpu_shares": native.MIN_SHARES} and native.NAMESPACE in one.xml
    look(one)
    one.xml = one.xml.replace("<i:cpu class=\"minimal\"/>", "").replace("<i:cpu class='minimal'/>", "")
    assert "i:cpu" not in one.xml
    look(one)
    assert one.set == {"cpu_shares": 50} and native.NAMESPACE not in one.xml


def test_a_promoted_vm_gets_its_processors_back(look: Look) -> None:
    """`mark foreground` changes the class alone."""
    inner = "<i:cpu class='minimal'/>"
    one = Domain(policy(inner=inner))
    one.setSchedulerParametersFlags({"cpu_shares": 50}, 0)
    look(one)
    assert one.set == {"cpu_shares": native.MIN_SHARES}
    one.xml = one.xml.replace('class="background"', 'class="foreground"')
    look(one)
    assert one.set == {"cpu_shares": 50} and "minimal" in one.xml


def test_what_cannot_be_put_back_now_is_put_back_later(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    """libvirt has another job, or refuses: what was in force stays on record, and the look is tried again."""
    one = Domain(policy(inner="<i:cpu class='minimal'/>"))
    one.setSchedulerParametersFlags({"cpu_shares": 50}, 0)
    look(one)
    one.xml = one.xml.replace('class="background"', 'class="foreground"')
    with monkeypatch.context() as refused:
        refused.setattr(one, "setSchedulerParametersFlags", one.setMemoryParameters)
        looked = look(one)
        assert looked.failed and any("shares 50 is not in force" in problem for problem in looked.problems)
        assert one.set == {"cpu_shares": native.MIN_SHARES} and native.NAMESPACE in one.xml
    assert not look(one).failed
    assert one.set == {"cpu_shares": 50} and native.NAMESPACE not in one.xml


def test_what_never_came_into_force_is_not_put_back(look: Look) -> None:
    """The VM of a libvirt without cgroups is made foreground: there is nothing to do, and nothing to complain of."""
    one = Domain(policy(inner=MEMORY))
    assert look(one).problems and native.NAMESPACE not in one.xml
    one.xml = one.xml.replace("<metadata>", f"<metadata><b:before xmlns:b='{native.NAMESPACE}' soft-limit=''/>", 1)
    one.xml = one.xml.replace('class="background"', 'class="foreground"').replace("class='background'", "class='foreground'")
    looked = look(one)
    assert (looked.problems, looked.failed) == ((), False) and native.NAMESPACE not in one.xml


@pytest.mark.parametrize("element", ["vcpusched", "iothreadsched", "emulatorsched"])
def test_a_scheduler_of_the_domain_stays(element: str) -> None:
    live = etree.fromstring(f"<domain><cputune><{element} scheduler='fifo' priority='1'/></cputune></domain>")
    meant = Policy(Class.BACKGROUND, cpu=CpuClass.IDLE)
    assert native.SCHEDULER not in native.wanted(meant, live)
    live[0].remove(live[0][0])
    assert native.SCHEDULER in native.wanted(meant, live)


def test_a_share_of_cgroup_v2(look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2 of 100 is ten times what v1 gives: the domain's group, not that of its threads, is idle; first not, at the way back."""
    own, groups = "/machine.slice/machine-qemu\\x2d1\\x2dweb.scope", tmp_path / "cgroup"
    (groups / own[1:] / "libvirt/emulator").mkdir(parents=True)
    idle = groups / own[1:] / "cpu.idle"
    idle.write_text("0\n")
    (groups / own[1:] / "libvirt/emulator/cpu.idle").write_text("0\n")
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text(f"0::{own}/libvirt/emulator\n")
    monkeypatch.setattr(native, "CGROUPS", str(groups))
    monkeypatch.setattr(native, "PROCESSES", str(tmp_path / "proc"))
    monkeypatch.setattr(native, "pid_of", lambda name, uri: 7)
    at: list[str] = []
    one = Domain(policy(inner="<i:cpu class='minimal'/>"))
    set_shares = one.setSchedulerParametersFlags
    monkeypatch.setattr(one, "setSchedulerParametersFlags", lambda values, flags: (at.append(idle.read_text().strip()),
                                                                                  set_shares(values, flags)))
    one.setSchedulerParametersFlags({"cpu_shares": 50}, 0)
    look(one)
    assert (idle.read_text(), one.set) == ("1", {"cpu_shares": 2})
    assert (groups / own[1:] / "libvirt/emulator/cpu.idle").read_text() == "0\n"
    one.xml = one.xml.replace("<i:cpu class=\"minimal\"/>", "").replace("<i:cpu class='minimal'/>", "")
    look(one)
    assert (idle.read_text(), one.set, at) == ("0", {"cpu_shares": 50}, ["0", "0", "0"])


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/sys/fs/cgroup/cpu").is_dir(), reason="needs cgroups of v1, and root")
def test_this_kernel_takes_no_share_of_an_idle_group() -> None:
    """Why the order matters; shown with v1's cpu.shares, which is the same scheduler's."""
    group = Path("/sys/fs/cgroup/cpu/idletime-test")
    group.mkdir()
    try:
        if not (group / "cpu.idle").exists():
            pytest.skip("a kernel before 5.15")
        (group / "cpu.idle").write_text("1")
        with pytest.raises(OSError, match="Invalid argument"):
            (group / "cpu.shares").write_text("50")
        (group / "cpu.idle").write_text("0")
        (group / "cpu.shares").write_text("50")
    finally:
        group.rmdir()


@pytest.mark.parametrize(("cgroup", "controllers", "enabled", "takes"), [
    ("0::/\n", "", "1", True),
    ("1:cpu:/\n2:memory:/some\n0::/some\n", "memory io", "1", True),
    ("1:cpu,cpuacct:/machine/a\n0::/\n", "", "1", False),
    ("0::/machine/a\n", "cpu io", "1", False),
    ("0::/machine/a/b/c\n", "cpu io", "1", False),
    ("0::/elsewhere/c\n", "cpu io", "1", True),
    ("0::/\n", "", "0", False),
])
def test_a_vm_in_an_autogroup(look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cgroup: str, controllers: str,
                              enabled: str, takes: bool) -> None:
    """Where libvirt has no cgroups the kernel weighs sessions, and libvirt would refuse a share."""
    own, process = tmp_path / "proc/7/autogroup", tmp_path / "proc/7"
    process.mkdir(parents=True)
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/sched_autogroup_enabled").write_text(enabled + "\n")
    (process / "cgroup").write_text(cgroup)
    own.write_text("/autogroup-12 nice 3\n")
    for name in ("some", "machine/a"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "cgroup.controllers").write_text(controllers)
    monkeypatch.setattr(native, "CGROUPS", str(tmp_path))
    monkeypatch.setattr(native, "PROCESSES", str(tmp_path / "proc"))
    monkeypatch.setattr(native, "pid_of", lambda name, uri: 7)
    one = Domain(policy(inner="<i:cpu class='minimal'/>"))
    look(one)
    shares = {"cpu_shares": native.MIN_SHARES}
    assert (own.read_text(), one.set) == (("19", {}) if takes else ("/autogroup-12 nice 3\n", shares))
    if takes:
        own.write_text("/autogroup-12 nice 19\n")
        one.xml = one.xml.replace("<i:cpu class=\"minimal\"/>", "").replace("<i:cpu class='minimal'/>", "")
        look(one)
        assert own.read_text() == "3" and native.NAMESPACE not in one.xml


def test_what_libvirt_cannot_do_is_said(look: Look) -> None:
    (problem,) = look(Domain(policy(inner=MEMORY))).problems
    assert problem.startswith("soft-limit 2048 is not in force: ") and "give libvirtd its cgroup" in problem


def test_no_throttle_of_cgroup_v2(look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was a throttle under an earlier version is taken back; the policy's share is set all the same."""
    one = Domain(policy(inner="<i:cpu class='minimal'/>" + MEMORY))
    one.xml = one.xml.replace("<metadata>", f"<metadata><b:before xmlns:b='{native.NAMESPACE}' soft-limit=''/>", 1)
    monkeypatch.setattr(native, "CGROUPS", str(tmp_path))
    (tmp_path / "cgroup.controllers").touch()
    back: list[dict[str, int]] = []
    monkeypatch.setattr(one, "setMemoryParameters", lambda values, flags: back.append(values))
    assert look(one).problems == ()
    assert back == [{"soft_limit": 9007199254740991}] and one.set == {"cpu_shares": 2}


def test_a_foreground_has_no_soft_limit(look: Look) -> None:
    """Whatever else its policy says."""
    assert look(Domain(policy("foreground", inner=MEMORY))).problems == ()


def test_what_it_gives_is_told(look: Look, tmp_path: Path) -> None:
    one = Domain(policy(inner="<i:memory low='1MiB'/>"), more="<memballoon model='virtio'/>")
    taken = f"<m:memory xmlns:m='{reclaim.NAMESPACE}' bytes='{8 << 20}'/>"
    sizes = "<memory unit='KiB'>8192</memory><currentMemory unit='KiB'>2048</currentMemory>"
    one.xml = one.xml.replace("</metadata>", taken + "</metadata>" + sizes)
    looked = look(one)
    assert (looked.balloon, looked.memory, looked.taken) == (True, 8 << 20, reclaim.Record(8 << 20))
    assert (told(tmp_path).memory_given, told(tmp_path).memory_low) == (6 << 20, 1 << 20)
    assert look(Domain(policy())).balloon is False and told(tmp_path).memory_given is None


@pytest.mark.parametrize("want, now, before, to_set, kept", [
    ({}, {"shares": "7"}, {}, {}, {}),
    ({"shares": "2"}, {"shares": "7"}, {}, {"shares": "2"}, {"shares": "7"}),
    ({"shares": "2"}, {"shares": "2"}, {"shares": "7"}, {}, {"shares": "7"}),
    ({"shares": "2"}, {"shares": "2"}, {}, {}, {}),
    ({"shares": "2"}, {"shares": "9"}, {"shares": "7"}, {"shares": "2"}, {"shares": "7"}),
    ({}, {"shares": "2"}, {"shares": "7"}, {"shares": "7"}, {"shares": "7"}),
    ({"shares": "2", "group-idle": "1"}, {"shares": "7", "group-idle": "0"}, {}, {"shares": "2", "group-idle": "1"},
     {"shares": "7", "group-idle": "0"}),
    ({"soft-limit": "1"}, {"shares": "2"}, {"shares": ""}, {"soft-limit": "1", "shares": ""},
     {"soft-limit": "", "shares": ""}),
])
def test_what_is_set_and_put_back(want: Any, now: Any, before: Any, to_set: Any, kept: Any) -> None:
    assert native.change(want, now, before) == (to_set, kept)

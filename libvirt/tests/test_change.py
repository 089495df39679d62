# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes of policies: what is written where, what is refused before, and how it is known that it was carried out."""

from __future__ import annotations

import threading
import time

import libvirt
import pytest

import fakes
from idletime import change, enable, state, status
from idletime.conf.rules import Decision, Rules
from idletime.domains import HostError
from idletime.errors import Exit, PolicyError
from idletime.facts import DevicePlan, Plan, ResourcePlan
from idletime.policy import NAMESPACE, Class, Policy, edit
from idletime.resolve import Host
from idletime.verdict import of_domain
from idletime.xmltree import read

UUID = "11111111-2222-3333-4444-555555555555"
BARE = f"""<domain type='kvm'><name>vm</name><uuid>{UUID}</uuid>
  <devices><disk type='file' device='disk'><source file='/a'/><target dev='vda' bus='virtio'/></disk>
  <graphics type='vnc' passwd='secret'/></devices></domain>"""
BACKGROUND = edit.with_device(edit.plain("background"), "disk", None, {"resource": "sda"})


class FakeDomain:
    """A domain as libvirt shows it; config or live may be None. Keeps what was written."""

    def __init__(self, config=None, live=None, refuses=""):
        self.xml = {True: config, False: live}
        self.written, self.refuses, self.starts = [], refuses, 0
        self.run, self.handle = 3, self

    def connect(self):
        return self

    def lookupByUUIDString(self, _uuid):
        return self.handle

    def autostart(self):
        return self.starts

    def setAutostart(self, starts):
        self.starts = int(starts)

    def name(self):
        return "vm"

    def UUIDString(self):
        return UUID

    def ID(self):
        return self.run

    def isActive(self):
        return int(self.xml[False] is not None)

    def isPersistent(self):
        return int(self.xml[True] is not None)

    def XMLDesc(self, flags):
        assert not flags & libvirt.VIR_DOMAIN_XML_SECURE  # nobody defines it, so nobody needs its secrets
        inactive = bool(flags & libvirt.VIR_DOMAIN_XML_INACTIVE) or self.xml[False] is None
        return self.xml[inactive].replace(" passwd='secret'", "")

    def setMetadata(self, kind, text, key, uri, flags):
        assert (kind, uri) == (libvirt.VIR_DOMAIN_METADATA_ELEMENT, NAMESPACE)
        if self.refuses:
            raise libvirt.libvirtError(self.refuses)
        self.written.append((text, key, flags))


def marked(policy=BACKGROUND):
    return edit.in_domain(BARE, policy)


def judge(xml, known=Rules()):
    return of_domain(xml, known, Host("/nonexistent"))


def plan(domain, edited):
    return change.plan(change.look(domain), edited, judge)


BOTH = libvirt.VIR_DOMAIN_AFFECT_LIVE | libvirt.VIR_DOMAIN_AFFECT_CONFIG


@pytest.mark.parametrize(
    "config, live, flags",
    [
        (BARE, BARE, BOTH),
        (BARE, None, libvirt.VIR_DOMAIN_AFFECT_CONFIG),
        (None, BARE, libvirt.VIR_DOMAIN_AFFECT_LIVE),
        (BARE, marked(), libvirt.VIR_DOMAIN_AFFECT_CONFIG),  # only what differs
    ],
)
def test_written_where_it_differs(config, live, flags):
    domain = FakeDomain(config, live)
    found = plan(domain, lambda _: BACKGROUND)
    change.write(found)
    ((text, key, written),) = domain.written
    assert (key, written) == ("idletime", flags)
    assert text == '<policy class="background"><disk resource="sda"/></policy>'  # libvirt adds the namespace
    assert found.verdict.decision.class_ == "background"


def test_nothing_to_change_is_not_written():
    """However libvirt has put the policy."""
    theirs = BARE.replace("<devices>", f"<metadata><x:policy xmlns:x='{NAMESPACE}'\n class='background'>\n <x:disk  "
                          "resource='sda'/> </x:policy></metadata><devices>")  # fmt: skip
    domain = FakeDomain(theirs, theirs)
    found = plan(domain, lambda _: BACKGROUND)
    change.write(found)
    assert not found.changed and not domain.written


def test_the_policy_is_taken_out():
    domain = FakeDomain(marked(), marked())
    found = plan(domain, lambda _: None)
    change.write(found)
    assert domain.written == [(None, None, BOTH)]
    assert found.verdict.decision.class_ == "none" and found.expected.policy == ""


def test_one_that_a_wrong_rule_fits_can_be_unmarked():
    """Nobody can mark it meanwhile."""
    def wrong(_xml):
        raise PolicyError([])

    domain = FakeDomain(marked(), marked())
    found = change.plan(change.look(domain), lambda _: None, wrong)
    assert found.changed and found.after is None and "a rule of the host" in str(found.verdict.decision)
    with pytest.raises(PolicyError):
        change.plan(change.look(domain), lambda _: edit.plain("background"), wrong)


def test_the_run_is_that_of_the_look():
    """libvirt's handle keeps the one that it had when it was listed."""
    domain = FakeDomain(marked(), marked())
    domain.handle = FakeDomain(marked(), marked())
    domain.handle.run = 4
    assert change.look(domain).run == 4


def test_the_persistent_policy_is_the_one_that_is_edited():
    domain = FakeDomain(marked(), marked(edit.plain("guest")))
    found = plan(domain, lambda text: edit.with_class(text, "foreground"))
    assert found.after == BACKGROUND.replace("background", "foreground") and found.live and found.config


def test_a_wrong_policy_is_refused_before_anything_is_written():
    domain = FakeDomain(BARE, BARE)
    with pytest.raises(PolicyError, match="cannot be the name of a resource"):
        plan(domain, lambda _: BACKGROUND.replace("sda", "a/b"))
    with pytest.raises(PolicyError, match="is not QEMU"):
        plan(FakeDomain(BARE.replace("kvm", "xen")), lambda _: BACKGROUND)
    assert not domain.written


def test_what_somebody_else_has_changed_meanwhile_is_kept():
    """Between the look and the write; what is written is an edit of that."""
    domain, edited = FakeDomain(BARE), lambda text: edit.with_settings(edit.with_class(text, "background"), {"weight": "50"})
    found = plan(domain, edited)
    domain.xml[True] = marked(edit.with_device(edit.plain("guest"), "disk", "vda", {"resource": "san"}))
    change.carry_out(found, edited, judge)
    ((text, *_),) = domain.written
    assert 'resource="san"' in text and 'weight="50"' in text and 'class="background"' in text


def test_the_name_of_who_has_a_policy_of_another_version():
    theirs = BARE.replace("<devices>", "<metadata><x:policy xmlns:x='urn:idletime:policy:2'/></metadata><devices>")
    with pytest.raises(PolicyError, match="'vm'"):
        change.look(FakeDomain(theirs))


def test_libvirt_refuses():
    with pytest.raises(HostError, match="cannot write the policy of 'vm'"):
        change.write(plan(FakeDomain(BARE, refuses="operation forbidden"), lambda _: BACKGROUND))


# ---- carried out?

PLAN = Plan((ResourcePlan("idletime-sda", "sda", "/run/idletime/sda", {"auto": True}, ("/a", "sda")),),
            (DevicePlan("disk", "vda", "virtio-disk0", "idletime-sda", Class.BACKGROUND),))  # fmt: skip


HAS = ({**fakes.resource("sda", [fakes.device("virtio-disk0")]), "auto": True},)
"""What query-idletime answers where the plan is in force."""


def said(policy=BACKGROUND, run=3, class_="background", problems=(), query=HAS):
    subject = state.Subject(UUID, "vm", run, state.digest(read(policy)) if policy else "")
    decision = Decision(Policy(Class(class_)) if class_ != "none" else None, "domain", "its metadata has one")
    return state.described(subject, decision, PLAN, query, problems, 1000.0)


EXPECTED = change.Expected("vm", UUID, 3, state.digest(read(BACKGROUND)), "background")


@pytest.mark.parametrize("other", [said(run=2), said(edit.plain("background")), said(class_="guest"), said(None), None])
def test_another_run_policy_or_class_is_not_it(other):
    assert change.outcome(EXPECTED, other) is None


def test_outcome():
    found = change.outcome(EXPECTED, said(problems=["its QEMU is stock"]))
    assert (found.in_force, found.devices, found.problems) == (False, ("vda on sda",), ("its QEMU is stock",))


def test_wait_until_it_is_said(tmp_path):
    """The last word counts: first the state before the change is there."""
    run_dir = str(tmp_path)
    state.write_daemon(run_dir, (), "qemu:///system", "0")
    state.write_domain(run_dir, said(edit.plain("guest"), class_="guest"))
    still = threading.Timer(0.1, state.write_domain, (run_dir, said(query=())))  # it has looked; requests leave first
    writer = threading.Timer(0.3, state.write_domain, (run_dir, said()))
    still.start()
    writer.start()
    (found,) = change.wait([EXPECTED], run_dir, 30)
    writer.join()
    assert found.in_force and found.devices == ("vda on sda",) and not found.problems


def test_no_daemon_is_said_at_once(tmp_path):
    begun = time.monotonic()
    (found,) = change.wait([EXPECTED], str(tmp_path), 30)
    assert found.in_force is None and "idletimed does not run; remedy: systemctl start idletimed" in found.problems[0]
    assert time.monotonic() - begun < 10
    state.write_daemon(str(tmp_path), (), "", "0")
    text = (tmp_path / ".state" / "daemon.json").read_text()
    (tmp_path / ".state" / "daemon.json").write_text(text.replace('"started": ', '"started": 9'))  # another process's number
    assert state.daemon(str(tmp_path)) is None


def test_a_daemon_that_does_not_come_to_it(tmp_path):
    state.write_daemon(str(tmp_path), (), "", "0")
    state.write_domain(str(tmp_path), said(query=()))
    (found,) = change.wait([EXPECTED], str(tmp_path), 0.1)
    assert "not carried it out within 0.1 s" in found.problems[0] and "remedy" in found.problems[0]


def test_all_running_domains_by_the_rules():
    """What enable --all waits for: those whose own policy is wrong do not count."""
    wrong = BARE.replace("<devices>", f"<metadata><p:policy xmlns:p='{NAMESPACE}' class='x'/></metadata><devices>")
    looks = [change.look(FakeDomain(BARE, BARE)), change.look(FakeDomain(BARE)), change.look(FakeDomain(None, marked()))]
    looks.append(change.Domain(None, "wrong", UUID, 4, False, wrong, None, None))
    rules = Rules(default=Policy(Class.FOREGROUND), default_place="x")
    assert [(one.class_, one.policy != "") for one in change.by_rules(looks, rules)] == [
        ("foreground", False),
        ("background", True),
    ]


# ---- the files

def test_what_is_said_can_be_read_again(tmp_path):
    state.write_daemon(str(tmp_path), ("a",), "u", "0")
    state.write_domain(str(tmp_path), said())
    found = state.domain(str(tmp_path), UUID)
    assert state.plan_of(found) == PLAN and (found.why, found.looked) == ("its metadata has one", 1000.0)
    assert said().in_force and not said(query=None).in_force  # a QEMU that does not know us has nothing of it
    assert state.daemon(str(tmp_path)).problems == ("a",)
    assert (tmp_path / ".state").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / ".state" / f"{UUID}.json").stat().st_mode & 0o777 == 0o644
    state.remove_domain(str(tmp_path), UUID)
    state.remove_domain(str(tmp_path), UUID)
    assert state.domain(str(tmp_path), UUID) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"state-version": 2}', '{"state-version": 1, "uuid": 3}', "\0"])
def test_what_cannot_be_read_is_not_there(tmp_path, text):
    (tmp_path / ".state").mkdir()
    (tmp_path / ".state" / f"{UUID}.json").write_text(text)
    assert state.domain(str(tmp_path), UUID) is None


def test_digests():
    one = read(f"<a:policy xmlns:a='{NAMESPACE}' class='guest'>\n <a:share weight='5'/><!-- x --></a:policy>")
    other = read(f"<policy xmlns='{NAMESPACE}' class='guest'><share   weight='5'></share></policy>")
    assert state.digest(one) == state.digest(other) != state.digest(read(edit.plain("guest")))
    assert state.digest(None) == ""


# ---- the host's default

FOREGROUND = Rules(default=Policy(Class.FOREGROUND), default_place="/etc/idletime/rules.d/10.toml line 1")


def test_default_there_and_back(tmp_path):
    root = str(tmp_path)
    enable.act(enable.enable(Rules()), root)
    file = tmp_path / "etc/idletime/rules.d/90-enable-all.toml"
    assert 'default = "foreground"' in file.read_text() and file.stat().st_mode & 0o777 == 0o644
    assert enable.enable(FOREGROUND).done and enable.there(root)
    enable.act(enable.disable(FOREGROUND, True), root)
    assert not file.exists() and not enable.there(root)
    assert enable.disable(Rules(), False).done


@pytest.mark.parametrize("class_", ["none", "background"])
def test_another_default_is_the_operators(class_):
    default = None if class_ == "none" else Policy(Class(class_))
    rules = Rules(default=default, default_place="10.toml line 1")
    with pytest.raises(enable.DefaultRefused) as raised:
        enable.enable(rules)
    assert f'10.toml line 1 says default = "{class_}"; remedy' in str(raised.value)
    assert raised.value.code == Exit.SETTINGS
    if default:
        with pytest.raises(enable.DefaultRefused, match="take the line out there"):
            enable.disable(rules, False)


# ---- status for those who may only look

def sampled(tmp_path, xml, said_=None):
    if said_ is not None:
        state.write_daemon(str(tmp_path), (), "", "0")
        state.write_domain(str(tmp_path), said_)
    host = Host("/nonexistent")
    return status.sample(FakeDomain(xml, xml), "running", xml, host, False, str(tmp_path), Rules())


def test_figures_of_idletimeds_last_look(tmp_path):
    found = sampled(tmp_path, marked(), said())
    assert (found.in_force, found.figures_at, found.class_) == (True, 1000.0, "background")
    assert (found.devices[0].class_now, found.devices[0].held, found.resources[0].trail) == ("background", 0, ("/a", "sda"))
    later = sampled(tmp_path, marked(), said(problems=["QEMU refused it"]))
    assert (later.in_force, later.problems) == (False, ("QEMU refused it",))


@pytest.mark.parametrize("other", [None, said(run=2), said(edit.plain("background")), said(class_="guest")])
def test_what_was_said_of_something_else_is_not_shown(tmp_path, other):
    """Of an earlier run, an earlier policy, or by rules that have changed."""
    found = sampled(tmp_path, marked(), other)
    assert (found.in_force, found.figures_at, found.devices[0].held) == (None, None, None)
    assert found.class_ == "background"

# SPDX-License-Identifier: GPL-2.0-or-later
"""The model of status, explain and resources, and its two prints."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace

import pytest
from lxml import etree

from fakes import FakeQemu, device, resource, stock
from idletime import arena, explain, hostview, state, status
from idletime.cli import show
from idletime.conf.resources import Resource, Resources
from idletime.conf.rules import Decision, Rules
from idletime.errors import MonitorError
from idletime.hostd.act import STOCK, STOCK_SEEN
from idletime.observed import ObserverState
from idletime.policy import Class, Policy
from idletime.resolve import Host
from nodes import POLICY
from test_arena import lives, write_arena

XML = f"""<domain type='kvm'><name>a</name><metadata>{POLICY.format(class_="background")}</metadata>
  <devices><disk type='file' device='disk'><source file='/a'/><target dev='vda' bus='virtio'/>
  <alias name='ua-idletime-vda'/></disk></devices></domain>"""


BARE = XML.replace(POLICY.format(class_="background"), "")


class Locked:
    """libvirt refuses."""

    def execute(self, name, arguments=None):
        raise MonitorError("libvirt refused a monitor command: operation forbidden for read only access")


def build(monitor, xml=XML, state="running", run_dir="/run/idletime", known=Rules()):
    return status.build("vm", "0-0", state, True, status.facts_of(xml, Host(), monitor, run_dir, known))


def running(**settings):
    return FakeQemu(
        [
            resource(
                "sda",
                [device("ua-idletime-vda", settings.pop("class_", "background"), held=settings.pop("held", 2))],
                settings.pop("state", "preemption"),
                **settings,
            )
        ]
    )


def test_in_force():
    found = build(running())
    assert found.in_force is True
    (one,) = found.devices
    assert (one.class_wanted, one.class_now, one.held, one.promotions) == ("background", "background", 2, 3)
    assert (found.resources[0].state, found.resources[0].collisions) == ("preemption", 3)


@pytest.mark.parametrize("settings", [{"interval_us": 1}, {"class_": "guest"}])
def test_not_in_force(settings):
    assert build(running(**settings)).in_force is False


@pytest.mark.parametrize("monitor, in_force, words", [(stock(), False, "its QEMU is stock"), (Locked(), None, "read only")])
def test_unknown_is_none_and_never_zero(monitor, in_force, words):
    found = build(monitor)
    assert found.in_force is in_force
    assert found.devices[0].held is None and found.resources[0].collisions is None
    assert words in found.problems[0]


def test_what_a_rule_says():
    known = Rules((), Policy(Class.FOREGROUND), "a.toml")
    found = build(running(class_="foreground"), BARE.replace("/a'", "/tmp'"), known=known)
    assert (found.class_, found.by) == ("foreground", "default")
    assert build(None, BARE).class_ is None


def test_a_nic_that_passes_qemu_by_is_not_seen():
    monitor = running()
    monitor.resources["idletime-sda"]["devices"][0]["seen"] = False
    assert build(monitor).devices[0].seen is False and build(running()).devices[0].seen is True


def test_another_generation_on_the_resource_is_a_problem():
    """Of it nothing is seen. What idletimed carries out is in force nevertheless."""
    found = build(running(generation=4, other_generations=[3]))
    assert found.in_force is True and (found.resources[0].generation, found.resources[0].other_generations) == (4, (3,))
    assert "uses generation 4 of the arena, others use 3: they do not see each other; remedy" in found.problems[0]


def test_a_wrong_policy_is_a_problem_and_no_failure():
    found = build(None, XML.replace("class='background'", "class='idle'"))
    assert found.class_ is None
    assert "class='idle' is not known" in found.problems[0]


def test_what_is_not_resolved_is_a_problem():
    """The rest of the domain is in force, and this is not."""
    second = """<disk type='file'><source file='/dev/nosuch'/><target dev='vdb' bus='virtio'/></disk></devices>"""
    xml = XML.replace("disk resource='sda'", "disk target='vda' resource='sda'").replace("</devices>", second)
    found = build(running(), xml)
    assert [one.target for one in found.devices] == ["vda"] and found.in_force is False
    assert found.problems == (
        "warning: disk target='vdb': not resolved, so left out: there is no block device /dev/nosuch; remedy: correct the "
        "path, or bring the device up, or name one: in /etc/idletime/resources.d, or <disk target='vdb' resource='NAME'/> "
        "('none' leaves it out)",
    )


def test_table_and_json_are_one_model(capsys, golden):
    found = [build(running()), build(None, state="shut off"), build(None, BARE)]
    show.result(Namespace(json=False), None, lambda: show.status(found))
    table = capsys.readouterr().out
    golden(show_data("status.txt"), table)
    show.result(Namespace(json=True), [one.as_dict() for one in found], [])
    golden(show_data("status.json"), capsys.readouterr().out)
    assert "\x1b" not in table  # no colours where there is no terminal


def show_data(name):
    from conftest import DATA

    return DATA / "show" / name


def test_colours_on_a_terminal_only(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NO_COLOR", raising=False)
    show.status([build(running())])
    assert "\x1b[" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    show.status([build(running())])
    assert "\x1b[3" not in capsys.readouterr().out


def look(monkeypatch, *foreground, background=()):
    monkeypatch.setattr(arena, "read", lambda path: arena.Arena(tuple(foreground), tuple(background)))


@pytest.mark.parametrize(
    "monitor, foreground, verdict",
    [
        (running(), [arena.Foreground("web/vda", 7, 1, None, 5)], "foreground"),
        (running(), [arena.Foreground("web/vda", 7, 0, 4000, 5)], "interval"),
        (running(state="idle"), [arena.Foreground("web/vda", 7, 0, 90000, 5)], "background"),
        (running(state="idle", auto=True), [], "learned"),
        (running(state="lost"), [], "lost"),
        (running(held=0), [], "nothing-held"),
        (running(held=0, shadow=True), [], "shadow"),
        (running(held=0, class_="foreground"), [], "foreground-class"),
        (FakeQemu([]), [], "stock"),
        (None, [], "unknown"),
    ],
)
def test_verdicts(monkeypatch, monitor, foreground, verdict):
    look(monkeypatch, *foreground)
    assert [one.verdict for one in explain.explain(build(monitor))] == [verdict]


def test_explain_in_words(monkeypatch):
    look(monkeypatch, arena.Foreground("web/vda", 7, 0, 4000, 5), arena.Foreground("old/vda", 8, 0, 50000, 5))
    found = build(running())
    own = Decision(Policy(Class.BACKGROUND), "domain", "its metadata has one")
    assert explain.lines(found, own, explain.explain(found)) == [
        "vm: background, by its own policy: its metadata has one",
        "vm is held by the interval (enforce='interval')",
        "vm vda on sda (2 requests): is held: the preemption interval runs",
        "  interval left: 16.0 ms",
        "  foreground: web/vda (pid 7): last event 4.0 ms ago",
    ]
    json.dumps(explain.as_dict(found, own, explain.explain(found)))
    bare = build(None, BARE)
    by_rule = Decision(Policy(Class.FOREGROUND), "rule", "name 'vm' fits 'v*'", "a.toml line 3")
    assert explain.lines(bare, by_rule, explain.explain(bare)) == [
        "vm: foreground, by the rule in a.toml line 3: name 'vm' fits 'v*'",
        "vm: no policy, so nothing of it is ever held",
    ]
    assert explain.as_dict(bare, by_rule, [])["policy"] == {
        "class": "foreground",
        "by": "rule",
        "why": "name 'vm' fits 'v*'",
        "place": "a.toml line 3",
    }


def test_a_vm_that_is_stopped_as_a_whole(capsys):
    """What QEMU has of ours it shall not have; a stock one is no problem then."""
    whole = XML.replace("class='background'", "class='background' enforce='suspend'")
    found = build(running(), whole)
    assert (found.suspends, found.devices, found.in_force) == (True, (), False)
    text = "is stopped as a whole while the foreground needs what it uses (enforce='suspend')"
    assert explain.lines(found, None, []) == [
        f"vm {text}", "  remedy: write enforce='auto': an interval wastes less where it can hold"]
    show.status([found])
    assert f"vm {text}\n" in capsys.readouterr().err
    auto = build(stock(), whole.replace("suspend", "auto"))
    assert (auto.suspends, auto.problems) == (True, ())
    assert auto.enforced.endswith("its QEMU is stock (enforce='auto')")
    assert explain.as_dict(auto, None, [])["held"]["remedy"] == "start it with Idletime's QEMU"


def test_block_jobs_are_explained():
    """Also of a VM that is stopped as a whole: its jobs go on meanwhile, so they keep their resource."""
    own = XML.replace("</idletime:policy>", "<idletime:job class='background'/></idletime:policy>")
    assert "<idletime:job" in own
    text = "vm: block jobs of disk vda are background on"
    found = build(running(), own)
    assert [one.target for one in found.jobs] == ["vda"] and any(line.startswith(text) for line in explain.lines(
        found, None, explain.explain(found)))
    whole = build(running(), own.replace("class='background'", "class='background' enforce='suspend'", 1))
    assert (whole.devices, len(whole.resources), len(whole.jobs)) == ((), 2, 1)
    lines = explain.lines(whole, None, [])
    assert any(line.startswith(text) for line in lines) and not any("no policy" in line for line in lines)
    assert explain.as_dict(found, None, [])["jobs"] == [{"target": "vda", "resource": found.jobs[0].resource,
                                                             "alias": "ua-idletime-vda", "by": "", "also": ()}]
    assert found.migration is not None and any(line.startswith("vm: migration is background on ") for line in lines)


def test_a_vm_that_gives_memory_and_one_that_was_saved(capsys):
    found = replace(build(running()), memory_given=3 << 20, memory_low=1 << 20)
    text = "vm gives memory back while the foreground is short of it, down to 1 MiB, 3 MiB now"
    assert text in explain.lines(found, None, explain.explain(found))
    assert explain.as_dict(found, None, [])["held"]["memory_given"] == 3 << 20
    show.status([found])
    assert "vm: the foreground has 3 MiB of its memory\n" in capsys.readouterr().err
    root = etree.fromstring("<domain><metadata><m:memory xmlns:m='urn:idletime:memory:1' bytes='1' run='1' why='short'/>"
                            "</metadata></domain>")
    assert status._stopped("shut off", root) == "saved to disk until memory is free again: short"
    assert status._stopped("running", root) == ""


def test_a_vm_that_gets_too_little_of_the_processors(tmp_path):
    """What idletimed says of it, as long as it runs; and nothing of what is no such file."""
    state.write_daemon(str(tmp_path), (), "qemu:///system", "1")
    state.write_linger(str(tmp_path), {"u": "stays: it does 50%"})
    assert (state.linger(str(tmp_path), "u"), state.linger(str(tmp_path), "v")) == ("stays: it does 50%", "")
    found = replace(build(running()), linger=state.linger(str(tmp_path), "u"))
    assert "vm stays: it does 50%" in explain.lines(found, None, explain.explain(found))
    assert explain.as_dict(found, None, [])["linger"] == "stays: it does 50%"
    for text in ("", "[]", '{"state-version": 1, "domains": []}', '{"state-version": 2, "domains": {"u": "x"}}'):
        (tmp_path / state.FOLDER / "linger.json").write_text(text)
        assert state.linger(str(tmp_path), "u") == ""
    state.write_linger(str(tmp_path), {"u": "stays"})
    state.remove_daemon(str(tmp_path))
    assert state.linger(str(tmp_path), "u") == ""


def test_a_scratch_disk_that_may_be_dropped_and_one_that_was():
    found = replace(build(running()), scratch=("vda",))
    text = "vm: its scratch disk vda is trimmed, then dropped with the VM stopped, while its file system is short of space"
    assert text in explain.lines(found, None, explain.explain(found))
    record = "<s:space xmlns:s='urn:idletime:space:1' run='1' why='short' done='{}'><s:disk target='vda'/></s:space>"
    for done, words in (("yes", "was"), ("no", "is being")):
        root = etree.fromstring(f"<domain><metadata>{record.format(done)}</metadata></domain>")
        assert status._stopped("shut off", root) == f"scratch disk vda {words} dropped: short"
        assert status._stopped("running", root) == ""


def test_resources_of_domains_and_of_arenas(tmp_path):
    write_arena(tmp_path / "sdb")
    (tmp_path / "stray").mkdir()
    found = hostview.resources([build(None, run_dir=str(tmp_path))], str(tmp_path))
    assert [(one.name, one.arena, one.foreground, one.domains) for one in found] == [
        ("sda", False, None, ("vm",)),
        ("sdb", True, 0, ()),
    ]
    assert "cannot open" in found[0].problem


def test_resources_that_two_generations_share(tmp_path, capsys):
    """What is counted is one generation's; that there is another is said with what it means, also where ours is not there."""
    write_arena(tmp_path / "sda")
    write_arena(tmp_path / "sda/abi-4", abi=4)
    (tmp_path / "sdb").mkdir()
    write_arena(tmp_path / "sdb/abi-4", abi=4)
    with lives(tmp_path / "sda"), lives(tmp_path / "sda/abi-4"), lives(tmp_path / "sdb/abi-4"):
        found = hostview.resources([], str(tmp_path))
    assert [(one.name, one.arena, one.generations) for one in found] == [("sda", True, (3, 4)), ("sdb", False, (4,))]
    show.resources(found)
    said = capsys.readouterr().err.splitlines()
    assert "sda: QEMUs of generation 4 use it too, and are not counted: background of one generation does not wait" in said[0]
    assert "sdb: its arena is of generation 4, this program reads 3; remedy: install" in said[1]


def test_resources_that_only_the_operator_knows(tmp_path):
    """One whose name was mistyped is there, with the place, and nobody on it."""
    right = Resource("sda", {"interval-us": 5}, {}, True, "a.toml line 1")
    said = Resources((right, Resource("sdaa", {}, {}, None, "a.toml line 4")))
    found = hostview.resources([build(None, run_dir=str(tmp_path))], str(tmp_path), said)
    assert [(one.name, one.said, one.settings, one.observe, one.domains) for one in found] == [
        ("sda", "a.toml line 1", {"interval-us": 5}, True, ("vm",)),
        ("sdaa", "a.toml line 4", {}, None, ()),
    ]


def observed_by(alive, monitor, class_="foreground", declared=True):
    """The status of a domain whose resource has, or should have, an observer."""
    facts = status.facts_of(XML.replace("background", class_), Host(), monitor)
    (one,) = facts.plan.resources
    facts.observers = {one.name: ObserverState(one.name, "disk", "/dev/sda", alive, declared, (), "no right", "get it")}
    return status.build("vm", "0-0", "running", True, facts)


def test_seen_by_the_kernel():
    """A foreground that passes QEMU by: stock, or with vhost. One with a slot is seen by QEMU."""
    found = observed_by(True, stock())
    assert [(one.seen, one.seen_by) for one in found.devices] == [(True, "the kernel")]
    assert found.problems == (STOCK_SEEN,)
    assert observed_by(False, stock()).devices[0].seen is None and STOCK in observed_by(False, stock()).problems
    vhost = FakeQemu([resource("sda", [{**device("ua-idletime-vda", "foreground"), "seen": False}])])
    assert observed_by(True, vhost).devices[0].seen_by == "the kernel"
    assert (observed_by(False, vhost).devices[0].seen, observed_by(False, vhost).devices[0].seen_by) == (False, None)
    assert observed_by(True, running()).devices[0].seen_by == "QEMU"
    assert "  seen by the kernel: background waits for it" in explain.lines(found, None, explain.explain(found))


@pytest.mark.parametrize("alive, declared, said", [(True, True, False), (False, False, False), (False, True, True)])
def test_an_observer_that_is_declared_and_missing(alive, declared, said):
    found = observed_by(alive, running(), "background", declared)
    assert any("no right; remedy: get it" in problem for problem in found.problems) is said


@pytest.mark.parametrize("alive, said", [(True, True), (False, False)])
def test_a_disk_that_is_hidden(alive, said):
    """Named in the VM's own status, and not said to be seen."""
    facts = status.facts_of(XML.replace("background", "foreground"), Host(), stock())
    (one,) = facts.plan.resources
    facts.observers = {one.name: ObserverState(one.name, "disk", "/dev/sda", alive, hidden_disks=("vm: disk target='vda'",))}
    found = status.build("vm", "0-0", "running", True, facts)
    assert [device.seen_by for device in found.devices] == [None]
    assert any(problem.startswith("disk target='vda' has no place on resource") for problem in found.problems) is said
    assert not any("has no place" in problem for problem in status.build("other", "0-0", "running", True, facts).problems)


def test_resources_observed(tmp_path, capsys):
    one = ObserverState("sda", "disk", "/dev/sda", False, True, (), "no right", "get it")
    said = Resources((Resource("sda", {}, {}, True, "a.toml line 1"),))
    show.resources(hostview.resources([], str(tmp_path), said, {"sda": one}))
    out = capsys.readouterr()
    assert out.out.splitlines()[1].split()[:5] == ["sda", "no", "-", "-", "no"] and "no right; remedy: get it" in out.err

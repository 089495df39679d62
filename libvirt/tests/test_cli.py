# SPDX-License-Identifier: GPL-2.0-or-later
"""virt-idletime as a program: exit codes, JSON, pipes, completion; on libvirt's test driver."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import libvirt
import pytest

import nodes
from conftest import DATA
from idletime.cli import changes

ROOM = Path(__file__).parents[1]
PLAN, HOSTS = DATA / "plan", DATA / "hosts"
NO_POLICY = ROOM / "idletime/schema/idletime-policy-1.rng"


def run(*arguments, stdin=None, env=None):
    return finished([sys.executable, "-m", "idletime", *map(str, arguments)], input=stdin, env=env)


def finished(command, env=None, **more):
    return subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOM), "LC_ALL": "C.UTF-8", **(env or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **more,
    )


@pytest.fixture
def uri(tmp_path):
    return nodes.write(tmp_path / "node.xml", 3, 2)


def test_check(host):
    done = run("check", "--root", host("rack"), PLAN / "virt-install.xml")
    assert done.returncode == 4  # its network is known to libvirt only
    assert "not resolved, so left out: network 'default' is not known" in done.stdout
    done = run("check", "--root", host("rack"), PLAN / "proxmox-like.xml")
    assert done.returncode == 0
    assert "disk vda: background on group-sdd" in done.stdout
    as_json = json.loads(run("check", "--json", "--root", host("rack"), PLAN / "proxmox-like.xml").stdout)
    assert (as_json["class"], as_json["by"]) == ("background", "domain")
    assert as_json["plan"]["devices"][0]["class"] == "background"


def test_check_of_a_policy_alone(tmp_path):
    (tmp_path / "p.xml").write_text("<policy xmlns='urn:idletime:policy:1' class='guest'/>")
    done = run("check", tmp_path / "p.xml")
    assert (done.returncode, done.stdout) == (0, "the policy is valid\n")


def test_check_with_another_policy(host, tmp_path):
    (tmp_path / "p.xml").write_text("<policy xmlns='urn:idletime:policy:1' class='guest'/>")
    for given, class_ in ((tmp_path / "p.xml", "guest"), ("foreground", "foreground")):
        done = run("check", "--root", host("rack"), "--policy", given, "-", stdin=(PLAN / "crypt.xml").read_text())
        assert done.returncode == 0 and f"disk vda: {class_} on sde" in done.stdout


def test_check_says_what_rules_make_of_a_domain(tmp_path):
    """Without a policy of its own; and which file was left out."""
    folder = tmp_path / "etc/idletime/rules.d"
    folder.mkdir(parents=True)
    (folder / "10.toml").write_text('[[rule]]\nclass = "background"\nname = "vm*"')
    xml = "<domain type='kvm'><name>vm1</name><devices/></domain>"
    done = run("check", "--root", tmp_path, "-", stdin=xml)
    assert done.returncode == 0
    assert done.stdout == "background, by the rule in /etc/idletime/rules.d/10.toml line 1: name 'vm1' fits 'vm*'\n"
    (folder / "20.toml").write_text("default = 3")
    done = run("check", "--root", tmp_path, "-", stdin=xml)
    assert done.returncode == 7 and "20.toml line 1" in done.stderr


def test_check_runs_no_program_that_the_file_names(tmp_path):
    """A file may come from anybody."""
    program = tmp_path / "qemu"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    xml = (PLAN / "crypt.xml").read_text().replace("<devices>", f"<devices><emulator>{program}</emulator>", 1)
    done = run("check", "-", stdin=xml)
    assert done.returncode in (0, 4), done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (["check", DATA / "policy/invalid/hold-empty.xml"], 3, "hold: needs the attribute 'max'"),
        (["check", "/no/such/file.xml"], 2, "there is no file"),
        (["check", "--policy", "backgruond", PLAN / "crypt.xml"], 2, "use foreground, background, guest, or"),
        (["check", "--policy", HOSTS / "bare.tree", PLAN / "crypt.xml"], 3, "not well-formed XML"),
        (["status", "--nosuch"], 2, "usage"),
        ([], 2, "usage"),
        (["compile"], 2, "invalid choice"),
        (["-c", "test:///no/such/file", "list"], 1, "remedy"),
        (["-c", "test:///default", "status", "tset"], 6, "there is no domain 'tset'; remedy: use one of test"),
        (["-c", "test:///default", "mark"], 2, "no domain is named; remedy: name some"),
        (["-c", "test:///default", "mark", "vm*", "web"], 6, "no domain fits 'vm*'; remedy: use one of test"),
        (["-c", "test:///default", "mark", "--all", "test"], 2, "--all and 'test' together; remedy"),
        (["-c", "test:///default", "mark", "test"], 4, "'test' domain: type='test' is not QEMU; remedy"),
        (["-c", "test:///default", "mark", "test", "--set", "interval"], 2, "is not NAME=VALUE"),
        (["-c", "test:///default", "mark", "test", "--set", "interval=5"], 3, "'interval' cannot be set; remedy: use one of"),
        (["-c", "test:///default", "mark", "test", "--set", "interval-us=x"], 3, "us='x'"),
        (["-c", "test:///default", "mark", "test", "--disk", "vda"], 2, "is not TARGET=RESOURCE"),
        (["-c", "test:///default", "enable", "--all", "--disk", "all=none"], 2, "--all is this host's default"),
        (["-c", "test:///default", "mark", "test", "--disk", "vdz=sda"], 4, "'test' has no disk 'vdz'; remedy: use one of"),
        (["-c", "test:///default", "mark", "test", "--disk", "all=a/b"], 3, "cannot be the name of a resource"),
        (["-c", "test:///default", "mark", "test", "--class", "foreground"], 2, "invalid choice"),
        (["-c", "test:///default", "mark", "test", "--policy", "/nosuch"], 2, "cannot read '/nosuch'"),
        (["-c", "test:///default", "mark", "test", "--policy", NO_POLICY], 3, "there is no policy in"),
        (["-c", "test:///default", "enable", "--all", "test"], 2, "--all is this host's default"),
        (["-c", "test:///default", "status"], 0, "no domain is foreground or background"),
        (["-c", "test:///default", "list"], 0, "no domain is foreground or background"),
    ],
)
def test_exit_codes(arguments, code, words):
    done = run(*arguments)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments, before, after, names",
    [
        (["unmark", "vm0[024]"], "background", None, ["vm00", "vm02", "vm04"]),
        (["unmark", "--all", "--except", "vm0[2-4]"], "background", None, ["vm00"]),
        (["disable", "vm01"], "foreground", None, ["vm01"]),
    ],
)
def test_a_dry_run_says_it_and_changes_nothing(uri, arguments, before, after, names):
    """Also with a connection that may not change anything."""
    done = run("-c", uri, *arguments, "--dry-run")
    assert done.returncode == 0, done.stderr
    rows = [line.split(": ", 1) for line in done.stdout.splitlines()]
    assert [name for name, _ in rows] == names
    assert rows[0][1] == f"would change {before} to no policy of its own, now and at each start; so it is not attached"
    rows = json.loads(run("-c", uri, *arguments, "--dry-run", "--json").stdout)
    assert (rows[0]["before"], rows[0]["after"], rows[0]["changed"]) == (before, after, True)


def test_unmark(uri):
    """Of the other class it says which command is meant; without idletimed what is missing."""
    done = run("-c", uri, "--run-dir", "/nonexistent", "unmark", "vm00", "vm01", "vm03")
    assert done.returncode == 5
    assert done.stdout.splitlines() == [
        "vm00: no policy of its own, now and at each start; so it is not attached",
        "vm03: nothing to change: no policy of its own; so it is not attached",
    ]
    assert "'vm01' is foreground by its own policy, not changed; remedy: virt-idletime disable vm01" in done.stderr
    assert "vm00: written, not in force: idletimed does not run; remedy: systemctl start idletimed" in done.stderr
    assert run("-c", uri, "--run-dir", "/nonexistent", "unmark", "--no-wait", "vm00").returncode == 0


def test_a_policy_that_cannot_be_read_can_be_taken_away(tmp_path):
    uri = nodes.write(tmp_path / "node.xml", 1, 0)
    text = (tmp_path / "node.xml").read_text()
    (tmp_path / "node.xml").write_text(text.replace("class='background'", "class='backgruond'"))
    done = run("-c", uri, "unmark", "vm00", "-n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("vm00: would change wrong to no policy of its own")


def test_a_domain_that_went_away_stops_no_other(monkeypatch, capsys):
    """Between the list and the look at it."""

    def look(domain):
        if domain == "gone":
            raise libvirt.libvirtError("Domain not found")
        return domain

    assert changes._each(look, ["a", "gone", "b"]) == (["a", "b"], 1)
    assert capsys.readouterr().err.startswith("error: cannot look at a domain: ")


def test_list(uri):
    assert len(json.loads(run("-c", uri, "list", "--all", "--json").stdout)) == 5


def test_doctor(uri):
    """On a host without anything: it says so, and its exit status is that of the worst."""
    done = run("-c", uri, "--run-dir", "/nonexistent", "doctor", "-r")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "error: vm00: line " in done.stdout and "well: " in done.stdout
    found = json.loads(run("-c", uri, "--run-dir", "/nonexistent", "doctor", "-r", "--json").stdout)
    assert {"check", "severity", "subject", "message", "remedy", "minutes"} == found["found"][0].keys()


def test_the_run_directory_is_that_of_the_settings(uri, tmp_path):
    """The command looks where the daemon makes arenas; what is on the command line wins."""
    settings = tmp_path / "idletimed.toml"
    for name in ("settings", "option"):
        (tmp_path / name / "sda").mkdir(parents=True)
        (tmp_path / name / "sda/foreground").touch()

    def paths(*options):
        done = run("-c", uri, *options, "resources", "--json")
        assert done.returncode == 0
        return [one["path"] for one in json.loads(done.stdout)], done.stderr

    settings.write_text(f'run-dir = "{tmp_path}/settings"')
    assert paths("--settings", settings)[0] == [f"{tmp_path}/settings/sda"]
    assert paths("--settings", settings, "--run-dir", tmp_path / "option")[0] == [f"{tmp_path}/option/sda"]
    settings.write_text("run-dir = 3")
    assert "run-dir is 3: it must be of type str; going on with the defaults" in paths("--settings", settings)[1]


def test_a_closed_pipe_is_no_traceback(uri):
    done = finished(f"{sys.executable} -m idletime -c {uri} status --json | true", shell=True)
    assert "Traceback" not in done.stderr


def test_completion(uri, tmp_path):
    """What bash asks by argcomplete: commands, options, names of domains."""

    def complete(line):
        out = tmp_path / "out"
        run(
            env={
                "_ARGCOMPLETE": "1",
                "COMP_LINE": line,
                "COMP_POINT": str(len(line)),
                "_ARGCOMPLETE_IFS": "\n",
                "_ARGCOMPLETE_STDOUT_FILENAME": str(out),
                "_ARGCOMPLETE_COMP_WORDBREAKS": "",
                "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
                "_ARC_DEBUG": "",
            }
        )
        return {word.strip() for word in out.read_text().split("\n")} if out.exists() else set()

    assert {"status", "doctor", "mark"} <= complete("virt-idletime ")
    assert "--class" in complete("virt-idletime mark x --c")
    assert complete(f"virt-idletime -c {uri} status vm0") >= {"vm00", "vm04"}
    assert complete(f"virt-idletime -c {uri} mark --all --except vm0") >= {"vm00", "vm04"}
    assert complete("virt-idletime mark x --set max-h") == {"max-hold-ms="}


def test_the_folder_libvirt_hides_no_binding():
    """From the root of the repository, "import libvirt" is still libvirt's binding."""
    done = subprocess.run(
        [sys.executable, "-c", "import libvirt; libvirt.open('test:///default')"],
        cwd=ROOM.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not (ROOM / "__init__.py").exists()


def test_entry_points():
    """What pip and the distributions' tools make programs of: each is there, and is called without arguments."""
    scripts = tomllib.loads((ROOM / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(scripts) == {"virt-idletime", "idletimed", "idletime-hook"}
    for target in scripts.values():
        module, _, name = target.partition(":")
        inspect.signature(getattr(importlib.import_module(module), name)).bind()


def test_installed(tmp_path):
    """make install-libvirt: runs from where it was installed, with all that belongs to it."""
    subprocess.run(
        ["make", "-C", ROOM, "install", f"DESTDIR={tmp_path}", "PREFIX=/usr"],
        check=True,
        capture_output=True,
        timeout=60,
    )
    done = subprocess.run(
        [tmp_path / "usr/bin/virt-idletime", "--version"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith("virt-idletime ")
    for name in (
        "man/man1/virt-idletime.1",
        "man/man5/idletime-policy.5",
        "man/man5/idletimed-rules.5",
        "idletime/schema/idletime-policy-1.rng",
        "bash-completion/completions/virt-idletime",
    ):
        assert (tmp_path / "usr/share" / name).is_file()
    assert not list((tmp_path / "usr/lib/idletime/python").rglob("test_*"))

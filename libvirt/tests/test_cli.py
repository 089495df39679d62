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

import pytest

import nodes
from conftest import DATA

ROOM = Path(__file__).parents[1]
RACK = DATA / "compile" / "rack"


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
    done = run("check", "--root", host("rack"), RACK / "virt-install.xml")
    assert done.returncode == 4  # its network is known to libvirt only
    assert "not resolved, so left out: network 'default' is not known" in done.stdout
    done = run("check", "--root", host("rack"), RACK / "proxmox-like.xml")
    assert done.returncode == 0
    assert "disk vda: background on group-sdd" in done.stdout
    as_json = json.loads(run("check", "--json", "--root", host("rack"), RACK / "proxmox-like.xml").stdout)
    assert as_json["plan"]["devices"][0]["class"] == "background"


def test_compile_and_back(host):
    source = (RACK / "crypt.xml").read_text()
    done = run("compile", "--root", host("rack"), "-", stdin=source)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (RACK / "crypt.out.xml").read_text()
    assert run("compile", "--undo", "-", stdin=done.stdout).stdout == source


def test_compile_a_device(host, tmp_path):
    done = run("compile", "--root", host("rack"), "--device", DATA / "device/disk.xml", DATA / "device/domain.xml")
    assert done.returncode == 0
    assert "<alias name='ua-idletime-vdb'/>" in done.stdout


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (["check", DATA / "policy/invalid/hold-empty.xml"], 3, "hold: needs the attribute 'max'"),
        (["check", "/no/such/file.xml"], 2, "there is no file"),
        (["compile", "--root", "/nonexistent", RACK / "crypt.xml"], 0, "remedy"),
        (["compile", DATA / "compile-errors/not-a-domain.xml"], 3, "not a domain"),
        (["status", "--nosuch"], 2, "usage"),
        ([], 2, "usage"),
        (["nosuch"], 2, "invalid choice"),
        (["-c", "test:///no/such/file", "list"], 1, "remedy"),
        (["-c", "test:///default", "status", "nosuch"], 6, "there is no domain 'nosuch'"),
        (["-c", "test:///default", "set", "test", "interval"], 2, "is not NAME=VALUE"),
        (["-c", "test:///default", "set", "test", "interval-us=5"], 3, "has no policy"),
        (["-c", "test:///default", "mark", "test"], 4, "type='test' is not QEMU"),
        (["-c", "test:///default", "mark", "test", "--disk", "vda"], 2, "is not TARGET=RESOURCE"),
        (["-c", "test:///default", "mark", "test", "--disk", "vda=a/b"], 3, "cannot be the name of a resource"),
        (["-c", "test:///default", "apply", "test", "--policy", "backgruond"], 2, "use foreground, background, guest, or"),
        (["-c", "test:///default", "status"], 0, "no domain has a policy"),
        (["-c", "test:///default", "list"], 0, "no domain has a policy"),
        (
            ["-c", "test:///default", "apply", "test", "--policy", DATA / "device" / "disk.xml"],
            3,
            "there is no policy in",
        ),
    ],
)
def test_exit_codes(arguments, code, words):
    done = run(*arguments)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_list(uri):
    done = run("-c", uri, "list", "-r")
    assert done.stdout.splitlines() == [
        "domain  state    class       guest may",
        "vm00    running  background  demote",
        "vm01    running  foreground  demote",
        "vm02    running  background  demote",
    ]
    assert len(json.loads(run("-c", uri, "list", "--all", "--json").stdout)) == 5


def test_status_and_resources(uri):
    rows = json.loads(run("-c", uri, "status", "--json").stdout)
    assert [row["class"] for row in rows] == ["background", "foreground", "background"]
    assert rows[0]["in_force"] is None and rows[0]["devices"][0]["held"] is None
    assert run("-c", uri, "status", "vm04").stdout.splitlines()[1].split() == ["vm04", "running", *["-"] * 10]
    found = json.loads(run("-c", uri, "--run-dir", "/nonexistent", "resources", "--json").stdout)
    assert [(one["name"], one["domains"]) for one in found] == [
        ("eth0", ["vm00", "vm01", "vm02"]),
        ("sda", ["vm00", "vm01", "vm02"]),
    ]
    assert "its state is not known" in run("-c", uri, "explain", "vm00").stdout


def test_the_run_directory_is_that_of_the_settings(uri, tmp_path):
    """The command looks where the daemon and the hook make arenas; what is on the command line wins."""
    settings = tmp_path / "idletimed.toml"
    settings.write_text('run-dir = "/from/settings"')

    def paths(*options):
        done = run("-c", uri, *options, "resources", "--json")
        assert done.returncode == 0
        return {one["path"].rsplit("/", 1)[0] for one in json.loads(done.stdout)}, done.stderr

    assert paths("--settings", settings)[0] == {"/from/settings"}
    assert paths("--settings", settings, "--run-dir", "/from/option")[0] == {"/from/option"}
    settings.write_text("run-dir = 3")
    found, said = paths("--settings", settings)
    assert found == {"/run/idletime"} and "run-dir is 3: it must be of type str; going on with the defaults" in said


def test_transient_and_stopped_are_said():
    done = run("-c", "test:///default", "mark", "test", "--live")
    assert done.returncode != 0 and "remedy" in done.stderr


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

    assert {"status", "apply", "mark"} <= complete("virt-idletime ")
    assert "--config" in complete("virt-idletime apply x --c")
    assert complete(f"virt-idletime -c {uri} status vm0") >= {"vm00", "vm04"}
    assert complete("virt-idletime set x max-h") == {"max-hold-ms="}
    assert complete("virt-idletime set x --disk vda ") >= {"queues=", "class="}


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


def test_policy_from_the_command_line(host, tmp_path):
    """The way for tools that write domain XML and know nothing of us: virt-install --print-xml | compile --policy."""
    bare = (RACK / "crypt.xml").read_text().replace("class='background'/>", "class='background'/>")
    bare = bare[: bare.index("  <metadata>")] + bare[bare.index("</metadata>\n") + 12 :]
    done = run("compile", "--root", host("rack"), "--policy", "background", "-", stdin=bare)
    assert done.returncode == 0
    assert done.stdout == (RACK / "crypt.out.xml").read_text()
    (tmp_path / "p.xml").write_text("<policy xmlns='urn:idletime:policy:1' class='guest'/>")
    done = run("check", "--root", host("rack"), "--policy", tmp_path / "p.xml", "-", stdin=bare)
    assert "disk vda: guest on sde" in done.stdout


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

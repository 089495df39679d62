# SPDX-License-Identifier: GPL-2.0-or-later
"""VMs without libvirt in the command: status, list, explain, resources, doctor, and what mark says of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from idletime import sockets, state
from idletime.conf.rules import Rules
from idletime.doctor import examine, gather
from idletime.hostd import vms
from idletime.hostd.act import STOCK
from idletime.hostd.settings import Settings
from idletime.patience import Patience
from idletime.policy import Class
from test_cli import run
from test_hostd_vms import ANON, Qemu, Serve, hangs, rules, serve, settings, speaking  # noqa: F401  (fixture)

DISK = ANON + "device[1]"


class OneDisk(Qemu):
    """Its disk is an NBD export, which resolves on each machine. Paused; its arena has neighbours of another generation."""

    def do_qom_list(self, arguments):
        return [one for one in super().do_qom_list(arguments) if one["name"] == "device[1]"]

    def do_query_status(self, _arguments):
        return {"status": "paused"}

    def do_query_version(self, _arguments):
        return {"qemu": {"major": 10, "minor": 0, "micro": 13}, "package": ""}

    def do_query_commands(self, _arguments):
        return [{"name": "query-idletime"}, {"name": "idletime-attach"}]

    def do_query_idletime(self, _arguments):
        return [{**one, "generation": 3, "other-generations": [4]} for one in super().do_query_idletime(_arguments)]


def qemu(**more) -> OneDisk:
    return OneDisk(there=[DISK], **more)


def looked(path: str, tmp_path: Path, class_: Class = Class.BACKGROUND) -> Settings:
    """After a look of idletimed's."""
    its = settings(tmp_path)
    state.write_daemon(its.run_dir, (), "", "0")
    vms.settle(path, its, rules(class_, "web"))
    return its


def known(class_: Class = Class.BACKGROUND) -> Rules:
    return rules(class_, "web")


def test_status(serve: Serve, tmp_path: Path) -> None:  # noqa: F811
    """QEMU's figures of now; a reader gets those of idletimed's look, and says of when they are."""
    its = looked(serve(speaking(qemu())), tmp_path)
    (found,) = sockets.statuses(sockets.there(its.run_dir), known(), True)
    assert (found.name, found.state, found.class_, found.by, found.in_force) == ("web", "paused", "background", "rule", True)
    (device,) = found.devices
    assert (device.target, device.class_now, device.resource) == (DISK, "background", "idletime-nbd-unix-_s")
    assert found.figures_at is None and "others use 4" in found.problems[0]
    (read,) = sockets.statuses(sockets.there(its.run_dir), known(), False)
    assert read.figures_at is not None and read.devices == found.devices and read.in_force is True


def test_a_line_that_is_taken(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """The last look's figures, at once."""
    monkeypatch.setattr(sockets, "SECONDS", 0.1)
    path = serve(speaking(qemu()))
    its = looked(path, tmp_path)
    os.rename(path, path + ".old")
    os.rename(serve(hangs, "other"), path)
    (found,) = sockets.statuses(sockets.there(its.run_dir), known(), True)
    assert found.figures_at is not None and found.in_force is True


def test_what_idletimed_could_not_ask(serve: Serve, tmp_path: Path) -> None:  # noqa: F811
    """Its problem is shown, beside what was known before; of one that was never asked too."""
    path = serve(speaking(qemu()))
    its = looked(path, tmp_path)
    vms.not_asked(path, its, "no answer from the monitor")
    silent = serve(hangs, "silent")
    vms.not_asked(silent, its, "no answer from the monitor")
    found = {one.name: one for one in sockets.statuses(sockets.there(its.run_dir), known(), False)}
    assert found["web"].problems[0] == "no answer from the monitor" and found["web"].in_force is False
    assert len(found["web"].devices) == 1 and found["silent"].problems and found["silent"].class_ is None


def test_only_those_that_are_there(serve: Serve, tmp_path: Path) -> None:  # noqa: F811
    path = serve(speaking(qemu()))
    its = looked(path, tmp_path)
    state.keep_domains(its.run_dir, [])
    assert [one.socket for one in sockets.there(its.run_dir)] == [path]
    state.keep_vms(its.run_dir, [])
    assert sockets.there(its.run_dir) == []
    vms.settle(path, its, known())
    os.unlink(path)
    assert sockets.there(its.run_dir) == []


def test_what_is_being_written_stays(serve: Serve, tmp_path: Path) -> None:  # noqa: F811
    """And one file that cannot be removed keeps no other."""
    its = looked(serve(speaking(qemu())), tmp_path)
    folder = Path(its.run_dir) / state.FOLDER
    (folder / ".now").touch()
    (folder / ".left").touch()
    os.utime(folder / ".left", (0, 0))
    (folder / "0-folder.json").mkdir()
    (folder / "1-old.json").touch()
    state.keep_domains(its.run_dir, [])
    left = {one.name for one in folder.iterdir()}
    assert {".now", "0-folder.json"} <= left and not {".left", "1-old.json"} & left


def test_rules_that_changed_since(serve: Serve, tmp_path: Path) -> None:  # noqa: F811
    its = looked(serve(speaking(qemu())), tmp_path)
    (found,) = sockets.statuses(sockets.there(its.run_dir), known(Class.FOREGROUND), False)
    assert found.in_force is False and "idletimed has not looked since" in found.problems[0]


def test_names(serve: Serve, tmp_path: Path) -> None:  # noqa: F811
    its = looked(serve(speaking(qemu())), tmp_path)
    for word, fits in (("web", 1), ("w*", 1), ("0-0", 1), ("x*", 0)):
        assert len(sockets.named(its.run_dir, word)) == fits, word


def test_doctor(serve: Serve, tmp_path: Path) -> None:  # noqa: F811
    """A host without libvirt: its QEMU, its generations, its problems."""
    its = looked(serve(speaking(qemu())), tmp_path)
    (one,) = gather(None, its, its.run_dir, Patience(lambda: None)).domains
    assert (one.emulator.version, one.emulator.knows) == ("10.0.13", "ours")
    report = examine(gather(None, its, its.run_dir, Patience(lambda: None)))
    assert any(each.check == "generations" and "3: web; 4: others" in each.message for each in report.found)
    quiet = gather(None, its, its.run_dir, None).domains[0]
    assert (quiet.emulator.knows, quiet.emulator.version) == ("ours", None)


def test_doctor_of_a_stock_qemu(serve: Serve, tmp_path: Path) -> None:  # noqa: F811
    names = ("query-idletime", "object-add", "idletime-attach", "idletime-detach", "idletime-set")
    its = looked(serve(speaking(qemu(unknown=names))), tmp_path)
    facts = gather(None, its, its.run_dir, None)
    assert facts.domains[0].emulator.knows == "stock" and facts.domains[0].problems == (STOCK,)


# ---- the program

@pytest.fixture
def host(serve: Serve, tmp_path: Path) -> list[str]:  # noqa: F811
    """Options for a host that has no libvirt, and one VM, which no rule of this machine names."""
    state.write_daemon(str(tmp_path / "run"), (), "", "0")
    path = serve(speaking(qemu()))
    vms.settle(path, settings(tmp_path), Rules())
    (tmp_path / "idletimed.toml").write_text('uri = ""\n')
    return ["--settings", str(tmp_path / "idletimed.toml"), "--run-dir", str(tmp_path / "run")]


def test_the_commands(host: list[str]) -> None:
    done = run(*host, "list", "--all", "--json")
    assert done.returncode == 0 and [one["name"] for one in json.loads(done.stdout)] == ["web"]
    (one,) = json.loads(run(*host, "status", "web", "--json").stdout)
    assert (one["name"], one["state"], one["class"]) == ("web", "paused", None)
    done = run(*host, "explain", "web")
    assert done.returncode == 0 and done.stdout.startswith("web: not attached, by the default"), done.stdout
    done = run(*host, "resources")
    assert done.returncode == 0, done.stderr
    done = run(*host, "doctor")
    assert "well: " in done.stdout and "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments, code, words", [
    (("status", "wbe"), 6, "there is no VM 'wbe'"),
    (("explain", "wbe"), 6, "there is no VM 'wbe'"),
])
def test_there_is_no_such_vm(host: list[str], arguments: tuple[str, ...], code: int, words: str) -> None:
    done = run(*host, *arguments)
    assert done.returncode == code and words in done.stderr and "remedy: " in done.stderr


def test_it_cannot_be_marked(host: list[str]) -> None:
    """Nobody could keep its policy."""
    done = run("-c", "test:///default", *host, "mark", "web")
    assert done.returncode == 4
    assert "no libvirt has started 'web'" in done.stderr and "a rule in /etc/idletime/rules.d" in done.stderr

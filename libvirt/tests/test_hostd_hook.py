# SPDX-License-Identifier: GPL-2.0-or-later
"""The hook as libvirt runs it: a program with arguments, XML on stdin, a status, and XML on stdout."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from idletime import compiler, resolve
from idletime.hostd import hook

LIBVIRT = Path(__file__).parents[1]

DOMAIN = """<domain type='kvm'><name>d</name>
<metadata><idletime:policy xmlns:idletime='urn:idletime:policy:1' class='background'>
<idletime:disk target='vda' resource='{resource}'/></idletime:policy></metadata>
<devices><emulator>/bin/false</emulator>
<disk type='file' device='disk'><source file='/nowhere'/><target dev='{target}' bus='virtio'/></disk></devices>
<seclabel type='dynamic' model='dac'><label>+{uid}:+{gid}</label></seclabel></domain>"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def domain(resource: str = "sda", target: str = "vda") -> str:
    return DOMAIN.format(resource=resource, target=target, uid=os.getuid(), gid=os.getgid())


def compiled(xml: str, run_dir: Path) -> str:
    return compiler.compile(xml, resolve.gather(xml, run_dir=str(run_dir))).xml


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the installed hook; arenas are in tmp_path/run."""
    program, config = tmp_path / "idletime", tmp_path / "idletimed.toml"
    text = (LIBVIRT / "hook" / "idletime").read_text()
    for name, value in (("@PYTHONDIR@", str(LIBVIRT)), ("@CONFIG@", str(config)), ("/usr/bin/python3", sys.executable)):
        assert name in text
        text = text.replace(name, value)
    program.write_text(text)
    program.chmod(0o755)

    def start(operation: str, xml: str, settings: str = "", stage: str = "begin") -> subprocess.CompletedProcess[str]:
        config.write_text(f'run-dir = "{tmp_path}/run"\n{settings}')
        argv = [program, "d", operation, stage, "-"]
        return subprocess.run(argv, input=xml, capture_output=True, text=True, timeout=60)

    return start


def test_a_compiled_domain_starts(run: Run, tmp_path: Path) -> None:
    result = run("prepare", compiled(domain(), tmp_path / "run"))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert stat.S_IMODE((tmp_path / "run" / "sda").stat().st_mode) == 0o750


@pytest.mark.parametrize("settings, status", [("", 1), ('on-misfit = "warn"', 0)])
def test_a_policy_that_does_not_fit(run: Run, tmp_path: Path, settings: str, status: int) -> None:
    result = run("prepare", domain(target="vdb"), settings)
    assert result.returncode == status
    assert "idletime: domain 'd': error: line 3: disk target='vda': the domain has no such disk" in result.stderr
    assert not (tmp_path / "run").exists()


def test_nobody_compiled_it(run: Run) -> None:
    assert run("prepare", domain()).returncode == 1
    assert run("prepare", domain(), 'on-uncompiled = "warn"').returncode == 0


def compiled_elsewhere(xml: str, run_dir: Path, resource: str | None) -> str:
    """Compiled when the disk, which the policy does not name, was on this resource (None: when nobody knew)."""
    source = compiler.Source("disk", "file", "/nowhere")
    return compiler.compile(xml, compiler.HostFacts({source: compiler.Resolution(resource)}, str(run_dir))).xml


@pytest.mark.parametrize("resource", ["elsewhere", None])
def test_the_host_has_changed_since(run: Run, tmp_path: Path, resource: str | None) -> None:
    """Another default route, a disk that came or went: the domain starts as it was compiled, and that is said."""
    xml = compiled_elsewhere(domain().replace(" resource='sda'", ""), tmp_path / "run", resource)
    result = run("prepare", xml)
    assert (result.returncode, result.stdout) == (0, "")
    assert "this host has changed since its policy was compiled" in result.stderr
    arenas = [entry.name for entry in (tmp_path / "run").glob("[!.]*")]
    assert arenas == ([resource] if resource else [])


def test_the_policy_has_changed_since(run: Run, tmp_path: Path) -> None:
    """That is no change of the host: whoever wrote it wants it in force."""
    xml = compiled_elsewhere(domain().replace(" resource='sda'", ""), tmp_path / "run", "elsewhere")
    assert run("prepare", xml.replace("class='background'", "class='guest'")).returncode == 1


def test_compiled_for_another_run_directory(run: Run) -> None:
    """Such a domain would be in another arena than all others on its disk: that is no change of routes or disks."""
    assert run("prepare", compiled_elsewhere(domain(), Path("/other"), None)).returncode == 1


@pytest.mark.parametrize("operation", ["migrate", "restore"])
def test_resources_of_this_host(run: Run, tmp_path: Path, operation: str) -> None:
    """What another host compiled comes out with the arena of this one."""
    result = run(operation, compiled(domain(), Path("/other/host")))
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == compiled(domain(), tmp_path / "run")
    assert (tmp_path / "run" / "sda").is_dir()


@pytest.mark.parametrize("operation, stage", [
    ("started", "begin"), ("stopped", "end"), ("prepare", "end"), ("attach", "begin"),
])
def test_other_operations(run: Run, operation: str, stage: str) -> None:
    result = run(operation, "not even XML urn:idletime:", stage=stage)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_no_policy_no_python(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stock domain passes though our Python is broken."""
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    stock = domain().replace("idletime:", "other:").replace("urn:other:", "urn:x:")
    assert run("prepare", stock).returncode == 0
    assert run("prepare", domain()).returncode != 0


def test_wrong_settings_are_said(run: Run, tmp_path: Path) -> None:
    """The defaults hold then, and they refuse."""
    result = run("prepare", domain(target="vdb"), "on-misfit = 3")
    assert result.returncode == 1
    assert "on-misfit is 3: it must be of type str; going on with the defaults" in result.stderr


@pytest.mark.parametrize("action, status", [("refuse", 1), ("warn", 0)])
def test_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                         action: str, status: int) -> None:
    """It counts as a policy that cannot be put in force."""
    config = tmp_path / "idletimed.toml"
    config.write_text(f'on-misfit = "{action}"')

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(hook, "judge", fail)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    assert hook.main(["--config", str(config), "d", "prepare", "begin", "-"]) == status
    assert "the hook failed: RuntimeError: a bug" in capsys.readouterr().err

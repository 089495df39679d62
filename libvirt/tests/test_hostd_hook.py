# SPDX-License-Identifier: GPL-2.0-or-later
"""The hook as libvirt runs it: a program with arguments, XML on stdin, and a status."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from idletime.conf import rules
from idletime.hostd import alive, hook
from idletime.hostd.settings import Settings
from idletime.policy import Class, Policy, parse

LIBVIRT = Path(__file__).parents[1]
STRICT = "strict = true\n"
DOMAIN = """<domain type='kvm'><name>d</name><metadata>
<idletime:policy xmlns:idletime='urn:idletime:policy:1' class='{class_}'/></metadata></domain>"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def domain(class_: str = "background") -> str:
    return DOMAIN.format(class_=class_)


@contextlib.contextmanager
def living(run_dir: Path) -> Iterator[None]:
    """An idletimed is alive there."""
    descriptor = alive.hold(str(run_dir))
    assert descriptor is not None
    try:
        yield
    finally:
        os.close(descriptor)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the installed hook; its run-dir is tmp_path/run."""
    program, config = tmp_path / "idletime", tmp_path / "idletimed.toml"
    text = (LIBVIRT / "hook" / "idletime").read_text()
    for name, value in (("@PYTHONDIR@", str(LIBVIRT)), ("@CONFIG@", str(config)), ("/usr/bin/python3", sys.executable)):
        assert name in text
        text = text.replace(name, value)
    program.write_text(text)
    program.chmod(0o755)

    def start(xml: str, settings: str = STRICT, operation: str = "prepare",
              stage: str = "begin") -> subprocess.CompletedProcess[str]:
        config.write_text(f'run-dir = "{tmp_path}/run"\n{settings}')
        argv = [program, "d", operation, stage, "-"]
        return subprocess.run(argv, input=xml, capture_output=True, text=True, timeout=60, check=False)

    return start


def test_a_background_waits_for_idletimed(run: Run, tmp_path: Path) -> None:
    refused = run(domain())
    assert refused.returncode == 1
    assert refused.stderr == (
        "idletime: domain 'd' is background, by its own policy: its metadata has one, and idletimed is not alive to hold what "
        "it sends; remedy: systemctl start idletimed, or set strict = false in /etc/idletime/idletimed.toml\n")
    with living(tmp_path / "run"):
        allowed = run(domain())
    assert (allowed.returncode, allowed.stdout, allowed.stderr) == (0, "", "")
    assert run(domain()).returncode == 1, "it has ended"


def test_one_that_was_killed_is_not_alive(tmp_path: Path) -> None:
    """However it ends, the kernel lets go of its lock."""
    text = f"import sys; from idletime.hostd import alive; alive.hold('{tmp_path}'); print(flush=True); sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", text], cwd=LIBVIRT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin and process.stdout and process.stdout.readline()
    assert alive.alive(str(tmp_path)) and alive.hold(str(tmp_path)) is None
    process.kill()
    process.wait(60)
    assert not alive.alive(str(tmp_path))
    process.stdin.close()
    process.stdout.close()


@pytest.mark.parametrize("settings", ["", "strict = false\n", "# strict = true\n"])
def test_without_the_strict_setting_it_costs_a_shell(run: Run, settings: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A domain starts though our Python is broken."""
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    asked = run(domain(), settings)
    assert (asked.returncode, asked.stderr) == (0, "")
    assert run(domain(), STRICT).stderr != "", "this test would not notice"


@pytest.mark.parametrize("xml", [domain(), domain("foreground")])
def test_a_broken_python_stops_no_domain(run: Run, xml: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while the host's Python, or its libvirt bindings, are being upgraded."""
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    assert run(xml, STRICT).returncode == 0


def test_where_background_gives_memory_it_is_asked(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the run directory of the settings; what waits there is in test_hostd_memory.py."""
    (tmp_path / "run").mkdir(exist_ok=True)
    (tmp_path / "run/.gives").touch()
    asked = run(domain(), "")
    assert (asked.returncode, asked.stderr) == (0, "")
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    assert run(domain(), "").stderr != "", "a shell is all that it costs elsewhere"


@pytest.mark.parametrize("xml", [
    domain("foreground"), domain("backgrund"), "<domain><name>d</name></domain>", "not even XML"])
def test_who_starts_nevertheless(run: Run, xml: str) -> None:
    """Foreground, and what is wrong in a policy."""
    assert run(xml).returncode == 0


@pytest.mark.parametrize("operation, stage", [
    ("started", "begin"), ("stopped", "end"), ("prepare", "end"), ("attach", "begin"), ("migrate", "begin")])
def test_other_operations(run: Run, operation: str, stage: str) -> None:
    """What is migrated or restored is prepared, too."""
    result = run(domain(), STRICT, operation, stage)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_wrong_settings_are_said(run: Run) -> None:
    result = run(domain(), STRICT + "owner = 3")
    assert result.returncode == 0
    assert "owner is 3: it must be of type str" in result.stderr


def test_rules_say_who_is_background(tmp_path: Path) -> None:
    options = Settings(run_dir=str(tmp_path), strict=True)
    known = rules.Rules(default=Policy(Class.BACKGROUND), default_place="a.toml line 1")
    plain = "<domain><name>d</name></domain>"
    assert "background, by the default" in (hook.refusal("d", plain, options, known) or "")
    assert hook.refusal("d", plain, options, rules.Rules()) is None


@pytest.mark.parametrize("inner, answer", [
    ("", False), ("<disk class='foreground'/>", False), ("<disk class='background'/>", True),
    ("<interface queues='1'/>", True)])
def test_a_part_of_it_is_background(inner: str, answer: bool) -> None:
    own = parse(f"<policy xmlns='urn:idletime:policy:1' class='foreground'>{inner}</policy>")
    assert hook.is_background(own) is answer

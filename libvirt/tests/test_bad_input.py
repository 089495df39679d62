# SPDX-License-Identifier: GPL-2.0-or-later
"""Whatever stands in a file, a policy, a command line or a state file: nothing but findings, with place and remedy.

The tables of single mistakes, with their exact words, are in test_conf_rules, test_conf_resources, test_policy, test_cli and
test_hostd_decisions. Here is the rest: nothing raises what nobody expects, since that would end the daemon.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import hypothesis_profile  # noqa: F401
from idletime import state
from idletime.cli.main import main
from idletime.conf import resources, rules
from idletime.errors import Finding, PolicyError
from idletime.hostd import settings as settings_room
from idletime.policy import parse
from idletime.resolve.tree import Tree

NAMES = (
    "rule", "default", "namespaces", "name", "uuid", "title", "metadata", "xpath", "value", "class", "policy", "match", "path",
    "device", "bridge", "host", "interval-us", "auto", "budget", "max-inflight", "rate", "observe", "sda", "uri", "strict",
    "owner", "run-dir", "resync-seconds", "qmp", "sockets", "look-seconds")
TEXTS = st.one_of(st.text(max_size=8), st.sampled_from((
    "foreground", "background", "guest", "none", "auto", "*", "[", "(", "//x[", "5%", "-1", "1e9", "a/b", "..", "\x00",
    "\ud800", "é" * 70, "<policy/>", "9" * 5000)))
SCALARS = st.one_of(TEXTS, st.booleans(), st.integers(), st.integers(-2, 101), st.floats(), st.none())
VALUES = st.recursive(SCALARS, lambda inner: st.one_of(
    st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)), max_leaves=12)

DEEP = "a = " + "[" * 2000
LONG = "[sda]\ninterval-us = " + "9" * 5000
FILES = ("", "\x00", "[", "[[rule]]", "[[rule]]\n" * 300, DEEP, LONG, "a = 2026-02-31", "a.b = 1\na = 2", "[sda]\n[sda]",
         '[[rule]]\nname = "a"\nclass = "guest"\nmetadata = { xpath = "' + "(" * 3000 + '" }',
         '[[rule]]\nclass = "guest"\ntitle = "' + "(" * 3000 + '"')


def toml(value: Any) -> str:
    """A value as TOML; what TOML does not know is a mistake, which is wanted."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{name}" = {toml(one)}' for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return repr(value) if isinstance(value, int | float) else f'"{value}"'


@st.composite
def files(draw: Any) -> str:
    """Tables and keys that are known, with values of all kinds."""
    lines = []
    for name, value in draw(st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=5)):
        lines.append(draw(st.sampled_from(("", "", "[[rule]]", "[sda]", "[qmp]", "[sda.match]"))))
        lines.append(f'"{name}" = {toml(value)}')
    return "\n".join(lines)


TEXT_OF_FILES = st.one_of(files(), files(), st.text(max_size=40), st.sampled_from(FILES))
few = settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])


def place(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.toml").write_bytes(text.encode("utf-8", "surrogatepass"))


def whole(found: Iterable[Finding]) -> None:
    """Each says what, where and what to do about it, in a line."""
    for one in found:
        assert one.message and one.remedy and (one.file or one.line), one
        assert "\n" not in str(one), one


@few
@given(TEXT_OF_FILES)
@example(DEEP)
@example(LONG)
@example(FILES[-1])
@example(FILES[-2])
def test_rules(tmp_path: Path, text: str) -> None:
    place(tmp_path / "etc/idletime/rules.d", text)
    known = rules.load(Tree(str(tmp_path)))
    whole(known.findings)
    with contextlib.suppress(PolicyError):
        rules.decide_xml("<domain><name>a</name><uuid>0</uuid><title>t</title><metadata><x y='1'/></metadata></domain>", known)


@few
@given(TEXT_OF_FILES)
@example(DEEP)
@example(LONG)
def test_resources(tmp_path: Path, text: str) -> None:
    place(tmp_path / "etc/idletime/resources.d", text)
    whole(resources.load(Tree(str(tmp_path))).findings)


@few
@given(TEXT_OF_FILES)
@example(DEEP)
@example(LONG)
def test_settings(tmp_path: Path, text: str) -> None:
    """The daemon says which file it is, and ends; the command and the hook go on with the defaults."""
    place(tmp_path, text)
    try:
        settings_room.load(tmp_path / "a.toml")
    except settings_room.SettingsError as error:
        assert str(tmp_path / "a.toml") in str(error) and len(str(error).splitlines()) == 1


XML = """<policy xmlns='urn:idletime:policy:1' class='{0}'><interval us='{1}'/><disk target='{2}' resource='{3}' queues='{4}'/>
<interface target='{0}' dscp='{1}' class='{2}'/><hold max='{3}'/><limit max-inflight='{4}'/><guest control='{0}'/>
<cpu class='{1}'/><memory low='{2}'/><{5}/></policy>"""


@few
@given(st.lists(TEXTS, min_size=6, max_size=6))
def test_policies(values: list[str]) -> None:
    """All that is wrong, at once, each with its line."""
    try:
        parse(XML.format(*values))
    except PolicyError as error:
        whole(error.findings)
        assert all(one.line or "not well-formed" in one.message or "document type" in one.message for one in error.findings)


WORDS = st.one_of(TEXTS, st.sampled_from((
    "check", "mark", "unmark", "enable", "disable", "status", "list", "explain", "resources", "doctor", "test", "vm*", "--all",
    "--except", "--json", "--set", "--disk", "--interface", "--policy", "--class", "--root", "-n", "-r", "/dev/null", "/",
    "auto=yes", "vda=sda", "interval-us=5")))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(WORDS, max_size=5))
@example(words=["check", "9" * 5000])
def test_commands(tmp_path: Path, words: list[str]) -> None:
    """An exit status of the manual, and where it is an error, words for it. Nothing is changed: all is a dry run."""
    changes = ("mark", "unmark", "enable", "disable")
    argv = ["-c", "test:///default", "--settings", str(tmp_path / "none"), "--run-dir", str(tmp_path), *words]
    argv += ["--dry-run"] if any(one in words for one in changes) else []
    out, error = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        patch.setattr("sys.stdin", io.StringIO("<x/>"))
        try:
            code = main(argv)
        except SystemExit as ended:  # argparse
            code = int(ended.code or 0)
    assert code in range(8), error.getvalue()
    assert code in (0, 5) or error.getvalue() or out.getvalue()


@few
@given(st.one_of(st.binary(max_size=30), VALUES.map(lambda value: toml(value).replace(" = ", ": ").encode("utf-8", "replace"))))
@example(b"[" * 5000)
@example(b'{"state-version": 1, "uuid": "u"}')
def test_state_files(tmp_path: Path, data: bytes) -> None:
    """Of another version, or damaged: nothing is known."""
    folder = tmp_path / state.FOLDER
    folder.mkdir(exist_ok=True)
    for name in ("daemon", "u", "qmp-1"):
        (folder / f"{name}.json").write_bytes(data)
    assert (state.daemon(str(tmp_path)), state.domain(str(tmp_path), "u"), state.vms(str(tmp_path))) == (None, None, [])

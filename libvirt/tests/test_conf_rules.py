# SPDX-License-Identifier: GPL-2.0-or-later
"""rules.d: which rule fits a domain and why; what wins over what; each mistake with its place and remedy."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from conftest import DATA
from idletime import state
from idletime.cli.main import main
from idletime.conf import __main__ as conf
from idletime.conf import rules
from idletime.conf.files import Kept, remembered, stamps
from idletime.errors import PolicyError
from idletime.policy.model import Class
from idletime.resolve.tree import Tree

NOVA = """<nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'><nova:name>job</nova:name>
<nova:flavor name='batch.large'><nova:memory>512</nova:memory><nova:extraSpecs><nova:extraSpec name='idletime:class'>background
</nova:extraSpec></nova:extraSpecs></nova:flavor>
<nova:owner><nova:project uuid='abc-1'>ci</nova:project></nova:owner></nova:instance>"""
DOMAIN = """<domain type='kvm'><name>{name}</name><uuid>6D4C54AE-39B4-4BBE-8A1F-A2A2A2A2A2A2</uuid><title>A nightly build</title>
<metadata>{metadata}</metadata></domain>"""
OWN = "<p:policy xmlns:p='urn:idletime:policy:1' class='guest'/>"


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    folder = tmp_path / "etc/idletime/rules.d"
    folder.mkdir(parents=True)
    return folder


def load(tmp_path: Path) -> rules.Rules:
    return rules.load(Tree(str(tmp_path)))


def test_a_file_that_becomes_wrong_counts_as_it_was(etc: Path, tmp_path: Path) -> None:
    """Who looks again and again goes on by what it said before; a file that is gone says nothing, nor one that was never right."""
    tree, kept = Tree(str(tmp_path)), Kept()
    file = etc / "40.toml"
    right = '[[rule]]\nname = "ci-*"\nclass = "background"\n'

    def class_(text: str | None, default: str = "") -> tuple[str | None, int]:
        file.unlink(missing_ok=True) if text is None else file.write_text(text)
        (etc / "50.toml").write_text(default)
        found = rules.load(tree, kept)
        decision = rules.decide_xml(DOMAIN.format(name="ci-7", metadata=""), found)
        return decision.policy.class_.value if decision.policy else None, len(found.findings)

    foreground = 'default = "foreground"\n'
    assert class_("[[rule", foreground) == ("foreground", 1)
    assert class_(right, foreground) == ("background", 0)
    assert class_(right + "nmae = 'x'", foreground) == ("background", 1)
    assert class_("", foreground) == ("background", 1)
    assert class_("# " + right.replace("\n", "\n# "), foreground) == ("foreground", 0), "somebody has taken it out"
    assert class_("", foreground) == ("foreground", 0)
    assert class_(right, "") == ("background", 1), "the other one is empty now: its default holds"
    assert class_(None, foreground) == ("foreground", 0)
    assert rules.load(tree).findings == ()
    # One that says another default, before it in order: its rules hold, its default does not.
    file.write_text(foreground + right)
    (etc / "50.toml").unlink()
    assert rules.load(tree, kept).findings == ()
    (etc / "30.toml").write_text('default = "background"\n')
    found = rules.load(tree, kept)
    assert len(found.findings) == 1 and len(found.rules) == 1 and found.default and found.default.class_ is Class.BACKGROUND
    assert len(rules.load(tree, kept).rules) == 1, "it is kept on"
    # Nor behind it: somebody has moved the default, and made a slip.
    (etc / "30.toml").write_text("default = [")
    (etc / "60.toml").write_text(foreground)
    file.write_text(right)
    found = rules.load(tree, kept)
    assert len(found.findings) == 1 and found.default and found.default.class_ is Class.FOREGROUND


def test_commands_know_what_idletimed_goes_by(etc: Path, tmp_path: Path) -> None:
    """Also an idletimed that begins; what it left may be anything."""
    tree, kept = Tree(str(tmp_path)), Kept()
    (etc / "40.toml").write_text('[[rule]]\nname = "ci-*"\nclass = "background"\n')
    rules.load(tree, kept)
    folder = tmp_path / "run/idletime/.state"
    folder.mkdir(parents=True)
    state.write_files(str(folder.parent), kept)
    (etc / "40.toml").write_text("[[rule")
    found = rules.load(tree)
    assert len(found.rules) == 1 and "it is not TOML" in str(found.findings[0])
    for text in ("", "[]", "{", '{"files": [1]}', '{"files": {"a": 1}}', "[" * 100_000):
        (folder / "files.json").write_text(text)
        assert rules.load(tree).rules == ()


def decided(tmp_path: Path, name: str = "ci-7", metadata: str = NOVA) -> rules.Decision:
    found = load(tmp_path)
    assert found.findings == ()
    return rules.decide_xml(DOMAIN.format(name=name, metadata=metadata), found)


@pytest.mark.parametrize(
    "condition, why",
    [
        ('name = "ci-*"', "name 'ci-7' fits 'ci-*'"),
        ('name = ["x", "*-7"]', "name 'ci-7' fits '*-7'"),
        ('name = "CI-*"', None),
        ('uuid = "6d4c54ae-*"', "uuid '6d4c54ae-39b4-4bbe-8a1f-a2a2a2a2a2a2' fits '6d4c54ae-*'"),
        ('title = "*nightly*"', "title 'A nightly build' fits '*nightly*'"),
        ('name = "ci-*"\ntitle = "weekly"', None),
        ('name = "ci-*"\ntitle = "A *"', "name 'ci-7' fits 'ci-*', title 'A nightly build' fits 'A *'"),
        ('metadata = { xpath = "nova:project/@uuid", value = "abc-*" }', "nova:project/@uuid is 'abc-1', which fits 'abc-*'"),
        ('metadata = { xpath = "nova:project/@uuid", value = "abd-*" }', None),
        ('metadata = { xpath = "nova:flavor[@name=\'batch.large\']" }', "nova:flavor[@name='batch.large'] is there"),
        ('metadata = { xpath = "nova:flavor[@name=\'web\']" }', None),
        ('metadata = { xpath = "nova:extraSpec[@name=\'idletime:class\']", value = "background" }',
         "nova:extraSpec[@name='idletime:class'] is 'background', which fits 'background'"),
        ('metadata = [{ xpath = "nova:name" }, { xpath = "nova:project", value = "ci" }]',
         "nova:name is there, nova:project is 'ci', which fits 'ci'"),
        ('metadata = [{ xpath = "nova:name" }, { xpath = "nova:nothing" }]', None),
        ('metadata = { xpath = "./nova:instance/nova:flavor" }', "./nova:instance/nova:flavor is there"),
        ('metadata = { xpath = "./nova:flavor" }', None),
        ('metadata = { xpath = "count(.//nova:owner)", value = "1" }', "count(.//nova:owner) is '1', which fits '1'"),
        ('metadata = { xpath = "boolean(.//nova:owner)" }', "boolean(.//nova:owner) is there"),
        ('metadata = { xpath = "boolean(.//nova:nobody)" }', None),
        ('metadata = { xpath = "descendant::nova:owner" }', "descendant::nova:owner is there"),
        ('metadata = { xpath = "string(.//nova:name)", value = "j?b" }', "string(.//nova:name) is 'job', which fits 'j?b'"),
    ],
)  # fmt: skip
def test_conditions(etc: Path, tmp_path: Path, condition: str, why: str | None) -> None:
    (etc / "10.toml").write_text(f'[[rule]]\nclass = "background"\n{condition}\n')
    found = decided(tmp_path)
    if why is None:
        assert (found.class_, found.by) == ("none", "default")
    else:
        assert (found.class_, found.by, found.why) == ("background", "rule", why)
        assert found.place == "/etc/idletime/rules.d/10.toml line 1"


def test_order_and_precedence(etc: Path, tmp_path: Path) -> None:
    """The domain's own policy, then rules by file name and place, then the default."""
    (etc / "20.toml").write_text('default = "foreground"\n[[rule]]\nclass = "guest"\nname = "*-7"\n')
    (etc / "10.toml").write_text('[[rule]]\nclass = "none"\nname = "vip-*"\n\n[[rule]]\nclass = "background"\nname = "ci-*"\n')
    assert str(decided(tmp_path, metadata=OWN)) == "guest, by its own policy: its metadata has one"
    assert str(decided(tmp_path)) == (
        "background, by the rule in /etc/idletime/rules.d/10.toml line 5: name 'ci-7' fits 'ci-*'"
    )
    assert str(decided(tmp_path, "vip-7")) == (
        "not attached, by the rule in /etc/idletime/rules.d/10.toml line 1: name 'vip-7' fits 'vip-*'"
    )
    assert decided(tmp_path, "web-7").place.endswith("20.toml line 2")
    assert str(decided(tmp_path, "web")) == (
        "foreground, by the default: no rule fits; /etc/idletime/rules.d/20.toml line 1 says so"
    )


def test_nothing_is_attached_by_itself(tmp_path: Path) -> None:
    found = decided(tmp_path)
    assert found.policy is None
    assert str(found) == "not attached, by the default: no rule fits, and no file in /etc/idletime/rules.d has a default"


def test_a_domain_without_metadata(etc: Path, tmp_path: Path) -> None:
    (etc / "a.toml").write_text('[[rule]]\nclass = "background"\nmetadata = { xpath = "nova:flavor" }\n')
    assert rules.decide_xml("<domain type='kvm'><name>a</name></domain>", load(tmp_path)).policy is None


def test_a_whole_policy(etc: Path, tmp_path: Path) -> None:
    """One grammar: what a rule says beyond the class is the policy element."""
    (etc / "a.toml").write_text("""[[rule]]
name = "ci-*"
policy = '''<policy xmlns='urn:idletime:policy:1' class='background'><interval auto='yes' budget='9%'/></policy>'''
""")
    found = decided(tmp_path).policy
    assert found is not None and found.class_ is Class.BACKGROUND
    assert found.settings == {None: {"auto": True, "budget-percent": 9}}


def test_other_namespaces(etc: Path, tmp_path: Path) -> None:
    (etc / "a.toml").write_text("""[namespaces]
x = "urn:example:x"
[[rule]]
class = "background"
metadata = { xpath = "x:tier", value = "batch" }
""")
    assert decided(tmp_path, metadata="<y:tier xmlns:y='urn:example:x'>batch</y:tier>").class_ == "background"
    assert decided(tmp_path, metadata="<y:tier xmlns:y='urn:other'>batch</y:tier>").class_ == "none"


RULE = '[[rule]]\nclass = "background"\n'
MISTAKES = {
    "class": ('[[rule]]\nname = "a"\nclass = "batch"\n',
              'line 3: class = \'batch\' is not known; remedy: write "foreground" or "background" or "guest" or "none"'),
    "says-nothing": ('\n[[rule]]\nname = "a"\n', "line 2: the rule says nothing: it has neither class nor policy; remedy: write "
                     'class = "foreground" or "background" or "guest" or "none"'),
    "says-both": (f'{RULE}name = "a"\npolicy = "<policy xmlns=\'urn:idletime:policy:1\' class=\'guest\'/>"\n',
                  "line 1: the rule has both class and policy; remedy: remove one"),
    "no-condition": (RULE, "line 1: the rule has no condition; remedy: write name, uuid, title or metadata, or use default"),
    "unknown-condition": (f'{RULE}name = "a"\nhost = "b"\n',
                          "line 4: 'host' is not known; remedy: use name, uuid, title, class, policy, metadata"),
    "unknown-key": ('[rules]\n', "line 1: 'rules' is not known; remedy: use default, namespaces, rule"),
    "no-list": ('[rule]\nclass = "guest"\n', "line 1: rule is no list of tables; remedy: write [[rule]] above each"),
    "name": (f"{RULE}name = 7\n", 'line 3: name = 7 is no text and no list of texts; remedy: write a text, or a list such as '
             '["a*", "b*"]'),
    "no-xpath": (f'{RULE}metadata = "nova:flavor"\n',
                 'line 3: metadata has no xpath; remedy: write { xpath = "...", value = "..." }'),
    "xpath": (f'{RULE}metadata = {{ xpath = "nova:flavor[" }}\n', "line 3: xpath = 'nova:flavor[': Invalid expression; remedy: "
              "correct it; prefixes are those of [namespaces] and nova, libosinfo"),
    "prefix": (f'{RULE}metadata = {{ xpath = "nva:flavor" }}\n', "line 3: xpath = 'nva:flavor': Undefined namespace prefix; "
               "remedy: correct it; prefixes are those of [namespaces] and nova, libosinfo"),
    "namespaces": ('namespaces = "x"\n', 'line 1: namespaces is no table of prefixes; remedy: write such as x = "urn:example:x"'),
    "policy": ('[[rule]]\nname = "a"\npolicy = "<policy/>"\n', "line 3: policy = '<policy/>' has no policy; remedy: write a "
               "policy element as text, see idletime-policy(5)"),
    "policy-value": ("[[rule]]\nname = 'a'\npolicy = \"<policy xmlns='urn:idletime:policy:1' class='x'/>\"\n",
                     "line 3: policy = \"<policy xmlns='urn:idletime:policy:1' class='x'/>\" is no policy: class='x' is not known; "
                     "remedy: write a policy element as text, see idletime-policy(5)"),
    "default": ("default = true\n", "line 1: default = true is not known; remedy: write \"foreground\" or \"background\" or "
                '"guest" or "none"'),
    "no-toml": ("[[rule]\n", "line 1: it is not TOML: Expected ']]' at the end of an array declaration; remedy: correct the line"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(etc: Path, tmp_path: Path, name: str) -> None:
    """Value, place and remedy; the file is left out, the others are not."""
    text, expected = MISTAKES[name]
    (etc / "10-wrong.toml").write_text(text)
    (etc / "20-right.toml").write_text(f'{RULE}name = "a"\n')
    found = load(tmp_path)
    assert list(map(str, found.findings)) == [f"error: /etc/idletime/rules.d/10-wrong.toml {expected}"]
    assert [rule.place for rule in found.rules] == ["/etc/idletime/rules.d/20-right.toml line 1"]


def test_an_xpath_that_fails_only_where_there_is_something(etc: Path, tmp_path: Path) -> None:
    """In a predicate, which an empty <metadata> does not reach: said with its place, for those domains that the rule is asked of."""
    (etc / "10.toml").write_text(f'{RULE}name = "ci-*"\nmetadata = {{ xpath = "nova:flavor[matches(@name, \'^b\')]" }}\n')
    with pytest.raises(PolicyError) as caught:
        decided(tmp_path)
    assert str(caught.value) == (
        "error: /etc/idletime/rules.d/10.toml line 1: xpath = 'nova:flavor[matches(@name, '^b')]': Unregistered function; remedy: "
        "correct it; prefixes are those of [namespaces] and nova, libosinfo")
    assert decided(tmp_path, "web").by == "default"
    assert decided(tmp_path, metadata=OWN).by == "domain"


@pytest.mark.parametrize("text", [
    '[namespaces]\nx = ""\n[[rule]]\nclass = "guest"\nmetadata = { xpath = "nova:flavor" }\n',
    '[namespaces]\n"" = "urn:y"\n[[rule]]\nclass = "guest"\nmetadata = { xpath = "nova:flavor" }\n',
    '[[rule]]\nclass = "guest"\nmetadata = { xpath = "nova:\\u0000" }\n',
])
def test_what_lxml_raises_besides_its_own_errors(etc: Path, tmp_path: Path, text: str) -> None:
    (etc / "10.toml").write_text(text)
    (finding,) = load(tmp_path).findings
    assert "xpath = '" in str(finding) and "; remedy: " in str(finding)


def test_an_xpath_that_finds_a_comment(etc: Path, tmp_path: Path) -> None:
    (etc / "10.toml").write_text(f'{RULE}metadata = {{ xpath = ".//comment()", value = "*batch*" }}\n')
    assert decided(tmp_path, metadata=f"{NOVA}<!-- batch -->").by == "rule"
    assert decided(tmp_path).by == "default"


def test_one_file_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """For who writes one: before it lies where idletimed reads it."""
    file = tmp_path / "new"
    for room, text, status in (("rules", f'{RULE}name = "a"\n', 0), ("rules", '[[rule]]\nname = "a"\nclass = "x"\n', 1),
                               ("resources", "[sda]\ninterval-us = 5000\n", 0), ("resources", "[sda]\nx = 1\n", 1), ("other", "", 2)):
        file.write_text(text)
        monkeypatch.setattr("sys.argv", ["conf", room, str(file)])
        assert conf.main() == status, text
        said = capsys.readouterr().err
        assert bool(said) == bool(status) and (status != 1 or f"{file} line" in said), said


def test_two_defaults(etc: Path, tmp_path: Path) -> None:
    (etc / "a.toml").write_text('default = "none"')
    (etc / "b.toml").write_text('default = "foreground"')
    found = load(tmp_path)
    assert "b.toml line 1: default = 'foreground' is the second one, after /etc/idletime/rules.d/a.toml line 1" in str(found.findings[0])
    assert found.default is None and found.default_place


def test_a_folder_that_cannot_be_read_counts_as_it_was(etc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For want of descriptors, say: no VM changes its class by that. It is told, and looked at anew when it is well."""
    tree, kept, folders = Tree(str(tmp_path)), Kept(), ("/etc/idletime/rules.d",)
    (etc / "40.toml").write_text('[[rule]]\nname = "ci-*"\nclass = "background"\n')
    (etc / "50.toml").write_text('default = "foreground"\n')
    right, before, said = rules.load(tree, kept), stamps(tree, folders), dict(kept)
    with monkeypatch.context() as now:
        def listdir(path: str) -> list[str]:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

        now.setattr(os, "listdir", listdir)
        for _ in range(2):
            found = rules.load(tree, kept)
            assert (found.rules, found.default, kept) == (right.rules, right.default, said)
            assert [(one.file, one.message) for one in found.findings] == [
                ("/etc/idletime/rules.d", "the folder cannot be read: Too many open files"),
                ("/etc/idletime/rules.d/40.toml", "its folder cannot be read"),
                ("/etc/idletime/rules.d/50.toml", "its folder cannot be read")]
        assert stamps(tree, folders) == stamps(tree, folders) != before
    assert rules.load(tree, kept).findings == () and stamps(tree, folders) == before
    etc.rename(tmp_path / "gone")
    assert rules.load(tree, kept) == rules.Rules() and kept == {}, "one that is not there says nothing"


def test_another_run_directory(etc: Path, tmp_path: Path) -> None:
    """What its idletimed remembers of a file, all others know."""
    state.write_daemon(str(tmp_path / "run"), (), "", "")
    state.write_files(str(tmp_path / "run"), {"/etc/idletime/rules.d/40.toml": '[[rule]]\nname = "ci-*"\nclass = "background"\n'})
    (etc / "40.toml").write_text("[[rule")
    assert not rules.load(Tree(str(tmp_path))).rules
    found = rules.load(tree := Tree(str(tmp_path), "/run"))
    assert len(found.rules) == 1 and list(remembered(tree)) == ["/etc/idletime/rules.d/40.toml"]


def test_a_wrong_policy_of_the_domain_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(PolicyError):
        decided(tmp_path, metadata=OWN.replace("guest", "batch"))


def test_the_example(tmp_path: Path, etc: Path) -> None:
    """What is shipped as an example is read without a finding, and does what it says."""
    example = Path(__file__).parents[2] / "examples/libvirt/rules.d"
    for file in example.glob("*.toml"):
        (etc / file.name).write_text(file.read_text())
    assert decided(tmp_path).class_ == "background"
    assert decided(tmp_path, "web-1", metadata="").class_ == "foreground"


def test_check_says_what_is_wrong(tmp_path: Path, etc: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (etc / "a.toml").write_text(RULE)
    assert main(["check", "--root", str(tmp_path), str(DATA / "policy/valid/least.xml")]) == 7
    assert "rules.d/a.toml line 1: the rule has no condition" in capsys.readouterr().err

# SPDX-License-Identifier: GPL-2.0-or-later
"""resources.d: what it sets and names, what wins over what, and each mistake with its place and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

import trees
from conftest import DATA
from idletime import resolve
from idletime.cli.main import main
from idletime.conf import resources
from idletime.conf.files import Kept, _lines
from idletime.devices import devices_of
from idletime.facts import HostFacts, Source
from idletime.plan import choose
from idletime.policy import parse
from idletime.resolve.tree import Tree
from idletime.xmltree import read
from lookups import LibvirtFiles


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    """An empty host's folder for the files; its root is tmp_path."""
    folder = tmp_path / "etc/idletime/resources.d"
    folder.mkdir(parents=True)
    return folder


def load(tmp_path: Path) -> resources.Resources:
    return resources.load(Tree(str(tmp_path)))


def test_a_file_that_becomes_wrong_counts_as_it_was(etc: Path, tmp_path: Path) -> None:
    """Else an array would lose its name, and what is background on it its interval; another file's settings come first."""
    tree, kept, file = Tree(str(tmp_path)), Kept(), etc / "20.toml"
    right = '[array1]\nauto = true\nmatch.path = "/dev/sd*"\n\n[sda]\nmax-inflight = 4\n'

    def settings(text: str) -> tuple[dict[str, object], int]:
        file.write_text(text)
        found = resources.load(tree, kept)
        return dict(found.settings), len(found.findings)

    assert settings("[array1") == ({}, 1), "it was never right"
    said = {"array1": {"auto": True}, "sda": {"max-inflight": 4}}
    assert settings(right) == (said, 0)
    assert settings(right + "auot = true\n") == settings("") == (said, 1)
    (etc / "10.toml").write_text("[sda]\nmax-inflight = 2\n")
    assert settings("[array1") == ({**said, "sda": {"max-inflight": 2}}, 1)
    (etc / "30.toml").write_text("[array1]\nauto = false\n")
    assert settings("[array1") == ({"array1": {"auto": False}, "sda": {"max-inflight": 2}}, 1), "it was moved there"
    (etc / "30.toml").unlink()
    file.unlink()
    assert dict(resources.load(tree, kept).settings) == {"sda": {"max-inflight": 2}}


def test_settings(etc: Path, tmp_path: Path) -> None:
    (etc / "10-disks.toml").write_text("""
[sda]
interval-us = 5000
max-inflight = 4
observe = true
idle-class = "background"

[group-sdb]
idle-class = "foreground"
auto = true
budget = "5%"
""")
    (etc / "20-net.toml").write_text('[eth0]\nrate = "1Gbit"\n[quiet]\nauto = false')
    (etc / "ignored.txt").write_text("[")
    found = load(tmp_path)
    assert found.findings == ()
    assert dict(found.settings) == {
        "sda": {"interval-us": 5000, "max-inflight": 4},
        "group-sdb": {"auto": True, "budget-percent": 5},
        "eth0": {"rate-bps": 10**9},
        "quiet": {"auto": False},
    }
    assert [one.observe for one in found.all] == [True, None, None, None]
    assert [one.idle_class for one in found.all] == [True, False, False, False]
    assert found.all[1].place == "/etc/idletime/resources.d/10-disks.toml line 8"


def test_no_folder(tmp_path: Path) -> None:
    assert load(tmp_path) == resources.Resources()


MISTAKES = {
    "no-toml": ("[sda]\ninterval-us = \n", "line 2: it is not TOML: Invalid value; remedy: correct the line"),
    "unknown-key": (
        "[sda]\n\nintervall-us = 3\n",
        "line 3: 'intervall-us' is not known; remedy: use interval-us, auto, budget, max-inflight, rate, observe, idle-class, match",
    ),
    "negative": ("[sda]\ninterval-us = -1\n", "line 2: interval-us = -1 is not a whole number; remedy: write a whole number of "
                 "microseconds from 0 to 3600000000"),
    "text-for-switch": ('[sda]\nauto = "yes"\n', "line 2: auto = 'yes' is neither true nor false; remedy: write true or false"),
    "switch-for-number": ("[sda]\nmax-inflight = true\n", "line 2: max-inflight = true is not a whole number; remedy: write a "
                          "whole number of requests from 1 to 64"),
    "list-for-number": ("[sda]\ninterval-us = [1]\n", "line 2: interval-us = [1] is neither a number nor a text; remedy: write a "
                        "whole number of microseconds from 0 to 3600000000"),
    "budget-number": ("[sda]\nauto = true\nbudget = 5\n", "line 3: budget = 5 is not a whole number of percent; remedy: write a "
                      "whole number of percent from 0% to 1000%, such as 5%"),
    "budget-alone": ('[sda]\nbudget = "5%"\n', "line 2: budget = '5%' without auto; remedy: add auto = true, or remove budget"),
    "name": ('["a/b"]\n', "line 1: 'a/b' cannot be the name of a resource; remedy: write a name of at most 63 letters, digits, "
             "'.', '_' and '-', the first one a letter or digit"),
    "none": ("[none]\n", "line 1: 'none' cannot be the name of a resource; remedy: write a name of at most 63 letters, digits, "
             "'.', '_' and '-', the first one a letter or digit"),
    "no-table": ("sda = 5\n", "line 1: 'sda' is no table; remedy: write [RESOURCE] above it, with interval-us, auto, budget, "
                 "max-inflight, rate, observe, idle-class, match"),
    "idle-class": ('[sda]\nidle-class = "idle"\n', "line 2: idle-class = 'idle' is not known; remedy: write 'foreground' or "
                   "'background'"),
    "idle-class-switch": ("[sda]\nidle-class = true\n", "line 2: idle-class = true is not known; remedy: write 'foreground' or "
                          "'background'"),
    "idle-class-unseen": ('[sda]\nobserve = false\nidle-class = "background"\n', "line 3: idle-class = 'background' with observe "
                          "= false; remedy: remove one of them: only an observer tells classes"),
    "match-no-table": ('[sda]\nmatch = "/dev/sda"\n', "line 2: match is no table; remedy: write such as match.path = ..., with "
                       "path, device, bridge, network, pool, host"),
    "match-key": ('[sda]\nmatch.paths = "/dev/sda"\n', "line 2: 'paths' is not known; remedy: use path, device, bridge, network, "
                  "pool, host"),
    "match-value": ("[sda.match]\n# the disk\npath = []\n", "line 3: path = [] is no text and no list of texts; remedy: write a "
                    'text, or a list such as ["a*", "b*"]'),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(etc: Path, tmp_path: Path, name: str) -> None:
    """Value, place and remedy; the file is left out, the others are not."""
    text, expected = MISTAKES[name]
    (etc / "10-wrong.toml").write_text(text)
    (etc / "20-right.toml").write_text("[good]\nauto = true\n")
    found = load(tmp_path)
    assert list(map(str, found.findings)) == [f"error: /etc/idletime/resources.d/10-wrong.toml {expected}"]
    assert [one.name for one in found.all] == ["good"]


def test_all_mistakes_of_a_file_at_once(etc: Path, tmp_path: Path) -> None:
    (etc / "a.toml").write_text("[sda]\nauto = 1\n[sdb]\nauto = 2\n")
    assert [finding.line for finding in load(tmp_path).findings] == [2, 4]


def test_said_twice(etc: Path, tmp_path: Path) -> None:
    (etc / "a.toml").write_text("[sda]\nauto = true\n")
    (etc / "b.toml").write_text("\n[sda]\nauto = false\n")
    (finding,) = load(tmp_path).findings
    assert "b.toml line 2: resource 'sda' is said before, in /etc/idletime/resources.d/a.toml line 1" in str(finding)
    assert load(tmp_path).settings["sda"] == {"auto": True}


def test_what_cannot_be_read_is_said(etc: Path, tmp_path: Path) -> None:
    (etc / "a.toml").mkdir()
    assert "a.toml: the file cannot be read; remedy" in str(load(tmp_path).findings[0])


def test_lines() -> None:
    """Of tables, tables of lists, dotted and quoted keys; not of what stands within long texts."""
    text = "a = 1\n[b]\n'c d'.e = 2\ntext = '''\nnot = 1\n'''\n[[r]]\nx = 1\n[[r]] # two\nx = 2\n[r.sub]\ny = 1\n"
    assert {path: line for path, line in _lines(text).items() if path != ("r",)} == {
        ("a",): 1, ("b",): 2, ("b", "c d", "e"): 3, ("b", "text"): 4, ("r", 0): 7, ("r", 0, "x"): 8, ("r", 1): 9,
        ("r", 1, "x"): 10, ("r", "sub"): 11, ("r", "sub", "y"): 12}  # fmt: skip


# ---- names

NAMES = """
[array1]
match.path = "/dev/disk/by-id/wwn-0x600*"
[server]
match.path = "/dev/nbd*"
[ram]
match.device = "252:0"
[outer]
match.bridge = ["brvx", "br-e*"]
[vpn]
match.network = "sriov"
[bound]
match.network = "macvtaps"
[ceph-ssd]
match.pool = "ssd"
[nas]
match.host = "10.9.0.*"
[ssds]
match.path = "/dev/nvme0n1"
[merged]
match.path = "/srv/merger/*"
"""


@pytest.fixture
def cloud(tmp_path: Path) -> str:
    """The cloud host with names for what cannot be found out."""
    root = trees.expand(DATA / "hosts" / "cloud.tree", tmp_path)
    (root / "etc/idletime/resources.d").mkdir(parents=True)
    (root / "etc/idletime/resources.d/names.toml").write_text(NAMES)
    return str(root)


def name(root: str, *source: str) -> str | None:
    return resolve.resolve(Source(*source), root, LibvirtFiles(Tree(root))).name


@pytest.mark.parametrize(
    "source, expected",
    [
        (("disk", "block", "/dev/mapper/mpatha"), "array1"),
        (("disk", "block", "/dev/sdh"), "array1"),
        (("disk", "block", "/dev/disk/by-id/wwn-0x600b"), "array1"),
        (("disk", "block", "/dev/sdf"), "sdf"),
        (("disk", "block", "/dev/nbd0"), "server"),
        (("disk", "block", "/dev/zram0"), "ram"),
        (("disk", "file", "/srv/merger/a.img"), "merged"),
        (("disk", "block", "/dev/nvme0n2"), "ssds"),
        (("disk", "block", "/dev/nvme1n1"), "nvme1n1"),
        (("disk", "network", "ssd/image", "rbd:mon1:6789"), "ceph-ssd"),
        (("disk", "network", "x", "nbd:10.9.0.5:10809"), "nas"),
        (("disk", "network", "x", "nbd:10.8.0.5:10809"), "nbd-10.8.0.5-10809"),
        (("interface", "bridge", "brvx"), "outer"),
        (("interface", "bridge", "br-ex"), "outer"),
        (("interface", "network", "sriov"), "vpn"),
        (("interface", "network", "macvtaps"), "bound"),
        (("interface", "network", "default"), "eth0"),
    ],
    ids=str,
)
def test_names(cloud: str, source: tuple[str, ...], expected: str) -> None:
    """A name holds for every source that leads to the same disk: the other namespace, another link to the LUN."""
    assert name(cloud, *source) == expected


def test_the_place_is_in_the_trail(cloud: str) -> None:
    found = resolve.resolve(Source("disk", "block", "/dev/nbd0"), cloud)
    assert found.trail == ("/dev/nbd0", "/etc/idletime/resources.d/names.toml line 4")


# ---- settings in force

DOMAIN = """<domain type='kvm'><name>d</name><metadata>
<p:policy xmlns:p='urn:idletime:policy:1' class='{class_}'><p:disk target='vda' resource='sda' {more}/>{rest}</p:policy>
</metadata><devices><disk type='file'><source file='/a'/><target dev='vda' bus='virtio'/></disk></devices></domain>"""


def properties(host: dict[str, int | bool], class_: str = "background", rest: str = "", more: str = "") -> dict[str, int | bool]:
    xml = DOMAIN.format(class_=class_, rest=rest, more=more)
    root = read(xml)
    policy = parse(xml)
    assert policy is not None
    plan, _ = choose(policy, devices_of(root), HostFacts(settings={"sda": host}))
    return dict(plan.resources[0].properties)


@pytest.mark.parametrize(
    "host, policy, expected",
    [
        ({}, "", {"auto": True, "budget-percent": 3}),
        ({"max-inflight": 2}, "", {"auto": True, "budget-percent": 3, "max-inflight": 2}),
        ({"interval-us": 7}, "", {"interval-us": 7}),
        ({"auto": False}, "", {"auto": False}),
        ({"auto": True}, "", {"auto": True}),
        ({"auto": True, "budget-percent": 9}, "", {"auto": True, "budget-percent": 9}),
        ({"auto": True, "budget-percent": 9}, "<p:interval us='5'/>", {"interval-us": 5}),
        ({"interval-us": 7}, "<p:interval auto='yes'/>", {"auto": True}),
        ({"interval-us": 7}, "<p:interval shadow='yes'/>", {"interval-us": 7, "shadow": True}),
        ({}, "<p:interval auto='no'/>", {"auto": False}),
        ({}, "<p:interval us='20000'/>", {"interval-us": 20000}),
        ({}, "<p:interval us='5' resource='other'/>", {"auto": True, "budget-percent": 3}),
        ({"max-inflight": 2}, "<p:limit inflight='3'/>", {"auto": True, "budget-percent": 3, "max-inflight": 3}),
    ],
    ids=str,
)
def test_what_nobody_set_is_learned_and_what_somebody_wrote_wins(
    host: dict[str, int | bool], policy: str, expected: dict[str, int | bool]
) -> None:
    """The domain's policy, then resources.d, then a learned interval that costs the foreground 3 %."""
    assert properties(host, rest=policy) == expected


def test_every_class_learns() -> None:
    """A foreground holds nothing; what is set there is in force the moment it becomes background."""
    for class_ in ("foreground", "background", "guest"):
        assert properties({}, class_) == {"auto": True, "budget-percent": 3}


def test_the_example(etc: Path, tmp_path: Path) -> None:
    """What is shipped as an example is read without a finding."""
    for file in (Path(__file__).parents[2] / "examples/libvirt/resources.d").glob("*.toml"):
        (etc / file.name).write_text(file.read_text())
    found = load(tmp_path)
    assert found.findings == () and found.settings["sda"] == {"auto": True, "budget-percent": 1}


# ---- the command


def test_check_says_what_is_wrong(tmp_path: Path, etc: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 7: done, but a file was left out."""
    (tmp_path / "d.xml").write_text(DOMAIN.format(class_="background", rest="", more=""))
    arguments = ["check", "--root", str(tmp_path), str(tmp_path / "d.xml")]
    assert main(arguments) == 0
    (etc / "a.toml").write_text("[sda]\nauto = 1")
    assert main(arguments) == 7
    printed = capsys.readouterr()
    assert "resources.d/a.toml line 2: auto = 1 is neither true nor false" in printed.err
    assert "disk vda: background on sda" in printed.out

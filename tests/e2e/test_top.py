"""virt-idletime top in a real terminal, on a real libvirtd with real guests: what it shows is what QEMU does, and keys change it."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from typing import Any, Iterator

import libvirt
import pytest

from tests.e2e.libvirt_fixtures import (  # noqa: F401  (fixtures)
    background, expect, foreground, host, idletimed, module_stack, remove, served, set_policy, shared_disk,
    untouched,
)
from tests.framework.domain import Domain, disk_xml
from tests.framework.idletimed import PYTHON, Idletimed, virt_idletime, wait_until
from tests.framework.libvirtd import Libvirtd
from tests.framework.terminal import Terminal
from tests.testbed.disk import Disk

BG, FG = ("background", "slow", 30000), ("foreground", "slow", 30000)
TOP = [*PYTHON, "idletime", "top", "--delay", "0.2"]


FOREVER_SECONDS = 3600


@pytest.fixture(scope="module")
def vms(host: Libvirtd, idletimed: Idletimed, shared_disk: Disk) -> Iterator[tuple[Domain, ...]]:  # noqa: F811
    """A foreground VM that is idle, a background VM under load, and one that nobody marked, under load."""
    made = [Domain(host, name, its, [disk_xml(shared_disk, name)])
            for name, its in (("fg", foreground()), ("bg", background()), ("other", ""))]
    with ExitStack() as stack:
        for each in made:
            stack.callback(remove, each)
            each.define()
            each.start()
        fg, bg, other = (each.booted() for each in made)
        expect(bg, vda=BG)
        expect(fg, vda=FG)
        for each, outstanding in ((bg, 4), (other, 1)):
            assert each.guest is not None
            each.guest.load(outstanding=outstanding, seconds=FOREVER_SECONDS)
            served(shared_disk, each.name)
        yield fg, bg, other


@pytest.fixture
def terminal(host: Libvirtd) -> Iterator[Terminal]:  # noqa: F811
    """Of the host's namespaces."""
    def call(*argv: str) -> str:
        return str(host.call(*argv).stdout)
    with Terminal(call, "/run/tmux", TOP) as result:
        yield result


def row(screen: str, *words: str) -> list[str]:
    """Cells of the line that begins with these."""
    return next((cells for line in screen.splitlines() if (cells := re.split(r"\s{2,}", line.strip()))[:len(words)] == [*words]),
                [])


def test_what_it_shows(host: Libvirtd, vms: tuple[Domain, ...], terminal: Terminal) -> None:  # noqa: F811
    """Alone, the background has the disk; beside a foreground that never pauses it is held: the strip tells both."""
    fg, _, _ = vms
    terminal.shows(r"bg +vda +slow +background +[1-9]", r"slow +background ", r"\n +[LFPi?]*BBB")
    busiest = [line.split()[0] for line in terminal.screen().splitlines() if line.split()[1:2] == ["vda"]]
    assert sorted(busiest[:2]) == ["bg", "other"] and busiest[2] == "fg"
    assert fg.guest is not None
    load = fg.guest.load(outstanding=2, seconds=FOREVER_SECONDS)
    shown = terminal.shows(r"fg +vda +slow +foreground +[1-9]", r"B[FPi]*F")
    assert row(shown, "slow")[1] in ("foreground", "background")
    assert "\x1b[" in terminal.coloured() and "L lost, B background, F foreground, P preemption, i idle" in shown
    terminal.press("s", "s")
    terminal.shows("sorted by held")
    terminal.press("q")
    terminal.shows("status 0")
    load.stop()


def counted(vm: Domain) -> int:
    """Background requests that its QEMU has issued."""
    return sum(int(device["background"]["requests"]) for one in vm.qmp("query-idletime") for device in one["devices"])


def test_batch_and_json(host: Libvirtd, vms: tuple[Domain, ...]) -> None:  # noqa: F811
    """The same model: rates are QEMU's counters between two looks; a line a look."""
    def looks(count: int) -> list[Any]:
        text = virt_idletime(host, "top", "--json", "--delay", "0.5", "--count", str(count))
        return [json.loads(line) for line in text.splitlines()]

    _, bg, _ = vms
    before = counted(bg)
    first, second = looks(2)
    after = counted(bg)
    assert second["when"] > first["when"] and first["vms"] == 3
    (busy,) = [one for one in second["devices"] if one["vm"] == "bg"]
    rates = [one["requests_per_s"] * look["seconds"] for look in (first, second) for one in look["devices"] if one["vm"] == "bg"]
    assert busy["class"] == "background" and 0 < sum(rates) <= after - before
    (slow,) = second["resources"]
    assert (slow["name"], slow["background_per_s"]) == ("slow", busy["requests_per_s"])
    assert set(slow["strip"]) <= set(" LBFPi?")
    table = virt_idletime(host, "top", "--batch", "--count", "1")
    assert row(table, "bg", "vda", "slow")[3] == "background" and row(table, "slow", "background")


def test_what_else_does_io(host: Libvirtd, vms: tuple[Domain, ...]) -> None:  # noqa: F811
    """A VM that nobody marked is there as libvirt counts it; nobody has spoken to its monitor."""
    *_, other = vms
    untouched(other)

    def seen() -> bool:
        text = virt_idletime(host, "top", "--json", "--delay", "0.5", "--count", "1")
        devices = json.loads(text.splitlines()[0])["devices"]
        return any(one["vm"] == "other" and one["class"] == "stock" and (one["requests_per_s"] or 0) > 0 for one in devices)
    wait_until(seen, "the VM's requests are counted")
    untouched(other)


def test_keys_change_class_and_interval(
        host: Libvirtd, vms: tuple[Domain, ...], terminal: Terminal) -> None:  # noqa: F811
    """Asked twice: what it would come to, then it is done, and shown; another key leaves it."""
    _, bg, _ = vms
    set_policy(bg, background(), libvirt.VIR_DOMAIN_AFFECT_LIVE | libvirt.VIR_DOMAIN_AFFECT_CONFIG)  # where this runs once more
    expect(bg, vda=BG)
    terminal.shows(r"bg +vda +slow +background +[1-9]")
    terminal.press("s", "s", "s")
    terminal.shows("sorted by name")
    terminal.press("Home", "c")
    terminal.shows("class of bg: b background")
    terminal.press("g")
    terminal.shows("bg: would change background to guest, now and at each start", "y: do it")
    terminal.press("n")
    terminal.shows("q quit")
    expect(bg, vda=BG)
    terminal.press("c")
    terminal.shows("class of bg")
    terminal.press("f")
    terminal.shows("would change background to foreground", "y: do it")
    terminal.press("y")
    terminal.shows(r"bg: foreground, now and at each start \(vda on slow\); in force", r"bg +vda +slow +foreground +[1-9]")
    expect(bg, vda=FG)
    terminal.press("i")
    terminal.shows("interval of bg in us")
    terminal.press("7", "0", "0", "BSpace", "0", "0", "Enter")
    terminal.shows("bg: would change foreground to foreground", "y: do it")
    terminal.press("y")
    terminal.shows("bg: foreground, .*; in force\n")
    expect(bg, vda=("foreground", "slow", 7000))
    terminal.press("i")
    terminal.shows("interval of bg in us")
    terminal.press("a", "u", "t", "o", "Enter")
    terminal.shows("y: do it")
    terminal.press("y")
    terminal.shows("bg: foreground, .*; in force\n")
    assert bg.qmp("query-idletime")[0]["auto"] is True
    terminal.press("i")
    terminal.shows("interval of bg in us")
    terminal.press("9", "0", "0", "0", "Enter")
    terminal.shows("y: do it")
    terminal.press("y")
    terminal.shows("bg: foreground, .*; in force\n")
    assert not bg.qmp("query-idletime")[0]["auto"]
    expect(bg, vda=("foreground", "slow", 9000))
    terminal.press("i")
    terminal.shows("interval of bg in us")
    terminal.press("x", "Enter")
    terminal.shows("interval: us='x' is not a whole number", "q quit")
    terminal.press("q")
    terminal.shows("status 0")


def test_no_terminal(host: Libvirtd) -> None:  # noqa: F811
    done = host.call(*TOP, check=False)
    assert done.returncode == 2 and "this is no terminal; remedy: --batch or --json" in done.stderr

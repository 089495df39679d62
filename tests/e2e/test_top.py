"""virt-idletime top in a real terminal, on a real libvirtd with real guests: what it shows is what QEMU does, and keys change it."""

from __future__ import annotations

import json
import re
from typing import Any, Iterator

import pytest

from tests.e2e.libvirt_fixtures import (  # noqa: F401  (fixtures)
    Make, background, domain, expect, foreground, host, idletimed, module_stack, served, shared_disk, start,
)
from tests.framework.domain import Domain
from tests.framework.idletimed import PYTHON, Idletimed, virt_idletime, wait_until
from tests.framework.libvirtd import Libvirtd
from tests.framework.terminal import Terminal
from tests.testbed.disk import Disk

BG, FG = ("background", "slow", 30000), ("foreground", "slow", 30000)
TOP = [*PYTHON, "idletime", "top", "--delay", "0.2"]


@pytest.fixture
def pair(domain: Make, idletimed: Idletimed, shared_disk: Disk) -> tuple[Domain, Domain]:  # noqa: F811
    """A foreground VM that is idle, and a background VM under load."""
    fg, bg = start(domain, "fg", foreground()), start(domain, "bg", background())
    expect(bg, vda=BG)
    expect(fg, vda=FG)
    assert bg.guest is not None
    bg.guest.load(outstanding=4, seconds=600)
    served(shared_disk, "bg")
    return fg, bg


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


def test_what_it_shows(host: Libvirtd, pair: tuple[Domain, Domain], terminal: Terminal) -> None:  # noqa: F811
    """Alone, the background has the disk; beside a foreground that never pauses it is held: the strip tells both."""
    fg, _ = pair
    terminal.shows(r"bg +vda +slow +background +[1-9]", r"slow +background .* BBB")
    busiest = [line.split()[0] for line in terminal.screen().splitlines() if line.split()[1:2] == ["vda"]]
    assert busiest == ["bg", "fg"]
    assert fg.guest is not None
    fg.guest.load(outstanding=2, seconds=600)
    shown = terminal.shows(r"fg +vda +slow +foreground +[1-9]", r"slow +(foreground|background) .* B+[FPi]*F")
    assert row(shown, "slow")[1] in ("foreground", "background")
    assert "\x1b[" in terminal.coloured() and "L lost, B background, F foreground, P preemption, i idle" in shown
    terminal.press("s", "s")
    terminal.shows("sorted by held")
    terminal.press("q")
    terminal.shows("status 0")


def test_keys_change_class_and_interval(
        host: Libvirtd, pair: tuple[Domain, Domain], terminal: Terminal) -> None:  # noqa: F811
    """Asked twice: what it would come to, then it is done, and shown; another key leaves it."""
    _, bg = pair
    terminal.shows(r"bg +vda +slow +background +[1-9]")
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
    terminal.press("x", "Enter")
    terminal.shows("'x' is not a number", "other keys: leave it")
    terminal.press("n", "q")
    terminal.shows("status 0")


def test_batch_and_json(host: Libvirtd, pair: tuple[Domain, Domain]) -> None:  # noqa: F811
    """The same model: rates are QEMU's counters between two looks; a line a look."""
    def looks(count: int) -> list[Any]:
        text = virt_idletime(host, "top", "--json", "--delay", "0.5", "--count", str(count))
        return [json.loads(line) for line in text.splitlines()]

    _, bg = pair
    before = bg.scheduler()
    first, second = looks(2)
    after = bg.scheduler()
    assert second["when"] > first["when"] and first["vms"] == 2
    (busy,) = [one for one in second["devices"] if one["vm"] == "bg"]
    (counted,) = [new["background"]["requests"] - old["background"]["requests"]
                  for new, old in zip(after.values(), before.values(), strict=True)]
    rates = [one["requests_per_s"] * look["seconds"] for look in (first, second) for one in look["devices"] if one["vm"] == "bg"]
    assert busy["class"] == "background" and 0 < sum(rates) <= counted
    (slow,) = second["resources"]
    assert slow["name"] == "slow" and slow["background_per_s"] == busy["requests_per_s"] and set(slow["strip"]) <= set(" LBFPi?")
    table = virt_idletime(host, "top", "--batch", "--count", "1")
    assert row(table, "bg", "vda", "slow")[3] == "background" and row(table, "slow", "background")


def test_what_else_does_io(host: Libvirtd, domain: Make, idletimed: Idletimed) -> None:  # noqa: F811
    """A VM that nobody marked is there as libvirt counts it."""
    other = domain("other")
    other.define()
    other.start().booted()
    assert other.guest is not None
    other.guest.load(outstanding=1, seconds=600)

    def seen() -> bool:
        text = virt_idletime(host, "top", "--json", "--delay", "0.5", "--count", "1")
        devices = json.loads(text.splitlines()[0])["devices"]
        return any(one["vm"] == "other" and one["class"] == "stock" and (one["requests_per_s"] or 0) > 0 for one in devices)
    wait_until(seen, "the VM's requests are counted")
    assert other.scheduler() == {}


def test_no_terminal(host: Libvirtd) -> None:  # noqa: F811
    done = host.call(*TOP, check=False)
    assert done.returncode == 2 and "this is no terminal; remedy: --batch or --json" in done.stderr

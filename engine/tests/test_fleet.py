# SPDX-License-Identifier: GPL-2.0-or-later
"""The simulation of a day: each way on days whose outcome can be computed, and the order of the ways on a small fleet."""

from __future__ import annotations

import json

import pytest

from fleet import day, ways
from fleet.__main__ import main
from fleet.model import Fleet

SMALL = Fleet(hosts=10, servers=20)


def flat(busy: float, hosts: int = 10, minutes: int = 60) -> day.Day:
    return ((busy,) * hosts,) * minutes


def test_static():
    """Two hosts of 0.35 make one of 70 %: five are left, for 60 minutes. 1 / 0.3 instead of 1 / 0.65: x2.17."""
    played = ways.static(flat(0.35), SMALL)
    assert played.sums.work == pytest.approx(300)
    assert played.sums.cost == pytest.approx(0.65 / 0.3 - 1)


def test_cap():
    """0.2 of each disk for 60 minutes; 1 / 0.3 instead of 1 / 0.5. Where 0.1 is left, 0.1."""
    played = ways.cap(flat(0.5), SMALL)
    assert (played.sums.work, played.sums.cost) == (pytest.approx(120), pytest.approx(0.5 / 0.3 - 1))
    assert ways.cap(flat(0.9), SMALL).sums.work == pytest.approx(60)
    assert ways.cap(flat(0.5), Fleet(hosts=10, servers=4)).sums.work == pytest.approx(48)  # on four hosts


def test_oracle():
    """62 % of half of ten disks; the budget is paid in full, as all of it is used."""
    played = ways.oracle(flat(0.5), SMALL)
    assert (played.sums.work, played.sums.cost) == (pytest.approx(0.62 * 5 * 60), pytest.approx(0.03))
    few = ways.oracle(flat(0.5), Fleet(hosts=10, servers=2))
    assert few.sums.work == pytest.approx(60)  # each can use half a disk


def test_on_a_flat_day_nobody_moves():
    played = ways.evicting(flat(0.5), SMALL)
    assert (played.sums.moves, played.sums.pauses) == (0, 0)
    assert played.work == ways.idletime(flat(0.5), SMALL).work
    assert played.work[-1] == pytest.approx(0.62 * 5)


def test_who_moves_out_of_a_load_works_on():
    """Half of the hosts become busy for hours: those who stay do nothing, those who leave do."""
    half = ((0.1,) * 10,) * 30 + ((1.0,) * 5 + (0.1,) * 5,) * 180
    moved, stayed = ways.evicting(half, Fleet(hosts=10, servers=10)), ways.idletime(half, Fleet(hosts=10, servers=10))
    assert moved.sums.moves >= 5 and moved.sums.work > stayed.sums.work
    assert "of disk spare and holds" in moved.reasons[0][1]


def test_moving_when_it_pays_moves_less_and_does_no_less():
    made = day.made(20, 1)
    once, later = ways.at_once(made, Fleet(hosts=20, servers=40)), ways.lingering(made, Fleet(hosts=20, servers=40))
    assert 0 < later.sums.moves < once.sums.moves and later.sums.work > 0.99 * once.sums.work


def test_who_is_paused_while_its_host_is_short_never_moves():
    played = ways.paused(day.made(20, 1), Fleet(hosts=20, servers=40))
    assert played.sums.moves == 0 < played.sums.pauses


def test_a_made_day_is_the_same_each_time():
    assert day.made(8, 3) == day.made(8, 3) != day.made(8, 4)
    assert all(0 <= share <= 1 for minute in day.made(8, 3) for share in minute)


@pytest.mark.parametrize("text, said", [("", "no figures"), ("0.1,0.2\n0.3\n", "line 2"), ("0.1\n1.5\n", "line 2"),
                                        ("0.1\nx\n", "line 2")])
def test_a_recording_that_is_wrong(tmp_path, capsys, text, said):
    (tmp_path / "day.csv").write_text(text)
    assert main(["--output", str(tmp_path / "out"), "--trace", str(tmp_path / "day.csv")]) == 1
    error = capsys.readouterr().err
    assert said in error and "remedy: " in error


def test_the_program(tmp_path, capsys):
    """A recording of two hosts; series, table and plot."""
    pytest.importorskip("matplotlib", reason="needs matplotlib: make engine-test")
    (tmp_path / "day.csv").write_text("a,b\n" + "0.2,0.9\n" * 30)
    assert main(["--output", str(tmp_path / "out"), "--trace", str(tmp_path / "day.csv"), "--servers", "4"]) == 0
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [one["way"] for one in records] == list(ways.WAYS) and len(records[0]["work_by_minute"]) == 30
    assert (tmp_path / "out.txt").read_text() == capsys.readouterr().out and (tmp_path / "out.png").stat().st_size > 1000

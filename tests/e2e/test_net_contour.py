"""The network's contours without guests: which runs a grid has, what a run leaves, and what the picture shows of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bench.net import contour, plan
from tests.bench.net.contour import Cell
from tests.bench.resume import ResultsFile
from tests.report import netcontour, netresults, nettable

LINK = plan.DELAYED
CONDITIONS = {"program": "net.contour", "link": LINK.parameters(), "seconds": 1.5, "qemu": "QEMU of a test", "accel": "tcg", "commit": "0"}
INTENSITIES, INTERVALS_US = (10, 100), (0, 5000, 20000)


def _measured(cell: Cell) -> dict[str, Any]:
    """Made up: alone, 1 Mbit/s a percent; beside each other, each millisecond of interval brings 1 % and takes 5 %."""
    case, result = cell.case, dict.fromkeys(("uplink", *netcontour.ROLES))
    ms = case.interval_us / 1000 if case.interval_us is not None else None
    if case.foreground:
        result["foreground"] = {"mbit_s": case.intensity * (1 if ms is None else 0.8 + ms / 100)}
    if case.background:
        result["background"] = {"mbit_s": 50 * (1 if ms is None else 1 - ms / 20)}
    return result


def _ledger(folder: Path, *pairs: str, without: str = "") -> Path:
    """The results of these pairs; the run of that key is missing."""
    results = ResultsFile(folder / "contour-net-delay.jsonl")
    results.write("conditions", **CONDITIONS)
    for cell in contour.cells(contour.whole(pairs, INTENSITIES, INTERVALS_US)):
        if cell.key != without:
            results.write("run", **contour.line_of(cell, LINK, _measured(cell)))
    return results.path


def test_a_grid_has_each_pair_alone_and_held() -> None:
    """Four pairs: the background alone, then five intensities alone and with each of six intervals."""
    runs = list(contour.cells(contour.whole(list(contour.PAIRS), contour.INTENSITIES, contour.INTERVALS_US)))
    assert len(runs) == len({run.key for run in runs}) == 4 * (1 + 5 * (1 + 6))
    held = [run.case for run in runs if run.case.foreground and run.case.background]
    assert len(set(held)) == 120
    assert {case.interval_us for case in held} == set(contour.INTERVALS_US)


def test_the_quick_grid_is_part_of_the_whole_one() -> None:
    """So that a quick run can go on as a whole one."""
    whole, quick = (
        {run.key for run in contour.cells(contour.whole(list(contour.PAIRS), *axes))}
        for axes in ((contour.INTENSITIES, contour.INTERVALS_US), (contour.QUICK_INTENSITIES, contour.QUICK_INTERVALS_US))
    )
    assert quick < whole
    assert len(quick) == 4 * (1 + 3 * (1 + 3))


def test_a_run_that_is_there_is_not_run_again(tmp_path: Path) -> None:
    """Only the missing one is left to do, and its line says what it was."""
    key = "tcp-udp tcp-100-udp-5000us"
    path = _ledger(tmp_path, "tcp-udp", without=key)
    missing = ResultsFile(path).missing(list(contour.cells(contour.whole(["tcp-udp"], INTENSITIES, INTERVALS_US))))
    assert [cell.key for cell in missing] == [key]
    line = contour.line_of(missing[0], LINK, {})
    assert json.loads(json.dumps(line)) == line
    assert line["case"].items() >= {"foreground": "tcp", "background": "udp", "intensity": 100, "interval_us": 5000}.items()
    assert line["link"]["delay_us"] == 10_000


def test_shares_are_those_of_the_same_load_alone(tmp_path: Path) -> None:
    """At each intensity 80, 85 and 100 % of alone; all of 50 Mbit/s at 0 ms, 15/20 at 5 ms, nothing at 20 ms."""
    (grid,) = netcontour.grids(netresults.load(_ledger(tmp_path, "udp-tcp")))
    assert (grid.foreground, grid.background) == ("udp", "tcp")
    assert (grid.intensities, grid.intervals_us) == (list(INTENSITIES), list(INTERVALS_US))
    np.testing.assert_allclose(grid.shares["foreground"], [[80, 80], [85, 85], [100, 100]])
    np.testing.assert_allclose(grid.shares["background"], [[100, 100], [75, 75], [0, 0]])


@pytest.mark.parametrize(("without", "holes"), [("tcp-tcp tcp-10-tcp-5000us", 1), ("tcp-tcp tcp-10-none", 3)])
def test_a_run_that_is_missing_leaves_a_hole(tmp_path: Path, without: str, holes: int) -> None:
    """Of the foreground's share: one, or without its run alone the whole column."""
    (grid,) = netcontour.grids(netresults.load(_ledger(tmp_path, "tcp-tcp", without=without)))
    assert np.isnan(grid.shares["foreground"]).sum() == holes


def test_the_picture_names_pairs_axes_and_conditions(tmp_path: Path) -> None:
    """A panel a pair, with what the foreground keeps in words: 80 and 85 % are below 97, the two places of 100 % are not."""
    data = netresults.load(_ledger(tmp_path, "tcp-udp", "udp-udp"))
    figure = netcontour.picture(netcontour.grids(data), data.conditions)
    panels = [axes for axes in figure.axes if axes.get_title(loc="left")]
    assert [axes.get_title(loc="left") for axes in panels] == [
        f"Background UDP beside foreground {foreground}, which keeps\n80 to 100 % of alone, 97 % or more in 2 of 6 places"
        for foreground in ("TCP", "UDP")
    ]
    assert {axes.get_xlabel() for axes in panels} == {"foreground intensity: busy for so many % of each 100 ms"}
    assert {axes.get_ylabel() for axes in panels} == {"preemption interval, ms"}
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["0", "5", "20"]
    assert "10 ms of delay each way" in figure.texts[-1].get_text()


@pytest.mark.filterwarnings("error")
def test_the_report_draws_beside_the_data(tmp_path: Path) -> None:
    """And the table of the network's benchmark reads the same file."""
    path = _ledger(tmp_path, "tcp-tcp")
    netcontour.report(path)
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "TCP 10 % / TCP, 10 ms" in nettable.text(path)


def test_too_few_runs_draw_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One column has no area."""
    results = ResultsFile(tmp_path / "contour-net-lan.jsonl")
    results.write("conditions", **CONDITIONS)
    for cell in contour.cells(contour.whole(["tcp-tcp"], (10,), INTERVALS_US)):
        results.write("run", **contour.line_of(cell, LINK, _measured(cell)))
    netcontour.report(results.path)
    assert "too few runs" in capsys.readouterr().out
    assert not results.path.with_suffix(".png").exists()


def test_places_that_chance_moved_are_run_again(tmp_path: Path) -> None:
    """A hole in a column, and where the foreground keeps less than is asked; the medians take their place in the picture."""
    path = _ledger(tmp_path, "udp-udp", "tcp-tcp")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line.get("key", "").startswith("udp-udp udp-") and "us" in line["key"]:
            line["foreground"]["mbit_s"] = line["case"]["intensity"]
            if line["case"]["interval_us"] == 20000 and line["case"]["intensity"] == 100:
                line["foreground"]["mbit_s"], line["background"]["mbit_s"] = 90.0, 40.0
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    columns = netcontour.misfits(netresults.load(path))
    # The foreground's 100, 100, 90 fit as 100, 95, 95; the background's 50, 37.5, 40 as 50, 38.75, 38.75, which is within 5 % of 50 Mbit/s.
    assert columns == {"udp-udp": {100: [20000]}, "tcp-tcp": dict.fromkeys(INTENSITIES, [0, 5000])}

    again = ResultsFile(tmp_path / "contour-net-delay-again.jsonl")
    again.write("conditions", **CONDITIONS | {"seconds": 10.0})
    for repeat, share in enumerate((0.99, 0.2, 1.0)):
        for cell in contour.cells({"udp-udp": {100: [20000]}}, repeat):
            result = _measured(cell)
            if cell.case.foreground and cell.case.background:
                result["foreground"]["mbit_s"] = 100 * share
            again.write("run", **contour.line_of(cell, LINK, result))
    data, found = netresults.load(path), netcontour.repeated(path)
    grid, other = netcontour.grids(data, found)
    assert (grid.medians, other.medians) == ([(1, 2)], [])
    assert grid.shares["foreground"][2, 1] == pytest.approx(99)
    assert grid.shares["background"][2, 1] == 0
    assert "dots: medians of 3 runs of 10 s" in netcontour.picture([grid, other], data.conditions, found).texts[-1].get_text()

"""Table and plot of tests.bench.web: python3 -m tests.report.web build/bench/web/web.jsonl"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterable

import numpy as np

from tests.report import grid, kept

ALONE, FASTEST, MIGRATION = "alone", "fastest", "migration"
KINDS = ("light", "heavy")
COLOURS = {"alone": "#000", "none": "#999", "pool": "#a5d", "priority": "#d50", "cap": "#E69F00", "20 ms": "#2a7", "auto 3 %": "#06c"}
COLUMNS = 110
NOTE = ("response times of the foreground, as multiples of the fastest of a page of that size on that link: quartiles and p99; "
        "background: MB/s that its clients got; migration: kept is what the foreground's clients got meanwhile, of what they got before")

Runs = dict[tuple[int, str, str], dict[str, Any]]


def _runs(path: Path) -> tuple[Runs, dict[str, Any]]:
    lines, about = kept.lines(path)
    return {(line["cell"]["rate"], line["cell"]["kind"], line["cell"]["way"]): line for line in lines}, about


def fastest(runs: Iterable[dict[str, Any]]) -> dict[int, float]:
    """Seconds of the fastest answer alone, by a page's size."""
    found: dict[int, float] = {}
    for run in runs:
        if run["cell"]["kind"] != MIGRATION and run["cell"]["way"] == ALONE:
            for size, took in run["foreground"]:
                found[size] = min(found.get(size, took), took)
    return found


def _fastest(runs: Runs, rate: int) -> dict[int, float]:
    return fastest(run for (its_rate, _, _), run in runs.items() if its_rate == rate)


def multiples(run: dict[str, Any], shortest: dict[int, float]) -> np.ndarray:
    """None of them below 1, but for a page that alone never came as fast."""
    return np.array([took / shortest[size] for size, took in run["foreground"] if size in shortest])


def _rate(run: dict[str, Any], begin: float, end: float) -> float:
    """Of what the foreground's clients got in that time, MB/s."""
    return sum(size for at, size, took in run["foreground"] if begin <= at + took < end) / 1e6 / (end - begin)


def text(runs: Runs, about: dict[str, Any]) -> str:
    """The table."""
    rows = grid.table(("uplink, clients, control", "requests", "failed", "25 %", "median", "75 %", "p99", "background MB/s"))
    for (rate, kind, way), run in runs.items():
        if kind in KINDS:
            some = multiples(run, _fastest(runs, rate))
            points = [f"{one:.2f}" for one in np.percentile(some, (25, 50, 75, 99))]
            other = run["background_mb_s"]
            rows.add_row(f"{rate} Mbit/s, {kind}, {way}", str(len(some)), str(run["failed"]), *points, "" if other is None else f"{other:.2f}")
    moves = grid.table(("beside a migration", "kept %", "p50 ms", "p99 ms", "before, p99 ms", "migration, s", "status"))
    for (_, kind, way), run in runs.items():
        if kind == MIGRATION:
            before = [at for at, _, _ in run["foreground"]][0]
            own = [1000 * took for at, _, took in run["foreground"] if run["begin"] <= at < run["end"]]
            ahead = [1000 * took for at, _, took in run["foreground"] if at < run["begin"]]
            share = 100 * _rate(run, run["begin"], run["end"]) / _rate(run, before, run["begin"])
            moves.add_row(way, f"{share:.1f}", *(f"{one:.0f}" for one in np.percentile(own, (50, 99))), f"{np.percentile(ahead, 99):.0f}",
                          f"{run['end'] - run['begin']:.1f}", run["status"])
    return grid.text(rows, [], COLUMNS) + grid.text(moves, [NOTE, _conditions(about)], COLUMNS)


def _conditions(about: dict[str, Any]) -> str:
    return f"nginx in VMs, HTTP/1.0, pages of 0.5 to 500 KB. Single runs of {about['seconds']:g} s. {kept.built(about)}"


def draw(runs: Runs, about: dict[str, Any], target: Path) -> None:
    """A panel for each uplink and number of clients."""
    pages = sorted({(rate, kind) for rate, kind, _ in runs if kind in KINDS}, key=lambda one: (one[0], one[1] == "heavy"))
    figure, axes = kept.panels(len(pages))
    for axis, (rate, kind) in zip(axes, pages):
        shortest = _fastest(runs, rate)
        ways = [way for its_rate, its_kind, way in runs if (its_rate, its_kind) == (rate, kind)]
        for at, way in enumerate(ways):
            low, middle, high = np.percentile(multiples(runs[rate, kind, way], shortest), (25, 50, 75))
            axis.errorbar(at, middle, [[middle - low], [high - middle]], fmt="o", color=COLOURS[way], capsize=3)
        axis.set_yscale("log")
        axis.set_xticks(range(len(ways)), ways, rotation=60)
        kept.label(axis, f"{rate} Mbit/s, {kind}", "")
    axes[0].set_ylabel("response time, multiples of the fastest", fontsize=8)
    kept.save(figure, "Held, the background leaves a web server its response times", _conditions(about), target)


def draw_migrations(runs: Runs, about: dict[str, Any], target: Path) -> None:
    """Who sends how much, over time; a panel for each migration."""
    moves = {way: run for (_, kind, way), run in runs.items() if kind == MIGRATION}
    figure, axes = kept.panels(len(moves))
    for axis, (way, run) in zip(axes, moves.items()):
        _traffic(axis, run)
        kept.label(axis, f"migration, {way}", "seconds")
    axes[0].set_ylabel("Mbit/s", fontsize=8)
    axes[-1].legend(fontsize=7, frameon=False)
    kept.save(figure, "What a migration beside a web server sends", _conditions(about), target)


def _traffic(axis: Any, run: dict[str, Any]) -> None:
    """Mbit/s of the foreground's VM, and of all else on the uplink."""
    times, own, whole = (np.array(column, float) for column in zip(*run["looks"]))
    seconds = np.diff(times)
    mine, all_ = (np.diff(one) * 8 / 1e6 / seconds for one in (own, whole))
    axis.plot(times[1:] - times[0], all_ - mine, color="#E69F00", linewidth=1.2, label="migration")
    axis.plot(times[1:] - times[0], mine, color="#06c", linewidth=1.2, label="web server")


def report(path: Path) -> None:
    """Table on the terminal and beside the results, and the plot."""
    runs, about = _runs(path)
    kept.publish(path, text(runs, about))
    draw(runs, about, path.with_suffix(".png"))
    if any(kind == MIGRATION for _, kind, _ in runs):
        draw_migrations(runs, about, path.with_name(f"{path.stem}-migration.png"))


if __name__ == "__main__":
    kept.command("web", "Web servers in two VMs on one uplink.", report)

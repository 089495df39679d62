"""Table and plot of tests.bench.police: python3 -m tests.report.police build/bench/police/police.jsonl"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.report import grid, kept

ALONE = "alone"
MARKERS = {"no control": ("#999", "x"), "EII": ("#E69F00", "s"), "IPD": ("#d50", "^"), "rate windows": ("#a5d", "v"),
           "fixed interval": ("#2a7", "o"), "interval, auto 3 %": ("#06c", "D")}
COLUMNS = 110
NOTE = "slower: what the foreground lost of its rate alone, percent; p99 as a multiple of alone; background: {unit}"


@dataclass(frozen=True)
class Point:
    """One run."""

    lost: float
    p99: float | None
    background: float


def points(path: Path) -> tuple[dict[str, dict[int, Point]], dict[str, Any]]:
    """By way and the foreground's intensity, each beside the last run alone before it, and the conditions of the last runs."""
    lines, about = kept.lines(path)
    found: dict[str, dict[int, Point]] = {}
    alone_at: dict[int, dict[str, Any]] = {}
    for run in lines:
        way, intensity = run["cell"]["way"], run["cell"]["foreground"]
        if way == ALONE:
            alone_at[intensity] = run
        else:
            alone = alone_at[intensity]
            p99, own = (each["foreground"].get("p99_us") for each in (run, alone))
            found.setdefault(way, {})[intensity] = Point(
                100 - 100 * run["foreground_rate"] / alone["foreground_rate"], p99 / own if p99 and own else None, run["background"])
    return found, about


def text(found: dict[str, dict[int, Point]], about: dict[str, Any]) -> str:
    """The table."""
    rows = grid.table(("background", "foreground busy", "slower %", "p99", "background"))
    for way, row in found.items():
        for intensity, one in sorted(row.items()):
            rows.add_row(way, f"{intensity} %", f"{one.lost:.1f}", f"x{one.p99:.1f}" if one.p99 else "", f"{one.background:.1f}")
    return grid.text(rows, [NOTE.format(unit=_unit(about)), _conditions(about)], COLUMNS)


def _unit(about: dict[str, Any]) -> str:
    return "requests a second" if "disk" in about else "Mbit/s" if "link" in about else "processors"


def _conditions(about: dict[str, Any]) -> str:
    of = (f"Disk: {about['disk'].get('service_us')} us a request; interval 20 ms, one request outstanding" if "disk" in about else
          f"Uplink: {about['link']['rate_mbit']} Mbit/s, TCP; interval 5 ms" if "link" in about else
          f"{about['processors']} processors of the host, two background VMs")
    return (f"{of}; foreground busy for so many percent of each 100 ms; background without a pause. "
            f"Runs of {about['seconds']:g} s. {kept.built(about)}")


def draw(found: dict[str, dict[int, Point]], about: dict[str, Any], target: Path) -> None:
    """A panel an intensity: to the right the foreground loses more, up the background does more."""
    intensities = sorted(next(iter(found.values())))
    figure, axes = kept.panels(len(intensities))
    for axis, intensity in zip(axes, intensities):
        for way, row in found.items():
            colour, marker = MARKERS[way]
            axis.plot(row[intensity].lost, row[intensity].background, marker, color=colour, markersize=8, label=way)
        axis.axvline(0, color="#ddd", linewidth=1, zorder=0)
        kept.label(axis, f"foreground busy for {intensity} %", "foreground loses, % of its rate alone")
    axes[0].set_ylabel(f"background, {_unit(about)}", fontsize=8)
    axes[-1].legend(fontsize=7, frameon=False)
    kept.save(figure, "Up and to the left is better: a whole VM that is stopped or limited, and requests that are held", _conditions(about), target)


def report(path: Path) -> None:
    """Table on the terminal and beside the results, and the plot."""
    found, about = points(path)
    kept.publish(path, text(found, about))
    draw(found, about, path.with_suffix(".png"))


def over_time(path: Path) -> None:
    """The plot of what both did each second, a panel a way."""
    runs, about = kept.lines(path)
    figure, axes = kept.panels(len(runs))
    for axis, run in zip(axes, runs):
        for name, title, colour in (("fg", "foreground", "#06c"), ("bg", "background", "#E69F00")):
            axis.step(range(len(run[name])), run[name], color=colour, linewidth=1.2, label=title)
        kept.label(axis, run["cell"]["way"], "seconds")
    axes[0].set_ylabel("requests/s", fontsize=8)
    axes[-1].legend(fontsize=7, frameon=False)
    conditions = (f"Disk: {about['disk'].get('service_us')} us a request; both read one request after the other, the foreground in "
                  f"the middle third. {kept.built(about)}")
    kept.save(figure, "The foreground comes for 20 s, and what the background does meanwhile", conditions, path.with_suffix(".png"))


if __name__ == "__main__":
    kept.command("police", "A background VM that is stopped, or held.", report)

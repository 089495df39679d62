"""Table and plot of tests.bench.memory: python3 -m tests.report.memory build/bench/memory/memory.jsonl"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from tests.report import grid, kept

ALONE, PLATEAUS = "alone", "Figure 5"
MIB = 1 << 20
PANELS = (("background first", "nice"), ("background first", "give-back"), (PLATEAUS, "nice"), (PLATEAUS, "Low and High"))
COLOURS = {"foreground": "#06c", "background": "#E69F00"}
COLUMNS = 110
NOTE = ("seconds to the end of the foreground's job, its waiting for memory before it starts included; slower: than alone; > : it was "
        "stopped there, and slower is by how far it was; background: the part of its job that was done when the foreground's had ended")


def _seconds(run: dict[str, Any], touches: int) -> tuple[float, bool]:
    """How long the foreground's job takes, at its rate where it was stopped; whether it was done."""
    job = run["jobs"]["foreground"]
    done = job["touches"] >= touches
    return run["jobs"]["waited_seconds"] + job["seconds"] * touches / max(job["touches"], 1), done


def text(runs: list[dict[str, Any]], about: dict[str, Any]) -> str:
    """The table: medians."""
    touches = about["touches"]
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in runs:
        if run["cell"]["order"] != PLATEAUS:
            found.setdefault((run["cell"]["order"], run["cell"]["way"]), []).append(run)
    alone = median(_seconds(run, touches)[0] for run in found["alone", ALONE])
    rows = grid.table(("order and control", "foreground, s", "slower %", "waited, s", "background done %"))
    for (order, way), some in found.items():
        seconds = median(_seconds(run, touches)[0] for run in some)
        done = all(_seconds(run, touches)[1] for run in some)
        other = [run["jobs"]["background"] for run in some if "background" in run["jobs"]]
        rows.add_row(
            order if way == ALONE else f"{order}, {way}", f"{seconds:.1f}" if done else f"> {about['limit_seconds']:.0f}",
            "" if way == ALONE else f"{100 * seconds / alone - 100:.1f}" if done else f"{100 * seconds / alone - 100:.0f}",
            f"{median(run['jobs']['waited_seconds'] for run in some):.1f}" if way == "give-back" else "",
            f"{100 * median(job['touches'] for job in other) / touches:.0f}" if other else "")
    return grid.text(rows, [NOTE, _conditions(about)], COLUMNS)


def _conditions(about: dict[str, Any]) -> str:
    return (f"A guest with {about['memory_mib']} MiB for both; swap on a disk of {about['disk'].get('service_us')} us a request; "
            f"one processor. {kept.built(about)}")


def draw(runs: list[dict[str, Any]], about: dict[str, Any], target: Path) -> None:
    """What both jobs have of memory, over time."""
    chosen = {(run["cell"]["order"], run["cell"]["way"]): run for run in runs}
    figure, axes = kept.panels(len(PANELS))
    for axis, (order, way) in zip(axes, PANELS):
        run = chosen[order, way]
        times, *both = zip(*run["series"])
        for role, series in zip(COLOURS, both):
            axis.plot(times, [one / MIB for one in series], color=COLOURS[role], linewidth=1.5, label=role)
        if way != "nice":
            for name, bound in zip(("Low", "High"), run["bounds"]):
                axis.axhline(bound / MIB, color="#999", linewidth=0.8, linestyle="--", zorder=0)
                axis.text(times[-1], bound / MIB, name, fontsize=6, color="#555", va="bottom", ha="right")
        kept.label(axis, f"{order}, {way}", "seconds")
    axes[0].set_ylabel("resident, MiB", fontsize=8)
    axes[0].legend(fontsize=7, frameon=False)
    kept.save(figure, "The background gives what the foreground needs, and is left its Low", _conditions(about), target)


def report(path: Path) -> None:
    """Table on the terminal and beside the results, and the plot."""
    runs, about = kept.lines(path)
    kept.publish(path, text(runs, about))
    draw(runs, about, path.with_suffix(".png"))


if __name__ == "__main__":
    kept.command("memory", "Two jobs, and memory for one and a half.", report)

"""Table and plot of tests.bench.deadlines: python3 -m tests.report.deadlines build/bench/deadlines/deadlines.jsonl"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend has to be chosen first)

from tests.report import grid, kept  # noqa: E402

COLUMNS = 110
BACKGROUND, URGENT = "#06c", "#d50"
NOTE = ("done after: of the time that the job has; urgent: for how long it ran as in stock QEMU; kept: by the foreground while the job was "
        "background, and while it was urgent, of its rate alone; empty where that was less than two seconds")


@dataclass(frozen=True)
class Run:
    """One job. seconds: of each phase, with whether it was urgent. kept: percent, as background and urgent; None: not long enough."""

    deadline: float
    took: float
    phases: tuple[tuple[bool, float], ...]
    kept_background: float | None
    kept_urgent: float | None

    @property
    def urgent_seconds(self) -> float:
        return sum(seconds for urgent, seconds in self.phases if urgent)


def _kept(phases: list[dict[str, Any]], urgent: bool, alone: float) -> float | None:
    seconds = sum(phase["seconds"] for phase in phases if phase["urgent"] == urgent)
    return 100 * sum(phase["foreground"] for phase in phases if phase["urgent"] == urgent) / seconds / alone if seconds >= 2 else None


def runs(path: Path) -> tuple[list[Run], float, dict[str, Any]]:
    """The jobs by their deadline, how long one takes at full speed, and the conditions of the last runs."""
    lines, about = kept.lines(path)
    of = {line["cell"]["way"]: line for line in lines}
    (phase,) = of["alone"]["phases"]
    alone = phase["foreground"] / phase["seconds"]
    found = [Run(float(way), line["seconds"], tuple((one["urgent"], one["seconds"]) for one in line["phases"]),
                 _kept(line["phases"], False, alone), _kept(line["phases"], True, alone))
             for way, line in of.items() if way.isdecimal()]
    return sorted(found, key=lambda run: run.deadline), of["full speed"]["seconds"], about


def text(found: list[Run], full: float, about: dict[str, Any]) -> str:
    """The table."""
    rows = grid.table(("it has", "done after", "in time", "urgent", "kept %", "kept % urgent"))
    for run in found:
        verdict = "yes" if run.took <= run.deadline else "no, and could" if run.deadline >= full else "impossible"
        rows.add_row(f"{run.deadline:.0f} s", f"{run.took:.1f} s", verdict, f"{run.urgent_seconds:.1f} s",
                     *("" if value is None else f"{value:.1f}" for value in (run.kept_background, run.kept_urgent)))
    return grid.text(rows, [NOTE, f"At full speed, beside the foreground, it takes {full:.1f} s.", _conditions(about)], COLUMNS)


def _conditions(about: dict[str, Any]) -> str:
    return (f"Backup of 1 GiB; disk: {about['disk'].get('service_us')} us a request and {about['disk'].get('rate')}iB/s; foreground: bursts of "
            f"30 ms every 100 ms. {kept.built(about)}")


def draw(found: list[Run], full: float, about: dict[str, Any], target: Path) -> None:
    """A bar a job, in its colours while it was background and urgent, and a mark where its deadline is."""
    figure, axis = pyplot.subplots(figsize=(8, 4.4))
    for row, run in enumerate(found):
        left = 0.0
        for urgent, seconds in run.phases:
            axis.barh(row, seconds, left=left, color=URGENT if urgent else BACKGROUND, height=0.7)
            left += seconds
        axis.plot([run.deadline], [row], "k|", markersize=11)
    axis.axvline(full, color="#999", linewidth=1, linestyle=":")
    for colour, label in ((BACKGROUND, "background"), (URGENT, "as in stock QEMU")):
        axis.barh([0], [0], color=colour, label=label)
    axis.plot([], [], "k|", markersize=11, label="its deadline")
    axis.plot([], [], ":", color="#999", label="at full speed from its start")
    axis.legend(fontsize=8, frameon=False, loc="lower right")
    axis.set_yticks([])
    kept.label(axis, "", "seconds since the job began")
    kept.save(figure, "Each job that can be done in time is done in time; where idle time is enough it never takes any other",
              _conditions(about), target)


def report(path: Path) -> None:
    """Table on the terminal and beside the results, and the plot."""
    found, full, about = runs(path)
    kept.publish(path, text(found, full, about))
    draw(found, full, about, path.with_suffix(".png"))


if __name__ == "__main__":
    kept.command("deadlines", "Backups that have a deadline.", report)

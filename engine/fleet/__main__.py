# SPDX-License-Identifier: GPL-2.0-or-later
"""Plays a day each way; writes OUTPUT.jsonl (parameters, sums, series of each way), OUTPUT.txt (table), OUTPUT.png (plot).

    PYTHONPATH=libvirt:engine python3 -m fleet --output docs/results/fleet
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, pstdev

from . import day as days
from .model import Fleet
from .ways import WAYS, Played

_WORDS = {"static": "static partitioning", "cap": "cap-only (20 % of each disk)", "idletime": "Idletime, placed once",
          "paused": "Idletime, paused while short", "at once": "Idletime, evicted at once",
          "evicting": "Idletime with eviction", "lingering": "Idletime, moved when it pays",
          "oracle": "Idletime with an oracle"}
_DRAWN = ("static", "cap", "idletime", "lingering", "oracle")
"""The other ways to move and pause lie on the line of lingering, but for the moves."""
DAYS = 3


def play(fleet: Fleet, seeds: tuple[int, ...], trace: Path | None) -> list[dict[str, object]]:
    """A record for each way and day."""
    found: list[dict[str, object]] = []
    for seed in seeds if trace is None else (0,):
        day = days.made(fleet.hosts, seed) if trace is None else days.recorded(trace)
        of = Fleet(**{**asdict(fleet), "hosts": len(day[0])})
        for name, way in WAYS.items():
            found.append(record(name, seed, of, way(day, of), fmean(map(fmean, day))))
    return found


def record(name: str, seed: int, fleet: Fleet, played: Played, busy: float) -> dict[str, object]:
    sums = played.sums
    return {"way": name, "seed": seed, "fleet": asdict(fleet), "foreground_busy": round(busy, 4), "work": round(sums.work, 1),
            "cost": round(sums.cost, 5), "slow_minutes": sums.slow, "moves": sums.moves, "pauses": sums.pauses,
            "work_by_minute": [round(one, 2) for one in played.work],
            "reasons": [f"{at // 60:02}:{at % 60:02} {why}" for at, why in played.reasons[:10]]}


def table(found: list[dict[str, object]]) -> str:
    """Means over the days, with the standard deviation of the work; of the oracle's work."""
    lines = ["way                            work (disk-hours)  of oracle  foreground slower by  host-min > x2  moves  pauses"]
    best = fmean(_of(found, "oracle", "work"))
    for name, words in _WORDS.items():
        work = _of(found, name, "work")
        lines.append(f"{words:<30} {fmean(work) / 60:10.0f} +- {pstdev(work) / 60:<4.0f} {fmean(work) / best:10.0%}"
                     f" {fmean(_of(found, name, 'cost')):20.1%} {fmean(_of(found, name, 'slow_minutes')):14.0f}"
                     f" {fmean(_of(found, name, 'moves')):6.0f} {fmean(_of(found, name, 'pauses')):7.0f}")
    return "\n".join(lines) + "\n"


def _of(found: list[dict[str, object]], name: str, member: str) -> list[float]:
    return [float(str(one[member])) for one in found if one["way"] == name]


def plot(found: list[dict[str, object]], file: Path) -> None:
    """Work of each minute, first day, and work over cost."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4), width_ratios=(3, 2))
    for name in _DRAWN:
        words = _WORDS[name]
        one = next(each for each in found if each["way"] == name)
        series = one["work_by_minute"]
        assert isinstance(series, list)
        left.plot([minute / 60 for minute in range(len(series))], series, label=words)
        right.plot(100 * fmean(_of(found, name, "cost")), fmean(_of(found, name, "work")) / 60, "o", label=words)
    left.set(xlabel="hour of the day", ylabel="background work (disks)", ylim=(0, None))
    right.set(xlabel="foreground requests take longer by, %", ylabel="background work (disk-hours a day)", ylim=(0, None))
    right.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(file, dpi=100, metadata={"Software": None})


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m fleet", description="A day of a fleet, shared in eight ways.")
    parser.add_argument("--output", type=Path, required=True, help="path of the results, without a suffix")
    parser.add_argument("--trace", type=Path, help="a recorded day: CSV, a line a minute, a column a host, shares 0 to 1")
    parser.add_argument("--servers", type=int, default=Fleet.servers, help="background servers (%(default)s)")
    parser.add_argument("--hosts", type=int, default=Fleet.hosts, help="hosts of a made day (%(default)s)")
    parser.add_argument("--days", type=int, default=DAYS, help="made days (%(default)s)")
    options = parser.parse_args(arguments)
    try:
        found = play(Fleet(hosts=options.hosts, servers=options.servers), tuple(range(1, options.days + 1)), options.trace)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    text = table(found)
    print(text, end="")
    options.output.with_suffix(".jsonl").write_text("".join(json.dumps(one) + "\n" for one in found))
    options.output.with_suffix(".txt").write_text(text)
    plot(found, options.output.with_suffix(".png"))
    return 0


if __name__ == "__main__":
    sys.exit(main())

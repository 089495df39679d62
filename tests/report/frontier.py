"""The evaluation's results, reduced, as table and plot: python3 -m tests.report.frontier build/bench/eval/results.jsonl

Each point: how long the foreground waited for the background at the disk, of
its mean latency alone; and what the background reaches of what a clairvoyant
scheduler could give it. Both are relative to runs alone on the same way to the
disk. What the disk's log says is exact. How much slower the foreground found
its requests is in the table, too, and in a plot of its own: it differs by some
percent from run to run, and a host that is kept awake by a background answers
sooner than an idle one.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.bench.eval import clairvoyant, workloads
from tests.report import multiples
from tests.testbed.requests import met_by_chance_ns

# Okabe and Ito: told apart with any colour vision; ours stand out.
STYLES = {
    "auto": ("#0072B2", "o-"), "fixed interval": ("#56B4E9", "s-"), "uncontrolled": ("#D55E00", "X"),
    "QEMU throttle": ("#555555", "v--"), "mq-deadline": ("#009E73", "D"), "bfq": ("#CC79A7", "P--"), "kyber": ("#E69F00", "^"),
    "io.cost": ("#000000", "*"), "variant 2": ("#F0E442", "<"), "variant 3": ("#009E73", ">"), "variant 4": ("#CC79A7", "^"), "AIMD": ("#D55E00", "p"),
}


BY_CHANCE = ("#999999", "-", "starts at random moments of idle time")

MANY = 10_000
"""Of fewer requests p99.9 is chance."""

X_LABEL = "foreground waits for background at the disk,\n% of its mean latency alone"
SEEN_LABEL = "foreground finds its requests slower,\n% of their mean latency alone"


@dataclass(frozen=True)
class Point:
    """Medians over the repeats."""

    workload: str
    title: str
    contender: str
    family: str
    repeats: int
    slowdown_percent: float
    """What the foreground waited for the background at the disk, of its mean latency alone."""
    seen_percent: float
    """How much longer its mean latency was than alone, as it saw it."""
    p99_ratio: float
    p999_ratio: float
    disk_p999_ratio: float
    """The same at the disk, without all that is the guests' and the host's. Both nan for less than MANY requests."""
    kept_percent: float
    """Of the foreground's operations."""
    background_per_second: float
    share_percent: float
    """Background, of a clairvoyant scheduler's."""
    chance_percent: float
    """What the foreground waited for each of the background's requests, of what it waits for one that begins at a random moment of idle time."""


@dataclass(frozen=True)
class Mark:
    """Of a line in the plot."""

    slowdown_percent: float
    share_percent: float


def _samples(run: dict[str, Any], folder: Path) -> list[list[np.ndarray]]:
    """Raw latencies: by part, then by VM."""
    parts: dict[int, list[np.ndarray]] = defaultdict(list)
    for report in run["foreground"]:
        parts[report["part"]].append(np.load(folder / report["latencies"]))
    return [parts[number] for number in sorted(parts)]


def _at_disk(folder: Path, stem: str) -> np.ndarray:
    """Times of the foreground's requests there."""
    return np.load(folder / "latencies" / f"{stem}-disk.npy")


def _ratio(ours: np.ndarray, alone: np.ndarray, percentile: float) -> float:
    return float(np.percentile(ours, percentile) / np.percentile(alone, percentile))


def _latencies(parts: list[list[np.ndarray]]) -> np.ndarray:
    every = [vm["latency_us"] for part in parts for vm in part]
    return np.concatenate(every) if every else np.empty(0)


def _clairvoyant(run: dict[str, Any], parts: list[list[np.ndarray]], service_seconds: float) -> float:
    """Operations a second, from a run of the foreground alone; parts are of equal length."""
    seconds = run["seconds"] / len(parts)
    return float(np.mean([clairvoyant.operations_per_second(part, seconds, service_seconds) for part in parts]))


@dataclass(frozen=True)
class Base:
    """A foreground alone, all repeats together."""

    latencies: np.ndarray
    took_ns: np.ndarray
    """At the disk."""
    runs: int
    seconds: float
    clairvoyant: float
    """Background operations a second that a clairvoyant scheduler could give."""
    chance_us: float
    """What the foreground waits for a background request that begins at a random moment of idle time; nan where more than one is served at a time."""

    def by_chance(self) -> list[Mark]:
        """What starts at random moments of idle time pay for what they bring."""
        spent_us = len(self.latencies) / (self.runs * self.seconds) * self.latencies.mean()
        shares = range(0, 131, 2)
        return [Mark(share * self.clairvoyant * self.chance_us / spent_us, share) for share in shares]


def _figures(latencies: np.ndarray, at_disk: np.ndarray, measured: dict[str, Any], base: Base) -> tuple[float, ...]:
    """As in Point, from the waiting on."""
    alone = base.latencies
    many = min(len(alone), len(latencies)) >= MANY
    tails = (
        _ratio(latencies, alone, 99.9), _ratio(at_disk["finish_ns"] - at_disk["arrival_ns"], base.took_ns, 99.9),
    ) if many else (float("nan"), float("nan"))
    rate = len(alone) / (base.runs * base.seconds)
    background = measured["background"]["operations_per_second"]
    return (
        100 * measured["at_disk"]["waited_us"] / (len(latencies) * alone.mean()),
        100 * (latencies.mean() / alone.mean() - 1), _ratio(latencies, alone, 99), *tails,
        100 * len(latencies) / (measured["seconds"] * rate), background,
        100 * background / base.clairvoyant if base.clairvoyant else float("nan"),
        100 * measured["at_disk"]["waited_us"] / (background * measured["seconds"] * base.chance_us) if background else float("nan"),
    )


def _point(about: dict[str, Any], figures: list[tuple[float, ...]]) -> Point:
    medians = [float(median(column)) for column in zip(*figures)]
    workload, contender = about["workload"], about["contender"]
    return Point(workload["name"], workload["title"], contender["name"], contender["family"], len(figures), *medians)


class Results:
    """One results file; later lines of the same key replace earlier ones."""

    def __init__(self, path: Path) -> None:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        self.folder = path.parent
        self.conditions: dict[str, Any] = next((line for line in lines if line["kind"] == "conditions"), {})
        self.runs = {line["key"]: line for line in lines if line["kind"] == "run"}
        self.skipped = {
            line["contender"]["name"]: line["reason"] for line in lines if line["kind"] == "skipped" and line["contender"]
        }

        self.disk = self.conditions.get("disk", {})
        self._bases: dict[tuple[str, str], Base | None] = {}

    def _service_seconds(self, path: str) -> float:
        rates = [r["background"]["operations_per_second"] for r in self.runs.values() if r["path"] == path and not r["workload"]]
        return 1 / median(rates)

    def _alone(self, path: str, workload: str) -> list[dict[str, Any]]:
        return [
            run for run in self.runs.values()
            if run["path"] == path and run["contender"] is None and run["workload"] and run["workload"]["name"] == workload
        ]

    def _base(self, path: str, workload: str) -> Base | None:
        """None: the foreground has not run alone."""
        if (path, workload) not in self._bases:
            self._bases[path, workload] = self._read_base(path, workload)
        return self._bases[path, workload]

    def _read_base(self, path: str, workload: str) -> Base | None:
        runs = self._alone(path, workload)
        if not runs:
            return None
        parts = [_samples(run, self.folder) for run in runs]
        times = [_at_disk(self.folder, run["key"]) for run in runs]
        return Base(
            np.concatenate([_latencies(each) for each in parts]), np.concatenate([each["finish_ns"] - each["arrival_ns"] for each in times]),
            len(runs), runs[0]["seconds"],
            median(self._left(*about) for about in zip(runs, parts, times)),
            median(self._chance_us(each) for each in times),
        )

    def _chance_us(self, times: np.ndarray) -> float:
        one = self.disk.get("channels", 1) == 1 and self.disk.get("model") == "fixed"
        return met_by_chance_ns(times, self.disk["service_us"] * 1000) / 1000 if one else float("nan")

    def _left(self, run: dict[str, Any], parts: list[list[np.ndarray]], times: np.ndarray) -> float:
        """What the foreground leaves to a clairvoyant scheduler, requests a second; of many channels by the disk's log."""
        channels = self.disk.get("channels", 1)
        if channels == 1:
            return _clairvoyant(run, parts, self._service_seconds(run["path"]))
        begin, end = ((times[name] - times["arrival_ns"][0]) / 1e9 for name in ("start_ns", "finish_ns"))
        return clairvoyant.packed(zip(begin, end), run["seconds"], self.disk["service_us"] / 1e6, channels)

    def _points(self, chosen: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[Point]:
        """Of pairs (run, what was measured in it): medians by workload, in the evaluation's order, and contender."""
        groups: dict[tuple[str, str, str], list[tuple[dict[str, Any], dict[str, Any]]]] = defaultdict(list)
        for run, measured in chosen:
            groups[run["path"], run["workload"]["name"], run["contender"]["name"]].append((run, measured))
        order = list(workloads.BY_NAME)
        points = [
            _point(members[0][0], [self._measured(*member, base) for member in members])
            for key, members in groups.items() if (base := self._base(*key[:2]))
        ]
        return sorted(points, key=lambda each: order.index(each.workload))

    def _measured(self, run: dict[str, Any], measured: dict[str, Any], base: Base) -> tuple[float, ...]:
        stem = run["key"] if measured is run else f"{run['key']}-learning"
        return _figures(_latencies(_samples(measured, self.folder)), _at_disk(self.folder, stem), measured, base)

    def by_chance(self, title: str) -> list[Mark]:
        """The line of starts at random moments, beside the workload of this title on the first way to the disk; empty where it is not known."""
        run = next(run for run in self._contended if run["workload"]["title"] == title)
        base = self._base(run["path"], run["workload"]["name"])
        return base.by_chance() if base and not np.isnan(base.chance_us) else []

    @cached_property
    def _contended(self) -> list[dict[str, Any]]:
        return [run for run in self.runs.values() if run["workload"] and run["contender"]]

    @cached_property
    def points(self) -> list[Point]:
        """All of them."""
        return self._points([(run, run) for run in self._contended])

    @cached_property
    def learner_percent(self) -> dict[str, list[float]]:
        """Time that the background's QEMU spent on learning, of one core: by workload, a figure for each run of one that learns."""
        percent, spent_us = defaultdict(list), defaultdict(int)
        for run in self._contended:
            resource = (run.get("query_idletime") or [{}])[0]
            total_us = resource.get("learned", {}).get("learner-us")
            if total_us is None or not run["contender"]["budget_percent"]:
                continue
            # The figure only grows, as long as the process lives; its arena has a name of its own.
            microseconds = total_us - spent_us[resource["path"]]
            spent_us[resource["path"]] = total_us
            percent[run["workload"]["title"]].append(microseconds / 1e4 / (run["seconds"] + run["learning"]["seconds"]))
        return dict(percent)

    @cached_property
    def learning(self) -> list[Point]:
        """What those that learn cost and brought while they did."""
        return self._points([(run, run["learning"]) for run in self._contended if run.get("learning")])


OURS = "auto"


def as_seen(points: list[Point]) -> list[Point]:
    """The same, by what the foreground found."""
    return [replace(point, slowdown_percent=point.seen_percent) for point in points]


def ours_at(points: list[Point], slowdown_percent: float) -> float:
    """What `auto` gives the background where the foreground waits as much: on the line through nothing and its points.

    Beyond its last point that one's share: it does not spend more.
    """
    ours = sorted((point.slowdown_percent, point.share_percent) for point in points if point.family == OURS)
    if not ours:
        return float("nan")
    slowdowns, shares = zip((0.0, 0.0), *ours)
    return float(np.interp(slowdown_percent, slowdowns, np.maximum.accumulate(shares)))


def _tails(point: Point) -> str:
    """Where there are enough requests."""
    return "" if np.isnan(point.p999_ratio) else f"  p99.9 {point.p999_ratio:.2f}x, at the disk {point.disk_p999_ratio:.2f}x"


def _table(points: list[Point]) -> list[str]:
    lines = [
        f"  {'':<22}{'waited at disk':>15}{'slower':>9}{'p99':>8}{'kept':>8}{'background':>13}{'of clairvoyant':>16}{'auto, for as much':>19}{'as slow':>9}{'by chance':>11}",
    ]
    seen = as_seen(points)
    for point in sorted(points, key=lambda each: each.slowdown_percent):
        line = (
            f"  {point.contender:<22}{point.slowdown_percent:>14.1f}%{point.seen_percent:>8.1f}%{point.p99_ratio:>7.2f}x{point.kept_percent:>7.1f}%"
            f"{point.background_per_second:>8.1f} op/s{point.share_percent:>15.0f}%"
        )
        other = f"{ours_at(points, point.slowdown_percent):>18.0f}%{ours_at(seen, point.seen_percent):>8.0f}%" if point.family != OURS else ""
        chance = f"{point.chance_percent / 100:>10.2f}x" if not np.isnan(point.chance_percent) else ""
        lines.append((line + f"{other:>28}{chance}" + _tails(point)).rstrip())
    return lines


def text(results: Results) -> str:
    """The tables."""
    lines = []
    for title in dict.fromkeys(point.title for point in results.points):
        lines += [title, *_table([point for point in results.points if point.title == title])]
        learning = [point for point in results.learning if point.title == title]
        if learning:
            seconds = results.conditions.get("learning_seconds")
            lines += [f"  the {seconds:g} s before, in which it learned", *_table(learning)[1:]]
        if shares := results.learner_percent.get(title):
            lines.append(f"  learning took {min(shares):.2f} to {max(shares):.2f} % of a core (by the clock)")
        lines.append("")
    lines += [f"not run: {name}: {reason}" for name, reason in results.skipped.items()]
    return "\n".join(lines)


def draw(results: Results, target: Path, seen: bool = False) -> None:
    """One panel per workload: up is more background, left is a faster foreground, at the disk or as it has seen it.

    One that leaves a clairvoyant scheduler nothing has none.
    """
    points = [point for point in results.points if not np.isnan(point.share_percent)]
    points = as_seen(points) if seen else points
    panels = {
        title: [
            ((*style, family), [point for point in points if point.title == title and point.family == family])
            for family, style in STYLES.items()
        ] + [(BY_CHANCE, [] if seen else results.by_chance(title))] for title in dict.fromkeys(point.title for point in points)
    }
    about = results.conditions
    counts = sorted({point.repeats for point in results.points})
    repeats = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    footer = (
        f"Disk: {about.get('disk_title')}; {repeats} run(s) of "
        f"{about.get('seconds')} s, medians; auto has learned for {about.get('learning_seconds')} s before; background greedy, "
        f"{about.get('background_load', {}).get('outstanding')} outstanding. {about.get('qemu')}, "
        f"{str(about.get('accel')).upper()}, commit {about.get('commit')}."
    )
    multiples.draw(target, "Up and to the left is better: what the background gets for what the foreground pays", panels, footer, SEEN_LABEL if seen else X_LABEL)


def report(path: Path) -> None:
    """Table on the terminal and beside the results, and the plots."""
    results = Results(path)
    if not results.points:
        raise ValueError(f"{path}: no contender has finished yet")
    table = text(results)
    print(table)
    path.with_name("frontier.txt").write_text(table + "\n")
    for name, seen in (("frontier.png", False), ("frontier-guests.png", True)):
        draw(results, path.with_name(name), seen)
        print(f"  {path.with_name(name)}")


def main() -> None:
    """Reduce a results file."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.report.frontier", description="The evaluation's table and plot.")
    parser.add_argument("results", type=Path)
    report(parser.parse_args().results)


if __name__ == "__main__":
    main()

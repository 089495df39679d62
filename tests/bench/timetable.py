"""The schedule on an uplink against the ideal one, packet by packet (paper 002, section VII).

    python3 -m tests.bench.timetable [--repeats 3] [--seconds 3] [--output build/bench/timetable]

A foreground VM sends datagrams in bursts, 10 or 30 % of the uplink in each 100 ms, alone, and beside a VM that sends without a pause.
The kernel stamps each packet at the foreground's tap and behind the uplink. The ideal schedule is what the uplink would do with what
came by the tap if there was nobody else: how much later did each packet leave, and what part of the ideal idle time did the
background use? As root. One JSON line a run; what is there is not run again. `python3 -m tests.report.timetable FILE` makes table
and plot.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.net import plan
from tests.bench.net.pair import PORTS, SETTLE_SECONDS, Pair
from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, paths
from tests.framework.interrupt import exit_status
from tests.report import timetable as report
from tests.testbed.link import Model
from tests.testbed.timetable import Timetable, busy_ns, ideal_ns, late_ns, within_ns

INTENSITIES = (30, 10)
QUANTILES = 401
"""Of the lateness: see levels() of the report."""
EXCERPT_NS = 250_000_000
OVERHEAD_SECONDS = SETTLE_SECONDS + 1


@dataclass(frozen=True)
class Run:
    """One run."""

    case: plan.Case
    repeat: int

    @property
    def key(self) -> str:
        """Unique in the plan."""
        return f"{self.case.name}-{self.repeat}"

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        return self.case.title


def runs(repeats: int) -> list[Run]:
    """All ways of an intensity follow each other."""
    cases = []
    for intensity in INTENSITIES:
        cases.append(plan.Case("udp", "", intensity))
        for background in plan.PROTOCOLS:
            cases += [plan.Case("udp", background, intensity), plan.Case("udp", background, intensity, interval_us=5000),
                      plan.Case("udp", background, intensity, auto=True)]
    return [Run(case, repeat) for repeat in range(repeats) for case in cases]


def reduced(came: np.ndarray, left: np.ndarray, model: Model, seconds: float) -> dict[str, Any]:
    """PACKETS at the foreground's tap, and behind the uplink, to what a line of results holds."""
    begin = int(came["when_ns"].min() + SETTLE_SECONDS * 1e9)
    end = begin + int(seconds * 1e9)
    mine, others = (left[left["port"] == PORTS[role]] for role in ("foreground", "background"))
    ideal = ideal_ns(came, model)
    late = late_ns(came, mine, ideal)[(came["when_ns"] >= begin) & (came["when_ns"] < end)]
    seen = late[~np.isnan(late)]
    inside = others[(others["when_ns"] >= begin) & (others["when_ns"] < end)]
    spans = np.clip(busy_ns(came, ideal, model), begin, end)
    idle_ns = end - begin - int((spans[:, 1] - spans[:, 0]).sum())
    took_ns = inside["bytes"] * (8000 / model.rate_mbit)
    return {
        "packets": len(late), "lost": int(np.isnan(late).sum()), "late_us": [round(float(each), 1) for each in np.quantile(seen, report.levels(QUANTILES)) / 1000],
        "late_mean_us": float(seen.mean() / 1000), "idle_s": idle_ns / 1e9, "background_s": float(took_ns.sum() / 1e9),
        "beside_s": within_ns(inside["when_ns"] - took_ns, inside["when_ns"], spans) / 1e9,
        "excerpt": excerpt(came, ideal, mine, others, begin),
    }


def excerpt(came: np.ndarray, ideal: np.ndarray, mine: np.ndarray, others: np.ndarray, begin: int) -> dict[str, Any]:
    """For a picture: of each packet of a short time, microseconds since its beginning at which it leaves, and bytes."""
    def part(when_ns: np.ndarray, size: np.ndarray) -> list[list[int]]:
        chosen = (when_ns >= begin) & (when_ns < begin + EXCERPT_NS)
        return np.stack([(when_ns[chosen] - begin) // 1000, size[chosen].astype(np.int64)], axis=1).tolist()

    return {"ideal": part(ideal, came["bytes"]), "foreground": part(mine["when_ns"], mine["bytes"]),
            "background": part(others["when_ns"], others["bytes"])}


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.timetable", description="The uplink's schedule against the ideal one.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "timetable")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a run")
    arguments = parser.parse_args()
    results = ResultsFile(arguments.output / "timetable.jsonl")
    link = plan.LINK

    def measure(pair: Pair, run: Run) -> None:
        with Timetable(pair.link, pair.taps[0], tuple(PORTS.values())) as seen:
            pair.measure(run.case, arguments.seconds)
            came, left = seen.read()
        line = reduced(came, left, link, arguments.seconds)
        if run.repeat:
            del line["excerpt"]  # one picture of each
        results.write("run", key=run.key, repeat=run.repeat, case=run.case.parameters(), **line)

    def work() -> None:
        if todo := results.missing(runs(arguments.repeats)):
            boot = accel.prepare(network=True)
            with Pair(boot, link) as pair:
                pair.warm_up()
                results.write("conditions", link=link.parameters(), seconds=arguments.seconds, **host.facts(boot))
                work_off(todo, lambda _: arguments.seconds + OVERHEAD_SECONDS, lambda run: measure(pair, run))
        report.report(results.path)

    return exit_status(work, lambda: f"the finished runs are in {results.path}; the same command goes on")


if __name__ == "__main__":
    sys.exit(main())

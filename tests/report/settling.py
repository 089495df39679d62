"""What a change of workload costs, from the evaluation's results: python3 -m tests.report.settling build/bench/eval/results.jsonl

After each change, what the foreground waited for the background at the disk, of
its mean latency alone: in the first two seconds, up to the 200th request, and
from then on. The second part of a run is one change; the next run, which begins
with the first part again, is another.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator

import numpy as np

from tests.report.frontier import Results

WORKLOAD = "change"
SECONDS, REQUESTS = 2.0, 200


@dataclass(frozen=True)
class Change:
    """Waiting at the disk, in percent of the mean latency alone."""

    contender: str
    to: str
    first_seconds: float
    first_requests: float
    afterwards: float


def _waiting(requests: np.ndarray, alone_us: float) -> float:
    """NaN: there were none."""
    return float(requests["waited_ns"].mean()) / 1000 / alone_us * 100 if len(requests) else float("nan")


def _change(contender: str, to: str, requests: np.ndarray, alone_us: float) -> Change:
    since_s = (requests["arrival_ns"] - requests["arrival_ns"][0]) / 1e9
    settled = max(int(np.searchsorted(since_s, SECONDS)), REQUESTS)
    return Change(
        contender, to, _waiting(requests[since_s < SECONDS], alone_us), _waiting(requests[:REQUESTS], alone_us), _waiting(requests[settled:], alone_us),
    )


def _parts(folder: Path, run: dict[str, Any], stem: str) -> list[np.ndarray]:
    """The disk's requests of each part; one request of the load is one of the disk."""
    requests = np.load(folder / "latencies" / f"{stem}-disk.npy")
    counts = [report["operations"] for report in run["foreground"]]
    return np.split(requests, np.cumsum(counts)[:-1])


def changes(results: Results) -> Iterator[Change]:
    """Of all contenders that ran the workload: into its second part, and for one that has learned also into its first."""
    runs = [run for run in results.runs.values() if run["workload"] and run["workload"]["name"] == WORKLOAD]
    alone = {run["path"]: [report["mean_us"] for report in run["foreground"]] for run in runs if not run["contender"]}
    for run in runs:
        if not run["contender"]:
            continue
        name, alone_us = run["contender"]["name"], alone[run["path"]]
        parts = _parts(results.folder, run, run["key"])
        if run["learning"]:
            learning = _parts(results.folder, run["learning"], f"{run['key']}-learning")
            yield _change(name, "Poisson, the first time", learning[1], alone_us[1])
            yield _change(name, "bursts", parts[0], alone_us[0])
        yield _change(name, "Poisson", parts[1], alone_us[1])


def text(results: Results) -> str:
    """The table."""
    lines = [f"{'':<22}{'to':<26}{'first 2 s':>11}{'200 requests':>14}{'then':>8}"]
    for each in changes(results):
        lines.append(f"{each.contender:<22}{each.to:<26}{each.first_seconds:>10.1f}%{each.first_requests:>13.1f}%{each.afterwards:>7.1f}%")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.report.settling", description="What a change of workload costs.")
    parser.add_argument("results", type=Path)
    print(text(Results(parser.parse_args().results)))


if __name__ == "__main__":
    main()

"""A results file of the demo, reduced: the median over the repeats of each phase, and ratios to "alone"."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

MANY_PERCENT = 5.0
"""Of a disk's requests, by others: more than that is seen in the figures."""

FIGURES = ("operations_per_second", "mean_us", "p50_us", "p99_us", "p999_us", "max_us")


@dataclass(frozen=True)
class Phase:
    """One phase: per role ("foreground", "background") the medians of FIGURES, or None if it did not run."""

    name: str
    outstanding: int
    interval_us: int | None
    budget_percent: int | None
    pauses: str
    stock: bool
    foreground: dict[str, float] | None
    background: dict[str, float] | None
    latency_files: list[Path]

    @property
    def control(self) -> str:
        """What held the background back, for people."""
        if self.foreground is None or self.background is None:
            return "alone"
        if self.budget_percent is not None:
            return f"auto, budget {self.budget_percent} %"
        return "uncontrolled" if self.interval_us is None else f"interval {self.interval_us / 1000:g} ms"

    def latencies_ms(self) -> np.ndarray:
        """All foreground latencies of all repeats, sorted, in milliseconds."""
        parts = [np.load(path)["latency_us"] for path in self.latency_files]
        return np.sort(np.concatenate(parts)) / 1000 if parts else np.empty(0)


@dataclass(frozen=True)
class Results:
    """All phases of one results file, in the order of the first repeat."""

    conditions: dict[str, Any]
    phases: list[Phase]
    others_percent: float | None = None
    """Of the requests of an own disk: those that were not the guests'. None: not known, or a disk that nobody else has."""

    def alone(self, pauses: str = "even", stock: bool = False) -> Phase | None:
        """The foreground without any background."""
        return next((p for p in self.phases if p.background is None and p.pauses == pauses and p.stock == stock), None)

    def background_alone(self, outstanding: int, stock: bool = False) -> Phase | None:
        """The background with this many outstanding requests, without any foreground."""
        return next((p for p in self.phases if p.foreground is None and p.outstanding == outstanding and p.stock == stock), None)

    def contended(self, outstanding: int, pauses: str = "even", stock: bool = False) -> list[Phase]:
        """Phases in which both ran: uncontrolled first, then by interval, then those that set it themselves."""
        both = [p for p in self.phases if p.foreground and p.background and p.stock == stock]
        found = [p for p in both if p.outstanding == outstanding and p.pauses == pauses]
        return sorted(found, key=lambda phase: (phase.budget_percent or 0, -1 if phase.interval_us is None else phase.interval_us))

    @property
    def headline(self) -> int:
        """The background load that one sentence tells of: one request at a time; on a disk of one's own the greediest."""
        return self.outstanding()[-1 if self.conditions.get("disk", {}).get("model") == "own" else 0]

    def outstanding(self) -> list[int]:
        """The background loads that were measured."""
        return sorted({phase.outstanding for phase in self.phases if phase.outstanding})


def _reduce(runs: list[dict[str, Any]], role: str) -> dict[str, float] | None:
    reports = [run[role] for run in runs if run[role]]
    if not reports:
        return None
    known = {figure: [report[figure] for report in reports if report[figure] is not None] for figure in FIGURES}
    return {figure: median(values) if values else float("nan") for figure, values in known.items()}


def _phase(runs: list[dict[str, Any]], folder: Path) -> Phase:
    about = runs[0]["phase"]
    files = [folder / run["foreground"]["latencies"] for run in runs if run["foreground"]]
    return Phase(
        about["name"], about["outstanding"], about["interval_us"], about.get("budget_percent"), about["pauses"], about.get("stock", False),
        _reduce(runs, "foreground"), _reduce(runs, "background"), files,
    )


def _others_percent(runs: list[dict[str, Any]]) -> float | None:
    """From the block device's own count, which has everybody's."""
    counted = [run for run in runs if (run.get("disk_log") or {}).get("device_reads") is not None]
    seen = sum(run["disk_log"]["device_reads"] + run["disk_log"]["device_writes"] for run in counted)
    ours = sum(run[role]["operations"] for run in counted for role in ("foreground", "background") if run[role])
    return 100 * max(0, seen - ours) / seen if seen else None


def remarks(data: Results) -> list[str]:
    """What a reader has to know of a foreground on stock QEMU, and of figures of his own disk."""
    said = []
    if data.alone(stock=True):
        said.append("Stock QEMU: the foreground's QEMU knows nothing of us; the observer in the kernel sees it on a loop device over the same disk.")
    if data.conditions.get("disk", {}).get("model") != "own":
        return said
    if data.others_percent is not None:
        said.append(f"Others had {data.others_percent:.0f} % of the disk's requests meanwhile" +
                    ("." if data.others_percent < MANY_PERCENT else ": repeat it when they are quiet, their changes are in these figures."))
    if data.conditions.get("accel") == "tcg":
        said.append("KVM does not work here, so the guests were emulated: a request takes them longer than it takes a VM under KVM.")
    if data.conditions.get("repeats") == 1:
        said.append("One run of each: single runs differ by 10 points and more.")
    return said


def load(path: Path) -> Results:
    """Read a results file; an unfinished one gives the phases that it has."""
    try:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
    except OSError as error:
        raise FileNotFoundError(f"{path}: {error.strerror}; `make demo` writes it") from None
    conditions: dict[str, Any] = next((line for line in lines if line["kind"] == "conditions"), {})
    runs = [line for line in lines if line["kind"] == "run"]
    groups: dict[str, list[dict[str, Any]]] = {}
    for line in runs:
        groups.setdefault(line["phase"]["name"], []).append(line)
    return Results(conditions, [_phase(each, path.parent) for each in groups.values()], _others_percent(runs))


def ratio(value: dict[str, float] | None, base: Phase | None, role: str, figure: str) -> float | None:
    """A figure relative to the same one of `base`; None if either is missing or 0."""
    reference = getattr(base, role) if base else None
    if not value or not reference or not reference[figure]:
        return None
    return value[figure] / reference[figure]


def _disk(about: dict[str, Any]) -> str:
    """The modelled disk, or the operator's own."""
    if about.get("model") != "own":
        return f"{about.get('service_us', 0) / 1000:g} ms a request, one at a time"
    kind = "" if about["rotational"] is None else "rotating, " if about["rotational"] else "not rotating, "
    device = f", {about['device']} ({kind}scheduler {about['scheduler'] or 'unknown'})" if about["device"] else ""
    return f"own, a file of {int(about['size']) / (1 << 30):.3g} GiB on {about['filesystem']}{device}, direct I/O"


def caption(conditions: dict[str, Any]) -> str:
    """The conditions in two lines for people."""
    load_ = conditions.get("foreground_load", {})
    runs = f"Medians of {conditions.get('repeats')} runs of {conditions.get('seconds')} s."
    return (
        f"Disk: {_disk(conditions.get('disk', {}))}. Foreground: {load_.get('pattern')} "
        f"{load_.get('block_bytes', 0) // 1024} KiB {load_.get('operation')}s, busy {load_.get('intensity')} % of each "
        f"{load_.get('quantum_ms')} ms; irregular: exponential\npauses of the same mean. Background: the same without pause. {runs}\n"
        f"{conditions.get('qemu')}, {str(conditions.get('accel')).upper()}, guests Linux "
        f"{conditions.get('guest_kernel')}, host {conditions.get('cpus')} x {conditions.get('cpu')}, "
        f"commit {conditions.get('commit')}."
    )

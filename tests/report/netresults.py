"""A results file of the network benchmark, reduced: medians over the repeats of each case, and ratios to "alone"."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Iterable

import numpy as np

ETHERNET_BYTES, IP_BYTES = 14, 20
MTU = 1500

AUTO = "auto"
"""As an interval: the learned one."""

Interval = int | str
"""Microseconds, or AUTO."""

# What one packet of payload costs on the wire, as the uplink's token bucket counts it.
WIRE = {
    "udp": (1400 + 8 + IP_BYTES + ETHERNET_BYTES) / 1400,
    "tcp": (MTU + ETHERNET_BYTES) / (MTU - IP_BYTES - 32),  # 20 bytes of header, 12 of time stamps
}


SHARED, WEIGHT, IDLE, FIRST = "shared", "weight", "idle", "first"
WAYS = {SHARED: "shared equally", WEIGHT: "background of least weight", IDLE: "background's cgroup idle", FIRST: "foreground first"}
"""Whose the processors are, in words; the first is what a host does that nobody has told anything."""


def interval_text(interval: Interval) -> str:
    """An interval for people."""
    return f"{interval / 1000:g} ms" if isinstance(interval, int) else interval


def control_text(interval: Interval | None) -> str:
    """What holds the background back, for people; None: nothing does."""
    return "uncontrolled" if interval is None else f"interval {interval_text(interval)}"


def circumstances(about: dict[str, Any]) -> list[str]:
    """What else a case has that is not usual, for people; `about` are its parameters."""
    way = about.get("processors", SHARED)
    said = (("br_netfilter", about["br_netfilter"]), ("other uplink", about.get("elsewhere")), (WAYS[way], way != SHARED),
            ("no deadline", not about.get("deadline", True)))
    return [words for words, is_so in said if is_so]


BOOTSTRAPS, BOOTSTRAP_RUNS = 4000, 5
"""Resamples; of fewer runs nothing is said."""

@dataclass(frozen=True)
class Case:
    """One case on one link: the case's parameters, and medians. None: not measured."""

    series: str
    about: dict[str, Any]
    link: dict[str, Any]
    foreground_mbit: float | None
    background_mbit: float | None
    p50_us: float | None
    p99_us: float | None
    p999_us: float | None
    foreground_retransmitted: float | None
    background_retransmitted: float | None
    foreground_rtt_us: float | None
    background_rtt_us: float | None
    jitter_us: float | None
    queue_bytes: float | None
    p99_of_runs_us: list[float]
    stages_p99_us: dict[str, float]
    latency_files: list[Path]
    foreground_runs: list[float]
    runs: int

    @property
    def interval(self) -> Interval | None:
        """None: nothing held the background back."""
        return AUTO if self.about.get("auto") else self.about["interval_us"]

    @property
    def control(self) -> str:
        """What held the background back, for people."""
        if not (self.about["foreground"] and self.about["background"]):
            return "alone"
        return control_text(self.interval)

    @property
    def order(self) -> int:
        """Uncontrolled first, then by interval."""
        return {None: -2, AUTO: -1}.get(self.interval, self.about["interval_us"])

    def latencies_ms(self) -> np.ndarray:
        """All latencies of all repeats, sorted, in milliseconds."""
        parts = [np.load(path)["latency_us"] for path in self.latency_files if path.exists()]
        return np.sort(np.concatenate(parts)) / 1000 if parts else np.empty(0)


@dataclass(frozen=True)
class Results:
    """All cases of a results file, in the order of the first repeat."""

    conditions: dict[str, Any]
    cases: list[Case]

    def find(self, series: str, **about: Any) -> Case | None:
        """The case with these parameters."""
        return next((each for each in self.select(series, **about)), None)

    def select(self, series: str, **about: Any) -> list[Case]:
        """The cases with these parameters, in their order."""
        found = [each for each in self.cases
                 if each.series == series and all(_has(each, key, value) for key, value in about.items())]
        return sorted(found, key=lambda each: each.order)

    def alone(self, case: Case, role: str) -> Case | None:
        """The same load of a role without the other role, on the same link."""
        about = {"foreground": "", "background": "", role: case.about[role], "processors": case.about.get("processors")}
        if role == "foreground":
            about["intensity"] = case.about["intensity"]
        for series in (case.series, "pairs"):
            found = self.find(series, **about)
            if found and found.link["delay_us"] == case.link["delay_us"]:
                return found
        return None

    def kept(self, case: Case) -> float | None:
        """Foreground throughput, of the same foreground alone."""
        base = self.alone(case, "foreground")
        return _ratio(case.foreground_mbit, base.foreground_mbit if base else None)

    def kept_within(self, case: Case) -> tuple[float, float] | None:
        """Where kept() is with 95 %, by the bootstrap of both medians (B. Efron, Annals of Statistics 1979); None: too few runs."""
        base = self.alone(case, "foreground")
        if not base or min(len(each.foreground_runs) for each in (case, base)) < BOOTSTRAP_RUNS:
            return None
        dice = np.random.default_rng(1)
        mine, alone = (np.median(dice.choice(each.foreground_runs, (BOOTSTRAPS, len(each.foreground_runs))), axis=1) for each in (case, base))
        low, high = np.quantile(mine / alone, (0.025, 0.975))
        return float(low), float(high)

    def left_mbit(self, case: Case) -> float | None:
        """What the foreground alone leaves of the wire, as payload of the background's protocol."""
        if not case.about["background"]:
            return None
        used = 0.0
        if case.about["foreground"] in WIRE:
            base = self.alone(case, "foreground")
            if not base or base.foreground_mbit is None:
                return None
            used = base.foreground_mbit * WIRE[case.about["foreground"]]
        return max(0.0, case.link["rate_mbit"] - used) / WIRE[case.about["background"]]

    def reached(self, case: Case) -> float | None:
        """Background throughput, of what the foreground alone leaves; None where that is nearly nothing."""
        left = self.left_mbit(case)
        return _ratio(case.background_mbit, left) if left and left > 0.1 * case.link["rate_mbit"] else None


def _has(case: Case, key: str, value: Any) -> bool:
    return (case.interval if key == "interval" else case.about.get(key)) == value


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _role(runs: list[dict[str, Any]], role: str, *path: str) -> float | None:
    """The median of one figure of a role."""
    values = []
    for run in runs:
        value: Any = run[role]
        for key in path:
            value = (value or {}).get(key)
        values.append(value)
    return _median(values)


def _stages(runs: list[dict[str, Any]]) -> dict[str, float]:
    """The median p99 of each stage of the probe's way, microseconds."""
    known = [run["foreground"]["stages"] for run in runs if (run["foreground"] or {}).get("stages")]
    return {stage: median(each[stage]["p99_us"] for each in known) for stage in (known[0] if known else ())}


def _case(runs: list[dict[str, Any]], folder: Path) -> Case:
    first = runs[0]
    return Case(
        first["series"], first["case"], first["link"],
        _role(runs, "foreground", "mbit_s"), _role(runs, "background", "mbit_s"),
        *(_role(runs, "foreground", "load", figure) for figure in ("p50_us", "p99_us", "p999_us")),
        _role(runs, "foreground", "tcp_retransmitted"), _role(runs, "background", "tcp_retransmitted"),
        _role(runs, "foreground", "load", "rtt_us"), _role(runs, "background", "load", "rtt_us"),
        _role(runs, "foreground", "sink", "jitter_us"), _role(runs, "uplink", "mean_bytes"),
        [run["foreground"]["load"]["p99_us"] for run in runs if run.get("latencies")], _stages(runs),
        [folder / run["latencies"] for run in runs if run.get("latencies")],
        [run["foreground"]["mbit_s"] for run in runs if (run["foreground"] or {}).get("mbit_s") is not None], len(runs),
    )


def load(path: Path) -> Results:
    """Read a results file; an unfinished one gives the cases that it has."""
    try:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
    except OSError as error:
        raise FileNotFoundError(f"{path}: {error.strerror}; `make demo-net` writes it") from None
    conditions: dict[str, Any] = next((line for line in lines if line["kind"] == "conditions"), {})
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in lines:
        if line["kind"] == "run":
            groups.setdefault((line["series"], line["case"]["name"]), []).append(line)
    return Results(conditions, [_case(runs, path.parent) for runs in groups.values()])


def _runs(data: Results) -> str:
    """How often the cases were run, e.g. "1 to 3"."""
    counts = sorted({case.runs for case in data.cases}) or [0]
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def caption(data: Results) -> str:
    """The conditions in a few lines for people."""
    link = data.cases[0].link if data.cases else {}
    about = data.conditions
    changed = ", ".join(f"{key}={value}" for part in ("resource", "background") for key, value in about.get(part, {}).items())
    return (
        f"Uplink: {link.get('rate_mbit')} Mbit/s, token bucket, queue {link.get('queue_bytes', 0) // 1000} KB; delay 0 if not "
        f"stated. Loads: three TCP connections or UDP sockets, buffers of 128 KiB, 1,400 bytes a write, 10 ms back-off;\n"
        f"N %: sends N % of each 100 ms. Medians of {_runs(data)} runs of {about.get('seconds')} s"
        f"{'; ' + changed.lstrip(', ') if changed else ''}. {about.get('qemu')}, {str(about.get('accel')).upper()}, guests Linux "
        f"{about.get('guest_kernel')},\nhost {about.get('cpus')} x {about.get('cpu')}, commit {about.get('commit')}"
        f"{', qemu-patches ' + about['patches'] if about.get('patches') else ''}."
    )

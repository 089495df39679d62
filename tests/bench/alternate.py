"""Variants of one QEMU measured in alternating order: one JSON line a run, then ratios.

A repeat has processes of its own. Within it, round follows round, each with a run of every variant: what the host does
meanwhile hits all of a round nearly alike, so the ratios within rounds tell more than those of whole series.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Callable, ContextManager, Iterator

import numpy as np

from tests.framework import host, paths
from tests.framework.qemu import Boot

UNPATCHED = paths.BUILD / "unpatched" / "stage" / "bin" / "qemu-system-x86_64"
VARIANTS = ("unpatched", "unset", "foreground")
"""The unpatched QEMU; the patched one without the property; the patched one as a foreground participant."""

CONFIDENCE = 0.9
RESAMPLINGS = 2000

Measure = Callable[[str, float], dict[str, Any]]
"""The report of one run: of this variant, for so many seconds."""


@dataclass(frozen=True)
class Figure:
    """One number of a run's report."""

    title: str
    unit: str
    of: Callable[[dict[str, Any]], float]


@dataclass(frozen=True)
class Comparison:
    """What is measured. `opened(boots)` is the context of one repeat; `boots` by variant."""

    program: str
    opened: Callable[[dict[str, Boot]], ContextManager[Measure]]
    conditions: dict[str, Any]
    figures: tuple[Figure, ...]


def parse(program: str, description: str, repeats: int = 7, rounds: int = 1, seconds: float = 4, **flags: str) -> argparse.Namespace:
    """The options that all comparisons have, with these defaults; `flags` are its own, with their help."""
    parser = argparse.ArgumentParser(prog=f"python3 -m tests.bench.{program}", description=description)
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / f"{program}.jsonl")
    parser.add_argument("--unpatched", default=str(UNPATCHED), help="QEMU of `make qemu-unpatched`")
    parser.add_argument("--qemu", help="patched QEMU (the staged one)")
    parser.add_argument("--repeats", type=int, default=repeats, help="each with new processes")
    parser.add_argument("--rounds", type=int, default=rounds, help="of a repeat; in each, a run of every variant")
    parser.add_argument("--seconds", type=float, default=seconds, help="of a run")
    for name, meaning in flags.items():
        parser.add_argument(f"--{name}", action="store_true", help=meaning)
    return parser.parse_args()


def order(number: int) -> tuple[str, ...]:
    """The variants of round `number`: every second one runs backwards, so that no variant is always the first."""
    return VARIANTS if number % 2 == 0 else VARIANTS[::-1]


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used: less noisy than throughput where processors are shared."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _runs(comparison: Comparison, boots: dict[str, Boot], arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All runs, one after the other, as lines of the data."""
    for repeat in range(arguments.repeats):
        with comparison.opened(boots) as measure:
            for number in range(arguments.rounds):
                for variant in order(repeat * arguments.rounds + number):
                    report = measure(variant, arguments.seconds)
                    yield {"kind": "run", "repeat": repeat, "round": number, "variant": variant, "report": report}


def run(comparison: Comparison, boot: Boot, arguments: argparse.Namespace) -> None:
    """All runs, one JSON line each, then the ratios on the terminal."""
    boots = {variant: boot for variant in VARIANTS} | {"unpatched": replace(boot, qemu=paths.find_qemu(arguments.unpatched))}
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with arguments.output.open("w") as lines:
        about = {"kind": "conditions", "program": comparison.program, "seconds": arguments.seconds, **comparison.conditions}
        _write(lines, {**about, **host.facts(boot)})
        for line in _runs(comparison, boots, arguments):
            _write(lines, line)
            for figure in comparison.figures:
                values[figure.title, line["variant"]].append(figure.of(line["report"]))
            latest = ", ".join(f"{figure.of(line['report']):.1f} {figure.unit}" for figure in comparison.figures)
            print(f"repeat {line['repeat'] + 1} of {arguments.repeats}, round {line['round'] + 1} of {arguments.rounds}: "
                  f"{line['variant']:11} {latest}", flush=True)
    for figure in comparison.figures:
        print(summary(figure.title, {variant: values[figure.title, variant] for variant in VARIANTS}))


def summary(title: str, values: dict[str, list[float]]) -> str:
    """Two ratios of each variant to `unpatched`: of the medians, and the median of those within rounds, with its range."""
    base = values["unpatched"]
    lines = [f"{title}, of unpatched ({median(base):.1f}):"]
    for variant in VARIANTS[1:]:
        ratios = np.array(values[variant]) / np.array(base)
        low, high = _range_of_median(ratios)
        lines.append(f"  {variant:11} medians {median(values[variant]) / median(base):.3f}; within rounds {np.median(ratios):.3f} "
                     f"({CONFIDENCE:.0%}: {low:.3f} to {high:.3f}, {len(ratios)} rounds)")
    return "\n".join(lines)


def _range_of_median(values: np.ndarray) -> tuple[float, float]:
    """Where the median lies with this confidence: the bootstrap's percentiles."""
    chosen = np.random.default_rng(0).choice(values, (RESAMPLINGS, len(values)))
    low, high = np.quantile(np.median(chosen, axis=1), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def _write(lines: Any, line: dict[str, Any]) -> None:
    lines.write(json.dumps(line) + "\n")
    lines.flush()

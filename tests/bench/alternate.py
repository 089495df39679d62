"""Variants of one QEMU measured in alternating order, each run in new processes: one JSON line a run, then ratios."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Callable, Iterator

from tests.framework import host, paths
from tests.framework.qemu import Boot

UNPATCHED = paths.BUILD / "unpatched" / "stage" / "bin" / "qemu-system-x86_64"
VARIANTS = ("unpatched", "unset", "foreground")
"""The unpatched QEMU; the patched one without the property; the patched one as a foreground participant."""


@dataclass(frozen=True)
class Figure:
    """One number of a run's report."""

    title: str
    unit: str
    of: Callable[[dict[str, Any]], float]


@dataclass(frozen=True)
class Comparison:
    """What is measured: `measure(boot, variant, seconds)` gives the report of one run."""

    program: str
    measure: Callable[[Boot, str, float], dict[str, Any]]
    conditions: dict[str, Any]
    figures: tuple[Figure, ...]


def parse(program: str, description: str) -> argparse.Namespace:
    """The options that all comparisons have."""
    parser = argparse.ArgumentParser(prog=f"python3 -m tests.bench.{program}", description=description)
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / f"{program}.jsonl")
    parser.add_argument("--unpatched", default=str(UNPATCHED), help="QEMU of `make qemu-unpatched`")
    parser.add_argument("--qemu", help="patched QEMU (the staged one)")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4)
    return parser.parse_args()


def schedule(repeats: int) -> Iterator[tuple[int, str]]:
    """Repeat and variant of each run: every second repeat runs backwards, so that no variant is always the first."""
    for repeat in range(repeats):
        for variant in VARIANTS if repeat % 2 == 0 else reversed(VARIANTS):
            yield repeat, variant


def run(comparison: Comparison, boot: Boot, arguments: argparse.Namespace) -> None:
    """All runs, one JSON line each, then the ratios of the medians on the terminal."""
    boots = {variant: boot for variant in VARIANTS} | {"unpatched": replace(boot, qemu=paths.find_qemu(arguments.unpatched))}
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with arguments.output.open("w") as lines:
        about = {"kind": "conditions", "program": comparison.program, "seconds": arguments.seconds, **comparison.conditions}
        _write(lines, {**about, **host.facts(boot)})
        for repeat, variant in schedule(arguments.repeats):
            report = comparison.measure(boots[variant], variant, arguments.seconds)
            _write(lines, {"kind": "run", "repeat": repeat, "variant": variant, "report": report})
            for figure in comparison.figures:
                values[figure.title, variant].append(figure.of(report))
            latest = ", ".join(f"{figure.of(report):.1f} {figure.unit}" for figure in comparison.figures)
            print(f"repeat {repeat + 1} of {arguments.repeats}: {variant:11} {latest}", flush=True)
    for figure in comparison.figures:
        base = median(values[figure.title, "unpatched"])
        ratios = ", ".join(f"{variant} {median(values[figure.title, variant]) / base:.3f}" for variant in VARIANTS)
        print(f"{figure.title}, medians, of unpatched: {ratios}")


def _write(lines: Any, line: dict[str, Any]) -> None:
    lines.write(json.dumps(line) + "\n")
    lines.flush()

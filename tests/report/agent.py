"""The table of tests.bench.agent: python3 -m tests.report.agent build/bench/agent.jsonl"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any, Iterator

Line = dict[str, Any]


def read(path: Path) -> list[Line]:
    """The lines of a file of results."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def _middle(lines: list[Line], role: str, name: str) -> float | None:
    values = [line[role][name] for line in lines if line.get(role) and name in line[role]]
    return median(values) if values else None


def _groups(lines: list[Line], *names: str) -> Iterator[tuple[tuple[Any, ...], list[Line]]]:
    """Lines with the same values of these names, in order of first appearance."""
    keys = dict.fromkeys(tuple(line.get(name) for name in names) for line in lines)
    for key in keys:
        yield key, [line for line in lines if tuple(line.get(name) for name in names) == key]


def _number(value: float | None, scale: float = 1, digits: int = 1) -> str:
    return "-" if value is None else f"{value / scale:.{digits}f}"


def _ratio(value: float | None, base: float | None) -> str:
    return "-" if not value or not base else f"{100 * value / base:.0f} %"


def series(title: str, lines: list[Line]) -> Iterator[str]:
    """A table of one series: its cases beside "alone" and "unheld", medians over the repeats."""
    cases = {case[0]: found for case, found in _groups(lines, "case")}
    alone = _middle(cases.get("alone", []), "foreground", "per_second")
    unheld = _middle(cases.get("unheld", []), "foreground", "mean_us")
    yield f"{title}, medians of {max(line['repeat'] for line in lines) + 1} runs"
    yield f"{'case':>18} {'fg op/s':>8} {'of alone':>8} {'mean ms':>8} {'of unheld':>9} {'p99 ms':>8} {'bg op/s':>8}"
    for case, found in cases.items():
        rate, mean = (_middle(found, "foreground", name) for name in ("per_second", "mean_us"))
        yield (
            f"{case:>18} {_number(rate):>8} {_ratio(rate, alone):>8} {_number(mean, 1000):>8} {_ratio(mean, unheld):>9} "
            f"{_number(_middle(found, 'foreground', 'p99_us'), 1000):>8} {_number(_middle(found, 'background', 'per_second')):>8}"
        )
    yield ""


def table(lines: list[Line]) -> Iterator[str]:
    """All tables of a file."""
    loads = [line for line in lines if line["kind"] in ("reader", "fsync")]
    for (kind, system, writer), found in _groups(loads, "kind", "filesystem", "writer"):
        yield from series("reader" if kind == "reader" else f"fsync on {system}, writer {writer}", found)
    for line in lines:
        if line["kind"] == "idle":
            yield (
                f"agent, idle for {line['seconds']:.0f} s {'with' if line['rules'] else 'without'} a rule, {line['processes']} processes: "
                f"{line['processor_seconds']:.2f} s of a processor ({100 * line['share']:.3f} %), {line['kib']['VmRSS'] / 1024:.1f} MiB resident"
            )


def main() -> int:
    """Exit status: 0 done, 2 wrong usage."""
    if len(sys.argv) != 2:
        print("usage: python3 -m tests.report.agent FILE", file=sys.stderr)
        return 2
    print("\n".join(table(read(Path(sys.argv[1])))))
    return 0


if __name__ == "__main__":
    sys.exit(main())

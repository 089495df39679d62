"""What became of a test, from TAP to the table of both trees. Nothing here runs anything."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

PASSED, SKIPPED, FAILED = "passed", "skipped", "FAILED"
TREES = ("unpatched", "patched")

LINE = re.compile(r"(?P<failed>not )?ok (?:\d+|\w+) (?:- )?(?P<name>[^\s#]+)[^#]*(?P<skipped># *SKIP)?", re.IGNORECASE)
"""GLib numbers its tests, iotests name their format there."""


def of_tap(text: str, status: int) -> dict[str, str]:
    """Each test's result. A program that fails without saying which test did has a result of its own, "(exit)"."""
    found = {match["name"]: FAILED if match["failed"] else SKIPPED if match["skipped"] else PASSED
             for match in map(LINE.match, text.splitlines()) if match}
    if status != 0 and FAILED not in found.values():
        found["(exit)"] = FAILED
    return found


def load(ledger: Path) -> dict[str, dict[str, list[dict[str, str]]]]:
    """By job and tree the results of each run, the first one first."""
    runs: dict[str, dict[str, list[dict[str, str]]]] = {}
    for line in ledger.read_text().splitlines() if ledger.exists() else []:
        run = json.loads(line)
        runs.setdefault(run["job"], {tree: [] for tree in TREES})[run["tree"]].append(run["results"])
    return runs


def unsettled(trees: dict[str, list[dict[str, str]]]) -> bool:
    """At the first run something failed, or the trees differed."""
    first = [trees[tree][0] for tree in TREES if trees[tree]]
    return any(FAILED in results.values() for results in first) or any(results != first[0] for results in first)


def verdict(runs: list[str | None]) -> str:
    """Of one test on one tree; None where a run said nothing of it."""
    first, again = runs[0], runs[1:]
    if first in (PASSED, SKIPPED):
        return f"{first} at first"
    return "passed when repeated alone" if PASSED in again else "failed"


def table(runs: dict[str, dict[str, list[dict[str, str]]]]) -> dict[str, dict[str, list[str | None]]]:
    """By test and tree the results of its runs."""
    return {
        f"{job} {test}": {tree: [run.get(test) for run in trees[tree]] for tree in TREES}
        for job, trees in runs.items()
        for test in sorted({test for tree in TREES for run in trees[tree] for test in run})
    }


def equal(row: dict[str, list[str | None]]) -> bool:
    """Nothing is seen on one tree only: both pass (at first or repeated), both skip, or both fail, or one is not run."""
    return len({_outcome(row[tree]) for tree in TREES if row[tree]}) == 1


def _outcome(runs: list[str | None]) -> str:
    return next((result for result in (PASSED, SKIPPED) if result in runs), FAILED)


def report(runs: dict[str, dict[str, list[dict[str, str]]]]) -> tuple[str, bool]:
    """The table in Markdown, below it each test that did not pass at once; and whether the trees are equal."""
    rows = table(runs)
    counts = {tree: Counter(verdict(row[tree]) for row in rows.values() if row[tree]) for tree in TREES}
    columns = ("passed at first", "passed when repeated alone", "skipped at first", "failed")
    lines = [f"| tree | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    lines += [f"| {tree} | {' | '.join(str(counts[tree][column]) for column in columns)} |" for tree in TREES]
    for test, row in rows.items():
        if not equal(row) or any(FAILED in row[tree] for tree in TREES):
            said = "; ".join(f"{tree}: {', '.join(result or 'not run' for result in row[tree])}" for tree in TREES)
            lines.append(f"\n`{test}`: {said}." + ("" if equal(row) else " **Differs.**"))
    return "\n".join(lines), all(map(equal, rows.values()))

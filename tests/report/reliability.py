"""The reliability table from a ledger of tests: python3 -m tests.report.reliability build/soak/ledger.jsonl."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

HEAD = "| what happened | times | guest data verified | longest wait seen | promised |\n|---|---|---|---|---|"


def note_race(log: Path, ledger: Path) -> None:
    """Add what the random machine test reports at its end."""
    found = re.search(r"(\d+) steps, (\d+) requests, (\d+) bytes verified", log.read_text())
    if found:
        with ledger.open("a") as file:
            file.write(json.dumps({"kind": "racing and malformed requests (steps)", "events": int(found[1]),
                                   "verified_bytes": int(found[3])}) + "\n")


def _merged(lines: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Events and bytes of a kind are added up; of waits the one counts that came closest to its own bound."""
    kinds: dict[str, dict[str, Any]] = {}
    for line in lines:
        sum_ = kinds.setdefault(line["kind"], {"events": 0, "bytes": 0, "wait": 0.0, "bound": 0.0})
        sum_["events"] += line["events"]
        sum_["bytes"] += line.get("verified_bytes", 0)
        wait = max(line.get(f"longest_{what}_ms", 0) for what in ("hold", "wait", "fsync", "lock"))
        bound = line.get("bound_ms", 0)
        if bound and wait * sum_["bound"] >= sum_["wait"] * bound:
            sum_["wait"], sum_["bound"] = wait, bound
    return kinds


def _row(kind: str, sum_: dict[str, Any]) -> str:
    size = f"{sum_['bytes'] / 1e6:,.0f} MB" if sum_["bytes"] else ""
    wait = f"{sum_['wait']:,.0f} ms" if sum_["bound"] else ""
    bound = f"{sum_['bound']:,.0f} ms" if sum_["bound"] else ""
    return f"| {kind} | {sum_['events']} | {size} | {wait} | {bound} |"


def table(ledger: Path) -> str:
    """The ledger as a table in Markdown, a row a kind, in order of name."""
    lines = [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []
    return "\n".join([HEAD, *(_row(kind, sum_) for kind, sum_ in sorted(_merged(lines).items()))])


if __name__ == "__main__":
    print(table(Path(sys.argv[1])))

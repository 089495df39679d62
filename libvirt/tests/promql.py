# SPDX-License-Identifier: GPL-2.0-or-later
"""What a text in PromQL asks for that nobody serves, and Prometheus's own tool."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from idletime.hostd.metrics_table import BY_NAME, METRICS

ROOT = Path(__file__).parents[2]
RULES = ROOT / "libvirt/prometheus/idletime.rules.yml"
RECORDS = set(re.findall(r"record: (\S+)", RULES.read_text()))
OWN_LABELS = {"instance", "job", "le"}


def unknown(text: str) -> set[str]:
    """Names of metrics and records, and labels that are selected or joined on, that do not exist."""
    wrong = set(re.findall(r"\bidletime:[\w:]+", text)) - RECORDS
    wrong |= {name.removesuffix("_bucket") for name in re.findall(r"\bidletime_\w+", text)} - BY_NAME.keys()
    for name, inside in re.findall(r"\b(idletime_\w+)\{([^}]*)\}", text):
        metric = BY_NAME.get(name.removesuffix("_bucket"))
        wrong |= set(re.findall(r"(\w+)=", inside)) - {*(metric.labels if metric else ()), *OWN_LABELS}
    known = {label for metric in METRICS for label in metric.labels} | OWN_LABELS
    for inside in re.findall(r"(?:by|on|without) \(([^)]*)\)", text):
        wrong |= {label.strip() for label in inside.split(",")} - known
    return wrong


def promtool(*argv: str, text: str | None = None) -> str:
    """Run it; its output, if it finds nothing wrong."""
    there = ROOT / "build/prometheus/usr/bin/promtool"
    found = str(there) if there.exists() else shutil.which("promtool")
    assert found, "no promtool: run 'make prometheus'"
    result = subprocess.run([found, *argv], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr

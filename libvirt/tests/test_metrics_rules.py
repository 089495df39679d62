# SPDX-License-Identifier: GPL-2.0-or-later
"""Prometheus's own tool reads our metrics and carries out our rules; and rules use metrics that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import exposition

from idletime.hostd import metrics
from idletime.hostd.metrics_ledger import Ledger
from idletime.hostd.metrics_table import BY_NAME, METRICS
from test_metrics import ALL, TALLY

ROOT = Path(__file__).parents[2]
RULES = ROOT / "libvirt/prometheus/idletime.rules.yml"
TESTS = Path(__file__).parent / "data/prometheus.test.yml"
ALERTS = re.findall(r"alert: (\w+)", RULES.read_text())
OWN_LABELS = {"instance", "job"}


@pytest.fixture(scope="module")
def promtool() -> str:
    there = ROOT / "build/prometheus/usr/bin/promtool"
    found = str(there) if there.exists() else shutil.which("promtool")
    assert found, "no promtool: run 'make prometheus'"
    return found


def check(*argv: str, text: str | None = None) -> str:
    result = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def test_check_metrics(promtool: str) -> None:
    """What is served without OpenMetrics keeps the conventions that promtool knows of."""
    ledger = Ledger()
    metrics.note(ledger, ALL)
    found = list(metrics.samples(ALL, ledger.sums, TALLY))
    text = exposition.generate_latest(SimpleNamespace(collect=lambda: metrics.families(found))).decode()
    assert check(promtool, "check", "metrics", text=text) == ""


def test_check_rules(promtool: str) -> None:
    assert "SUCCESS" in check(promtool, "check", "rules", str(RULES))


def test_rules(promtool: str, tmp_path: Path) -> None:
    test = tmp_path / "test.yml"
    test.write_text(TESTS.read_text().replace("rule_files: [RULES]", f"rule_files: ['{RULES}']"))
    check(promtool, "test", "rules", str(test))


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_is_tested_to_come_and_is_in_the_man_page(alert: str) -> None:
    tested = re.findall(rf"alertname: {alert}\n +exp_alerts:\n +- exp_labels", TESTS.read_text())
    assert tested and alert in (ROOT / "libvirt/man/idletime-metrics.7").read_text()


@pytest.mark.parametrize("file", [RULES, TESTS])
def test_rules_use_what_is_exported(file: Path) -> None:
    """Names, and the labels that are selected or joined on."""
    text = file.read_text()
    names = {name.removesuffix("_bucket") for name in re.findall(r"\bidletime_\w+", text)}
    assert names and names <= BY_NAME.keys(), names - BY_NAME.keys()
    for name, inside in re.findall(r"\b(idletime_\w+)\{([^}]*)\}", text):
        assert set(re.findall(r"(\w+)=", inside)) <= {*BY_NAME[name].labels, *OWN_LABELS}, name
    known = {label for metric in METRICS for label in metric.labels} | OWN_LABELS
    for inside in re.findall(r"(?:by|on|without) \(([^)]*)\)", text):
        assert {label.strip() for label in inside.split(",")} <= known, inside

# SPDX-License-Identifier: GPL-2.0-or-later
"""Prometheus's own tool reads our metrics and carries out our rules; and rules use metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import exposition

from idletime.hostd import metrics
from idletime.hostd.metrics_ledger import Ledger
from promql import ROOT, RULES, promtool, unknown
from test_metrics import ALL, TALLY

TESTS = Path(__file__).parent / "data/prometheus.test.yml"
ALERTS = re.findall(r"alert: (\w+)", RULES.read_text())


def test_check_metrics() -> None:
    """What is served without OpenMetrics keeps the conventions that promtool knows of."""
    ledger = Ledger()
    metrics.note(ledger, ALL)
    found = list(metrics.samples(ALL, ledger.sums, TALLY))
    text = exposition.generate_latest(SimpleNamespace(collect=lambda: metrics.families(found))).decode()
    assert promtool("check", "metrics", text=text) == ""


def test_check_rules() -> None:
    assert "SUCCESS" in promtool("check", "rules", str(RULES))


def test_rules(tmp_path: Path) -> None:
    test = tmp_path / "test.yml"
    test.write_text(TESTS.read_text().replace("rule_files: [RULES]", f"rule_files: ['{RULES}']"))
    promtool("test", "rules", str(test))


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_is_tested_to_come_and_is_in_the_man_page(alert: str) -> None:
    tested = re.findall(rf"alertname: {alert}\n +exp_alerts:\n +- exp_labels", TESTS.read_text())
    assert tested and alert in (ROOT / "libvirt/man/idletime-metrics.7").read_text()


@pytest.mark.parametrize("file", [RULES, TESTS])
def test_rules_use_what_is_exported(file: Path) -> None:
    """Names, and the labels that are selected or joined on."""
    assert unknown(file.read_text()) == set()


def test_what_nobody_serves_is_found() -> None:
    text = 'sum by (vm, tenant) (idletime_device_bytes_total{class="guest",queue="1"}) / idletime_bytes + idletime:bytes:rate5m'
    assert unknown(text) == {"tenant", "queue", "idletime_bytes", "idletime:bytes:rate5m"}

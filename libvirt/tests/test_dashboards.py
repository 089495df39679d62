# SPDX-License-Identifier: GPL-2.0-or-later
"""The dashboards for Grafana: made from their source as it is, of metrics that exist, with queries that Prometheus reads."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from promql import ROOT, promtool, unknown

GRAFANA = ROOT / "libvirt/grafana"
FILES = sorted(GRAFANA.glob("*.json"))
VARIABLES = {"$instance": "host:9180", "$resource": ".*", "$__rate_interval": "1m", "$__range": "1h"}


def panels(file: Path) -> list[dict[str, Any]]:
    return list(json.loads(file.read_text())["panels"])


def queries(file: Path) -> list[str]:
    """All PromQL of a dashboard, with values for its variables."""
    found = [target["expr"] for panel in panels(file) for target in panel["targets"]]
    for variable, value in VARIABLES.items():
        found = [text.replace(variable, value) for text in found]
    return found


def test_files_are_made_from_their_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else: build/venv/bin/python3 libvirt/grafana/dashboards.py."""
    monkeypatch.syspath_prepend(GRAFANA)
    sys.modules.pop("dashboards", None)
    import dashboards

    assert dashboards.texts() == {file.name: file.read_text() for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_dashboard(file: Path, tmp_path: Path) -> None:
    """Prometheus reads each query, someone serves what it asks for, and each panel says what to make of it."""
    asked = queries(file)
    assert len(asked) >= 5
    assert unknown("\n".join(asked)) == set()
    assert not any("$" in text for text in asked)
    rules = tmp_path / "rules.yml"
    rules.write_text(
        json.dumps(
            {
                "groups": [
                    {
                        "name": "panels",
                        "rules": [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(asked)],
                    }
                ]
            }
        )
    )
    assert f"SUCCESS: {len(asked)} rules found" in promtool("check", "rules", str(rules))
    for panel in panels(file):
        assert panel["description"] and panel["datasource"]["uid"] == "${datasource}", panel["title"]

"""Comparisons of QEMUs in alternating order: what their ratios mean."""

from __future__ import annotations

import argparse
import json
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

import pytest

from tests.bench import alternate
from tests.framework.qemu import Boot


def test_ratios_within_rounds_do_not_see_a_drift() -> None:
    """A host that gets slower by the half in mid-series, and a variant that costs 2 %: medians of series cannot tell."""
    base = [100.0, 90.0, 50.0, 45.0, 40.0]
    text = alternate.summary("speed", {"unpatched": base, "unset": base[::-1], "foreground": [0.98 * each for each in base]})
    unset, foreground = text.splitlines()[1:]
    assert "within rounds 0.980 (90%: 0.980 to 0.980, 5 rounds)" in foreground
    assert "medians 1.000" in unset and "0.400 to 2.500" in unset


def test_each_round_runs_every_variant_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    """Alternating, in processes that live as long as a repeat; all of it is in the data."""
    runs: list[str] = []
    opened: list[dict[str, Boot]] = []

    def measure(variant: str, _seconds: float) -> dict[str, float]:
        runs.append(variant)
        return {"speed": 2.0 if variant == "unpatched" else 1.0}

    @contextmanager
    def context(boots: dict[str, Boot]) -> Iterator[alternate.Measure]:
        opened.append(boots)
        yield measure

    monkeypatch.setattr(alternate.host, "facts", lambda boot: {})
    monkeypatch.setattr(alternate.paths, "find_qemu", lambda qemu: qemu)
    comparison = alternate.Comparison("test", context, {}, (alternate.Figure("speed", "m/s", lambda report: report["speed"]),))
    arguments = argparse.Namespace(output=tmp_path / "data.jsonl", unpatched="stock", repeats=2, rounds=3, seconds=1)
    alternate.run(comparison, Boot(Path("qemu"), Path("kernel"), Path("initramfs"), "tcg"), arguments)
    assert len(opened) == 2 and opened[0]["unpatched"].qemu == "stock"
    assert len(runs) == 2 * 3 * 3
    assert runs[:3] == list(alternate.VARIANTS) and runs[3:6] == list(alternate.VARIANTS[::-1])
    lines = [json.loads(line) for line in arguments.output.read_text().splitlines()]
    assert [(line["repeat"], line["round"]) for line in lines[1::3]] == [(r, n) for r in range(2) for n in range(3)]
    assert "foreground  medians 0.500; within rounds 0.500" in capsys.readouterr().out

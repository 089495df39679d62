"""The latency probe's instruments without guests: who gets the processors, and what the table shows of the runs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Iterator

import numpy as np
import pytest
from matplotlib import pyplot

from tests.bench.net import plan
from tests.bench.net.processors import Processors
from tests.bench.net.stages import summary
from tests.report import netprobe, netresults
from tests.report.netresults import FIRST, IDLE, SHARED, WAYS, WEIGHT
from tests.testbed.namespace import NamespaceError

PACKET_MS = 1514 * 8 / 100_000
"""A full packet's time at 100 Mbit/s."""

STAGED = np.dtype([("start_us", "<u4"), ("latency_us", "<u4"), ("uplink_us", "<f4"), ("far_us", "<f4"), ("back_us", "<f4"),
                   ("guest_us", "<f4")])


@pytest.fixture
def pids() -> Iterator[dict[str, list[int]]]:
    """A process of each role."""
    children = {role: subprocess.Popen(["sleep", "60"]) for role in ("foreground", "background")}
    yield {role: [child.pid] for role, child in children.items()}
    for child in children.values():
        child.kill()
        child.wait()


def group_of(pid: int) -> Path:
    """Its cgroup with the controller cpu."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("cpu", ""):
            found = Path("/sys/fs/cgroup") / controllers / path.lstrip("/")
            if (found / "cpu.idle").exists():
                return found
    return Path()


def test_the_processors_are_shared_as_said(pids: dict[str, list[int]]) -> None:
    """Least weight, idle, foreground first, and back; the cgroup is gone with its processes."""
    [foreground], [background] = pids.values()
    seen = {}
    try:
        with Processors() as processors:
            for way in (WEIGHT, IDLE, FIRST, SHARED):
                processors.assign(way, **pids)
                group = group_of(background)
                weight = next(group / name for name in ("cpu.shares", "cpu.weight") if (group / name).exists())
                seen[way] = os.sched_getscheduler(foreground), (group / "cpu.idle").read_text(), int(weight.read_text())
            assert group_of(foreground) != group
            os.kill(background, 9)
            os.waitid(os.P_PID, background, os.WEXITED | os.WNOWAIT)
    except (NamespaceError, PermissionError) as error:
        pytest.skip(str(error))

    usual = seen[SHARED][2]
    assert seen[FIRST] == (os.SCHED_FIFO, "0\n", usual) and seen[SHARED] == (os.SCHED_OTHER, "0\n", usual)
    assert seen[WEIGHT][0] == os.SCHED_OTHER and seen[WEIGHT][2] <= 2 < usual
    assert seen[IDLE][:2] == (os.SCHED_OTHER, "1\n")
    assert not group.exists()


def test_the_summary_tells_where_the_slowest_were() -> None:
    """Of 200 requests the two slowest took 9 ms in the guest; one that was not seen on its way does not count."""
    samples = np.zeros(201, STAGED)
    samples["latency_us"], samples["guest_us"], samples["uplink_us"] = 1000, 900, 100
    samples["latency_us"][:2], samples["guest_us"][:2] = 9100, 9000
    samples["latency_us"][2], samples["guest_us"][2] = 50_000, np.nan
    found = summary(samples)

    assert found["guest"]["p50_us"] == 900 and found["guest"]["slowest_us"] == 9000
    assert found["uplink"] == {"p50_us": 100, "p99_us": 100, "slowest_us": 100}
    assert summary(samples[2:3]) == {}


def ledger(folder: Path) -> Path:
    """Two runs of each of three cases, of 100 requests: alone all take 1 ms, beside a background 2 ms and once 3."""
    path = folder / "results.jsonl"
    cases = {"shared": plan.Case("ask"), "beside": plan.Case("ask", "udp", auto=True),
             "elsewhere": plan.Case("ask", "udp", auto=True, elsewhere=True)}
    with path.open("w") as lines:
        for name, case in cases.items():
            latencies = np.full(100, 2000 if case.background else 1000, "<u4")
            for repeat in range(2):
                slowest = 3000 if case.background and repeat else int(latencies[0])
                samples = np.zeros(100, STAGED)
                samples["latency_us"], samples["guest_us"] = slowest, 500
                np.save(folder / f"{name}-{repeat}.npy", samples)
                role = {"mbit_s": None, "load": {"p50_us": 1, "p99_us": slowest, "p999_us": 1}, "tcp_retransmitted": 0,
                        "sink": None, "stages": summary(samples)}
                line = {"kind": "run", "series": "pairs", "repeat": repeat, "case": case.parameters(), "uplink": None,
                        "link": plan.LINK.parameters(), "foreground": role, "latencies": f"{name}-{repeat}.npy",
                        "background": {**role, "mbit_s": 80.0} if case.background else None}
                lines.write(json.dumps(line) + "\n")
    return path


def test_the_table_of_the_probe(tmp_path: Path) -> None:
    """All requests of a case together; beside a background a tenth more is allowed, and one packet's time."""
    path = ledger(tmp_path)
    alone = netresults.load(path).cases[0]
    rows = [line.split() for line in netprobe.text(path).splitlines()]

    assert netprobe.allowed_ms(alone) == pytest.approx(1.1 + PACKET_MS)
    assert ["shared", "equally"] in rows and len(WAYS) == 4
    assert ["none", "200", "1.00", "1.00", "1.0", "to", "1.0", "0.00", "0.50"] in rows
    assert ["UDP,", "auto", "200", "2.50", "3.00", "1.22", "2.0", "to", "3.0", "0.00", "0.50", "80.0", "82%"] in rows
    assert any(row[:4] == ["UDP,", "auto,", "other", "uplink"] for row in rows)


def test_the_picture_of_the_probe(tmp_path: Path) -> None:
    """A bar for each case and its part on the uplink; two cases have a background, and so a line."""
    figure = netprobe.picture(netresults.load(ledger(tmp_path)))
    [axes] = figure.axes
    pyplot.close(figure)

    assert [bar.get_height() for bar in axes.patches][::2] == pytest.approx([1, 3, 3])
    assert [line.get_segments()[0][0][1] for line in axes.collections] == pytest.approx([1.1 + PACKET_MS] * 2)

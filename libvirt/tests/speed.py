# SPDX-License-Identifier: GPL-2.0-or-later
"""How long it takes to decide about a domain, and to show the status of 50; prints one JSON line each, asserts nothing.

    python3 libvirt/tests/speed.py

decide: each golden domain 20 times, resolution on the fixture host included. status: the whole program, from start
to exit, on libvirt's test driver with 50 running domains (it has no QEMU to ask: what a query costs is not in it).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import nodes  # noqa: E402
import trees  # noqa: E402
from conftest import Lookup  # noqa: E402
from idletime import verdict  # noqa: E402
from idletime.conf.rules import Rules  # noqa: E402
from idletime.resolve import Host  # noqa: E402

TIMES = 20


def milliseconds(call) -> tuple[float, float]:
    """Time, and processor time of this process and of those it has waited for."""
    start, busy = time.perf_counter(), sum(os.times()[:4])
    call()
    return (time.perf_counter() - start) * 1000, (sum(os.times()[:4]) - busy) * 1000


def summary(what: str, series: list[tuple[float, float]], **more: object) -> None:
    times = [one for one, _ in series]
    line = {
        "what": what,
        "median_ms": round(statistics.median(times), 2),
        "max_ms": round(max(times), 2),
        "mean_cpu_ms": round(statistics.mean(cpu for _, cpu in series), 2),
        "runs": len(series),
    }
    print(json.dumps({**line, **more}))


def decide(root: str) -> None:
    lookup, whole = Lookup(), []
    cases = [path.read_text() for path in (HERE / "data/plan").glob("*.xml")]
    for xml in cases:
        for _ in range(TIMES):
            whole.append(milliseconds(lambda xml=xml: verdict.of_domain(xml, Rules(), Host(root, lookup))))
    summary("decide, resolution included", whole, domains=len(cases))


def status(directory: Path) -> None:
    uri = nodes.write(directory / "node.xml", 50)
    program = HERE.parent / "bin/virt-idletime"
    for arguments in (["status"], ["status", "--json"], ["list"]):
        series = [
            milliseconds(
                lambda a=arguments: subprocess.run([program, "-c", uri, *a], check=True, stdout=subprocess.DEVNULL)
            )
            for _ in range(TIMES)
        ]
        summary("virt-idletime " + " ".join(arguments), series, domains=50, driver="test")


if __name__ == "__main__":
    print(json.dumps({"cores": os.cpu_count(), "python": sys.version.split()[0]}))
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "rack").mkdir()
        decide(str(trees.expand(HERE / "data/hosts/rack.tree", Path(name) / "rack")))
        status(Path(name))

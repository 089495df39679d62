# SPDX-License-Identifier: GPL-2.0-or-later
"""Measures the two benchmark tenants of this host: each alone, together, and with intervals.

    measure.py HOST SECONDS INTERVAL_US...

Prints one JSON object. The tenants put their load on their disks all the time and
report on their consoles, one line for each 2 s; a phase is what they reported in it.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAMES = {"foreground": "idletime-bench-foreground", "background": "idletime-bench-background"}
CONSOLES = Path("/var/log/libvirt/qemu")
BOOT_SECONDS = 120
"""A guest boots in 2 s when it is emulated on an idle processor; the rest is for busy ones."""

Phase = dict[str, Any]


def virsh(*words: str) -> str:
    """A command of virsh; an error ends the measurement with virsh's own words."""
    return subprocess.run(["virsh", "--quiet", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def qmp(role: str, command: str, **arguments: Any) -> Any:
    """A QMP command to a tenant; underscores in names become dashes."""
    fixed = {name.replace("_", "-"): value for name, value in arguments.items()}
    text = json.dumps({"execute": command, "arguments": fixed})
    return json.loads(virsh("qemu-monitor-command", NAMES[role], text))["return"]


class Console:
    """Reads what a tenant has reported since the last look; virtlogd may have moved the file in between."""

    def __init__(self, role: str) -> None:
        self.path = CONSOLES / f"{NAMES[role]}-console.log"
        self.inode, self.offset = 0, 0
        self.read()

    def read(self) -> list[dict[str, Any]]:
        """Whole reports only; what is no report is left out."""
        text = b""
        old = self.path.with_name(self.path.name + ".0")
        if self.inode not in (0, self._inode()) and old.exists():
            text, self.offset = self._from(old, self.offset), 0
        text += self._from(self.path, self.offset) if self.path.exists() else b""
        cut = text.rfind(b"\n") + 1
        self.inode, self.offset = self._inode(), self.offset + cut
        return [report for report in map(self._parse, text[:cut].splitlines()) if "operations" in report]

    def _inode(self) -> int:
        return self.path.stat().st_ino if self.path.exists() else 0

    @staticmethod
    def _from(path: Path, offset: int) -> bytes:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read()

    @staticmethod
    def _parse(line: bytes) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


def summary(reports: list[dict[str, Any]]) -> dict[str, Any] | None:
    """One tenant in one phase; the first report began before the phase."""
    whole = [report for report in reports[1:] if report["operations"]]
    if not whole:
        return None
    operations = sum(report["operations"] for report in whole)
    return {
        "operations_per_second": operations / sum(report["seconds"] for report in whole),
        "mean_us": sum(report["mean_us"] * report["operations"] for report in whole) / operations,
        "p99_us_median_of_windows": statistics.median(report["p99_us"] for report in whole),
        "max_us": max(report["max_us"] for report in whole),
        "windows": len(whole),
    }


class Bench:
    """The two tenants, and what is done with them."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.consoles = {role: Console(role) for role in NAMES}
        found = {role: qmp(role, "query-idletime")[0] for role in NAMES}
        self.resources = {role: one["id"] for role, one in found.items()}
        self.device = found["background"]["devices"][0]["device"]

    def await_ready(self) -> None:
        """Return when both have reported."""
        end = time.monotonic() + BOOT_SECONDS
        missing = set(NAMES)
        while missing:
            missing -= {role for role in missing if self.consoles[role].read()}
            if time.monotonic() > end:
                raise SystemExit(f"error: no report of {', '.join(missing)} within {BOOT_SECONDS} s; look at {CONSOLES}")
            time.sleep(0.5)

    def control(self, interval_us: int | None) -> None:
        """Hold the background back by an interval, or (None) not at all."""
        for role in NAMES:
            qmp(role, "idletime-set", resource=self.resources[role], interval_us=interval_us or 0)
        name = "foreground" if interval_us is None else "background"
        qmp("background", "idletime-set", device=self.device, **{"class": name})

    def measure(self, name: str, roles: list[str], interval_us: int | None = None) -> Phase:
        """One phase with these tenants; the others are suspended."""
        self.control(interval_us)
        for role, domain in NAMES.items():
            state = virsh("domstate", domain).strip()
            if (state == "running") != (role in roles):
                virsh("resume" if role in roles else "suspend", domain)
        for console in self.consoles.values():
            console.read()
        time.sleep(self.seconds)
        result: Phase = {"name": name, "interval_us": interval_us, "seconds": self.seconds}
        for role, console in self.consoles.items():
            reports = console.read()
            result[role] = summary(reports) if role in roles else None
        return result


def main() -> int:
    """Prints the result; see above."""
    host, seconds, *intervals = sys.argv[1:]
    bench = Bench(float(seconds))
    bench.await_ready()
    both = list(NAMES)
    phases = [
        bench.measure("foreground alone", ["foreground"]), bench.measure("background alone", ["background"]),
        bench.measure("uncontrolled", both),
        *(bench.measure(f"interval {int(each) / 1000:g} ms", both, int(each)) for each in intervals),
    ]
    version = qmp("foreground", "query-version")["qemu"]
    print(json.dumps({
        "host": host, "qemu": "{major}.{minor}.{micro}".format(**version),
        "accelerator": "kvm" if qmp("foreground", "query-kvm")["enabled"] else "tcg",
        "query_idletime": qmp("background", "query-idletime"), "phases": phases,
    }))
    return 0


if __name__ == "__main__":
    sys.exit(main())

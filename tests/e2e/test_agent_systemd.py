"""The agent on a real systemd, in a real guest: what Go's tests do in namespaces, on a kernel whose controllers are cgroup v2's.

They look at systemd's properties and at the kernel's cpu.idle, at the cgroup of each process, and at the agent's rights as
its unit confines it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.framework import agent
from tests.framework.qemu import Boot

LIMIT_SECONDS = 400.0
"""Boot, tests and end take 60 s under TCG; more on a busy host."""

PROGRAMS = ("marks.test", "idletime-agent.test")


def test_units_and_sessions(boot: Boot, scratch: Path) -> None:
    """Both test programs pass, and the guest switches itself off."""
    image = agent.build("systemd-guest") / "systemd-guest.gz"
    serial = scratch / "serial"
    command = [
        str(boot.qemu), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "q35", "-accel", boot.accel,
        "-cpu", "max", "-m", "1024", "-serial", f"file:{serial}", "-kernel", str(boot.kernel), "-initrd", str(image),
        "-append", "console=ttyS0 panic=-1 quiet",
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, stdin=subprocess.DEVNULL)
    said = serial.read_text(errors="replace")
    assert result.returncode == 0, result.stderr
    missing = [name for name in PROGRAMS if f"{name} passed" not in said]
    assert not missing and "--- SKIP" not in said, said

# SPDX-License-Identifier: GPL-2.0-or-later
"""libvirt's hook: python3 -m idletime.hostd.hook --config FILE DOMAIN OPERATION SUB-OPERATION EXTRA <XML

Two things, when a domain is started, restored, or taken in by a migration. With `strict = true` a background one is not, while
idletimed is not alive. And where background VMs give memory back, one that is not background waits until there is enough for
it, for the stated time at the most, and starts whatever came of it. Exit status 3 refuses.
"""

from __future__ import annotations

import contextlib
import os
import sys
import syslog
import time
from collections.abc import Callable
from pathlib import Path

from ..conf import rules
from ..errors import IdletimeError
from ..police.look import Look
from ..policy import Policy
from ..policy.model import Class
from ..resolve.tree import Tree
from ..xmltree import read
from . import alive, memory, settings

POLL_SECONDS = 0.1
REFUSED = 3
"""Exit status. 1 and 2 are those of a Python that could not even begin."""


def is_background(policy: Policy | None) -> bool:
    """Whether anything of a domain is to be held."""
    if policy is None:
        return False
    devices = (*policy.disks, *policy.interfaces)
    return policy.class_ is not Class.FOREGROUND or any(
        one.queues or one.class_ not in (None, Class.FOREGROUND) for one in devices)


def refusal(name: str, xml: str, options: settings.Settings, known: rules.Rules) -> str | None:
    """Why a domain is not started; None if it is. What is wrong in a policy is no reason."""
    if not options.strict or alive.alive(options.run_dir):
        return None
    try:
        decision = rules.decide_xml(xml, known)
    except IdletimeError:
        return None
    if not is_background(decision.policy):
        return None
    return (f"domain '{name}' is {decision}, and idletimed is not alive to hold what it sends; remedy: systemctl start "
            "idletimed, or set strict = false in /etc/idletime/idletimed.toml")


def make_room(xml: str, options: settings.Settings, known: rules.Rules, files: Look | None = None,
              sleep: Callable[[float], None] = time.sleep) -> float:
    """Wait until the memory of a domain is free, if background VMs may give it; for how long, in seconds."""
    wants = _bytes(xml, known) if (Path(options.run_dir) / memory.GIVES).exists() and alive.alive(options.run_dir) else 0
    files, waited = files or Look(), 0.0
    if not wants or _free(files, options) >= wants:
        return waited
    claim = Path(options.run_dir) / memory.STARTING / str(os.getpid())
    claim.parent.mkdir(mode=0o700, exist_ok=True)
    claim.write_text(str(wants))
    try:
        while waited < options.memory.within_seconds and _free(files, options) < wants:
            sleep(POLL_SECONDS)
            waited += POLL_SECONDS
    finally:
        with contextlib.suppress(OSError):
            claim.unlink()
    return waited


def _bytes(xml: str, known: rules.Rules) -> int:
    """Memory of a domain that is not background; 0 of one that is, or of which nothing is known, and of one that has huge
    pages: those are set aside, and nothing that others give becomes one."""
    try:
        decision = rules.decide_xml(xml, known)
    except IdletimeError:
        return 0
    if decision.policy is not None and decision.policy.class_ is Class.BACKGROUND:
        return 0
    root = read(xml)
    if root.find("memoryBacking/hugepages") is not None:
        return 0
    text = (root.findtext("currentMemory") or root.findtext("memory") or "").strip()
    return int(text) * 1024 if text.isdecimal() else 0


def _free(files: Look, options: settings.Settings) -> int:
    """Beyond the reserve; where nothing is known, all is well."""
    info = files.meminfo()
    if "MemAvailable" not in info or "MemTotal" not in info:
        return 1 << 62
    return info["MemAvailable"] - info["MemTotal"] * options.memory.reserve_percent // 100


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 go on, REFUSED."""
    syslog.openlog("idletime-hook", 0, syslog.LOG_DAEMON)
    arguments = sys.argv[1:] if arguments is None else arguments
    file = settings.FILE
    if arguments[:1] == ["--config"]:
        file, arguments = Path(arguments[1]), arguments[2:]
    name, operation, stage = (arguments + [""] * 3)[:3]
    if (operation, stage) != ("prepare", "begin"):
        return 0
    try:
        xml, options = sys.stdin.buffer.read().decode(), settings.load(file)
        known = rules.load(Tree("/", options.run_dir))
        reason = refusal(name, xml, options, known)
        if reason is None and (waited := make_room(xml, options, known)):
            _say(syslog.LOG_INFO, f"domain '{name}' waited {waited:.1f} s for memory of background domains")
    except Exception as error:  # a fault, in a file of the operator's or of ours, stops no domain
        _say(syslog.LOG_WARNING, f"domain '{name}' starts without being looked at: {type(error).__name__}: {error}")
        return 0
    if reason is not None:
        _say(syslog.LOG_ERR, reason)
    return 0 if reason is None else REFUSED


def _say(level: int, text: str) -> None:
    print(f"idletime: {text}", file=sys.stderr)
    syslog.syslog(level, f"idletime: {text}")


if __name__ == "__main__":
    sys.exit(main())

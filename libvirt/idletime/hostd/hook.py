# SPDX-License-Identifier: GPL-2.0-or-later
"""libvirt's hook: python3 -m idletime.hostd.hook --config FILE DOMAIN OPERATION SUB-OPERATION EXTRA <XML

It does one thing, with `strict = true`: a background domain is not started (nor restored, nor taken in by a migration)
while idletimed is not alive. It waits for nobody. Exit status 1 refuses.
"""

from __future__ import annotations

import sys
import syslog
from pathlib import Path

from ..conf import rules
from ..errors import IdletimeError
from ..policy import Policy
from ..policy.model import Class
from ..resolve.tree import Tree
from . import alive, settings


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


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 go on, 1 refused."""
    syslog.openlog("idletime-hook", 0, syslog.LOG_DAEMON)
    arguments = sys.argv[1:] if arguments is None else arguments
    file = settings.FILE
    if arguments[:1] == ["--config"]:
        file, arguments = Path(arguments[1]), arguments[2:]
    name, operation, stage = (arguments + [""] * 3)[:3]
    if (operation, stage) != ("prepare", "begin"):
        return 0
    try:
        reason = refusal(name, sys.stdin.buffer.read().decode(), settings.load(file), rules.load(Tree("/")))
    except Exception as error:  # a fault, in a file of the operator's or of ours, stops no domain
        _say(syslog.LOG_WARNING, f"domain '{name}' starts without being looked at: {type(error).__name__}: {error}")
        return 0
    if reason is not None:
        _say(syslog.LOG_ERR, reason)
    return 0 if reason is None else 1


def _say(level: int, text: str) -> None:
    print(f"idletime: {text}", file=sys.stderr)
    syslog.syslog(level, f"idletime: {text}")


if __name__ == "__main__":
    sys.exit(main())

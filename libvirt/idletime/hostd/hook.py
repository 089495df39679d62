# SPDX-License-Identifier: GPL-2.0-or-later
"""libvirt's hook: python3 -m idletime.hostd.hook --config FILE DOMAIN OPERATION SUB-OPERATION EXTRA <XML

Called by /etc/libvirt/hooks/qemu.d/idletime. Needs neither idletimed nor a connection: a hook that calls libvirt
would wait for the libvirtd that waits for it. Exit status 1 refuses; XML on stdout replaces the domain's.
"""

from __future__ import annotations

import sys
import syslog
from dataclasses import replace
from pathlib import Path

from .. import compiler, resolve
from ..compiler import stored
from ..compiler.merge import NAMESPACE as COMPILED
from ..errors import PolicyError
from ..resolve.tree import Tree
from . import arena, owner, settings, verdict


def compiled(xml: str, options: settings.Settings) -> compiler.CompileResult | PolicyError:
    """What the compiler makes of a domain on this host. The emulator is not asked: a start does not wait for that."""
    try:
        lookup = resolve.LibvirtFiles(Tree("/"))
        return compiler.compile(xml, resolve.gather(xml, lookup=lookup, run_dir=options.run_dir))
    except PolicyError as error:
        return error


def as_it_was(xml: str, options: settings.Settings) -> compiler.CompileResult | None:
    """The same on the host as it was when the domain was compiled; None if it never was, or not with this policy."""
    if COMPILED not in xml:
        return None
    try:
        result = compiler.compile(xml, stored.facts_of(xml, options.run_dir))
    except PolicyError:
        return None
    return result if result.xml == xml else None


def judge(operation: str, name: str, xml: str, options: settings.Settings) -> verdict.Verdict:
    """The verdict, with the arenas made that it wants."""
    result = verdict.decide(operation, name, xml, compiled(xml, options), options, as_it_was(xml, options))
    if result.refuse or not result.arenas:
        return result
    try:
        who = owner.of_domain(xml, options.owner)
        for path in result.arenas:
            arena.make(path, who, arena.selinux_label)
    except (OSError, ValueError) as error:
        return replace(result, refuse=options.on_misfit == "refuse", messages=(*result.messages, str(error)))
    return result


def read_settings(file: Path) -> tuple[settings.Settings, tuple[str, ...]]:
    """The operator's settings; where they cannot be read, the defaults and the reason."""
    try:
        return settings.load(file), ()
    except settings.SettingsError as error:
        return settings.Settings(), (f"{error}; going on with the defaults",)


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 go on, 1 refused."""
    syslog.openlog("idletime-hook", 0, syslog.LOG_DAEMON)
    arguments = sys.argv[1:] if arguments is None else arguments
    file = settings.FILE
    if arguments[:1] == ["--config"]:
        file, arguments = Path(arguments[1]), arguments[2:]
    name, operation, stage = (arguments + [""] * 3)[:3]
    if operation not in verdict.OPERATIONS or stage != "begin":
        return 0
    options, complaints = read_settings(file)
    xml = sys.stdin.buffer.read().decode()
    try:
        result = judge(operation, name, xml, options)
    except Exception as error:  # a fault of ours is a policy that cannot be put in force, and no worse
        reason = f"domain '{name}': the hook failed: {type(error).__name__}: {error}"
        result = verdict.Verdict(options.on_misfit == "refuse", (reason,))
    for message in (*complaints, *result.messages):
        print(f"idletime: {message}", file=sys.stderr)
        syslog.syslog(syslog.LOG_ERR if result.refuse else syslog.LOG_WARNING, f"idletime: {message}")
    if result.refuse:
        return 1
    if result.xml is not None:
        sys.stdout.write(result.xml)
    return 0


if __name__ == "__main__":
    sys.exit(main())

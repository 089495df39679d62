# PYTHON_ARGCOMPLETE_OK
# SPDX-License-Identifier: GPL-2.0-or-later
"""The command line of virt-idletime, as data for argparse and argcomplete."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from .. import VERSION
from ..hostd.settings import FILE
from ..policy.edit import DEVICE_SETTABLE, SETTABLE

_EPILOG = """exit status:
  0  done                                    4  the policy does not fit the domain or the host
  1  libvirt, QEMU or the host refused       5  written, but not (all) in force now
  2  wrong command line                      6  there is no such domain
  3  the policy is not valid                 7  done, but a file below /etc/idletime was left out
(doctor: 0 all is well, 1 warnings, 2 errors)
see also virt-idletime(1), idletime-policy(5), idletimed-rules(5)"""

_CHANGES = (
    ("mark", "make domains background"),
    ("unmark", "take the domains' own policy away: what rules and the default say holds again"),
    ("enable", "make domains foreground that is seen; --all: all of which nothing else speaks, as the host's default"),
    ("disable", "undo enable: take foreground policies away, or with --all the host's default"),
)


def parser() -> argparse.ArgumentParser:
    """The whole command line. Each command sets run=(name of a function in commands)."""
    top = argparse.ArgumentParser("virt-idletime", epilog=_EPILOG, allow_abbrev=False,
                                  formatter_class=argparse.RawDescriptionHelpFormatter,
                                  description="Who of this host's domains is background, and what becomes of that.")
    top.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    top.add_argument("-c", "--connect", metavar="URI", help="libvirt connection (default: libvirt's)")
    top.add_argument("--settings", metavar="FILE", type=Path, default=FILE, dest="settings_file",
                     help="settings of idletimed (default: %(default)s)")
    top.add_argument("--run-dir", metavar="DIR", help="parent of all arenas (default: run-dir of the settings)")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    _check(commands)
    for name, text in _CHANGES:
        _change(commands, name, text)
    _migrate(commands)
    _shows(commands)
    _trace(commands)
    return top


def _command(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
    command.set_defaults(run=name)
    command.add_argument("--json", action="store_true", help="print JSON")
    return command


def _domain(command: argparse.ArgumentParser, help_: str = "name, UUID or id of a domain", **options: Any) -> None:
    argument = command.add_argument("domain", metavar="DOMAIN", help=help_, **options)
    argument.completer = complete_domain  # type: ignore[attr-defined]


def _check(commands: Any) -> None:
    check = _command(commands, "check", "check the policy of a file or domain, without changing anything")
    argument = check.add_argument("source", metavar="FILE|DOMAIN", help="domain XML, a policy, - for standard input, or a "
                                  "domain (its persistent XML)")
    argument.completer = complete_domain  # type: ignore[attr-defined]
    check.add_argument("--root", metavar="DIR", default="/", help="look for /etc/idletime, /sys, /proc and images below DIR")
    check.add_argument("--policy", metavar="FILE|CLASS", help="use the policy of this file instead of the domain's, or one "
                       "that says nothing but this class (foreground, background, guest)")


def _change(commands: Any, name: str, text: str) -> None:
    command = _command(commands, name, text)
    _domain(command, "name, UUID, id or glob such as 'ci-*'", nargs="*")
    command.add_argument("-a", "--all", action="store_true", help="all of this host" if name in ("mark", "unmark") else
                         "the default of this host")
    excepted = command.add_argument("--except", action="append", default=[], metavar="DOMAIN", dest="excepted",
                                    help="but not these (name, UUID, id or glob)")
    excepted.completer = complete_domain  # type: ignore[attr-defined]
    command.add_argument("-n", "--dry-run", action="store_true", help="only print what would change")
    command.add_argument("--no-wait", action="store_true", help="do not wait until idletimed has carried it out")
    if name == "mark":
        command.add_argument("--class", dest="class_", choices=("background", "guest"), default=None,
                             help="guest: the guest decides for each request, downward only (default: background)")
        command.add_argument("--policy", metavar="FILE", help="the policy of this file instead")
    if name in ("mark", "enable"):
        settings = command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="values",
                                        help=", ".join(SETTABLE))
        settings.completer = complete_setting  # type: ignore[attr-defined]
        for kind in ("disk", "interface"):
            command.add_argument(
                f"--{kind}", action="append", default=[], metavar="TARGET=RESOURCE",
                help=f"name the resource of this {kind} ('all': of the others; 'none' leaves it out); "
                     f"TARGET:NAME=VALUE sets {', '.join(DEVICE_SETTABLE[1:])}")


def _migrate(commands: Any) -> None:
    command = _command(commands, "migrate", "migrate a running domain to another host, as idle load if you say so")
    _domain(command)
    command.add_argument("destination", metavar="URI", help="libvirt connection to the other host: qemu+ssh://host2/system")
    command.add_argument("--idle", action="store_true", help="send while this host's uplink is idle; else its policy decides")
    command.add_argument("--by", type=_time_of_day, metavar="HH:MM", help="with --idle: the time of day by which it is done")
    command.add_argument("--if-diverging", choices=("wait", "foreground"), default="wait",
                         help="with --idle: what to do where the guest writes more than leaves (default: wait)")
    command.add_argument("--migrate-uri", metavar="URI", help="where the other host takes the stream (default: it says)")
    command.add_argument("--auto-converge", action="store_true", help="slow the guest down if it writes more than is sent")
    command.add_argument("--unsafe", action="store_true", help="also where libvirt takes its disks' caches for unsafe")


def _time_of_day(text: str) -> str:
    if not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no time of day; write such as 06:00")
    return text


def _shows(commands: Any) -> None:
    status = _command(commands, "status", "show what is in force, of one domain or of all that are not stock")
    _domain(status, nargs="?")
    list_ = _command(commands, "list", "list the domains with their class")
    list_.add_argument("--all", action="store_true", help="also domains that are not attached")
    explain = _command(commands, "explain", "say why a domain is what it is, and why its requests are held now")
    _domain(explain)
    jobs = _command(commands, "jobs", "show the block jobs and migrations that run: how far, how fast, and what holds them")
    _domain(jobs, nargs="?")
    jobs.add_argument("-d", "--delay", type=_seconds, default=1.0, metavar="SECONDS",
                      help="between the two looks that the rate is of (default: 1)")
    resources = _command(commands, "resources", "list the resources of this host, and who is on them")
    doctor = _command(commands, "doctor", "look for what keeps this host from working as it should, with remedies")
    calibrate = _command(commands, "calibrate", "find out what of the host's disks and uplinks is no VM's work, for suspension")
    calibrate.add_argument("-s", "--seconds", type=_seconds, default=60.0, help="for which to look (default: 60)")
    _command(commands, "gauge", "say how much of each resource the foreground leaves spare, also where nobody is background")
    top = _command(commands, "top", "show live what resources and devices do; keys change class and interval")
    top.add_argument("-b", "--batch", action="store_true", help="print tables instead, one look after the other")
    top.add_argument("-d", "--delay", type=_seconds, default=1.0, metavar="SECONDS",
                     help="between two looks; more where they would take above 1 %% of a processor (default: 1)")
    top.add_argument("-n", "--count", type=_count, metavar="LOOKS", help="of --batch and --json: end after so many")
    for command in (status, list_, explain, jobs, resources, doctor, top):
        command.add_argument("-r", "--readonly", action="store_true",
                             help="read-only connection to libvirt: figures are those of idletimed's last look")


def _trace(commands: Any) -> None:
    text = "make a picture of requests, for ui.perfetto.dev or chrome://tracing, from QEMUs' trace events"
    trace = commands.add_parser("trace", help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
    trace.set_defaults(run="trace")
    trace.add_argument("logs", metavar="LOG", nargs="+", help="log of a QEMU with trace events; several are drawn on one clock")
    trace.add_argument("-o", "--output", metavar="FILE", help="write it there (default: standard output)")


def _seconds(text: str) -> float:
    """Raises ValueError, of which argparse makes an error."""
    value = float(text)
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"'{text}' is not from 0.1 to 3600 seconds")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not 1 or more")
    return value


def complete_domain(parsed_args: Any, **_: Any) -> list[str]:
    """Names of domains, for argcomplete."""
    try:
        from .. import domains
        connection = domains.connect(getattr(parsed_args, "connect", None), read_only=True)
        return [domain.name() for domain in connection.listAllDomains()]
    except Exception:  # completion must never disturb the shell
        return []


def complete_setting(**_: Any) -> list[str]:
    """Names that --set knows."""
    return [f"{name}=" for name in SETTABLE]

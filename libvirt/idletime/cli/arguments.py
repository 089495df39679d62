# PYTHON_ARGCOMPLETE_OK
# SPDX-License-Identifier: GPL-2.0-or-later
"""The command line of virt-idletime, as data for argparse and argcomplete."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .. import VERSION
from ..hostd.settings import FILE
from ..policy.edit import DEVICE_SETTABLE, SETTABLE

_EPILOG = """exit status:
  0  done                                    4  the policy does not fit the domain or the host
  1  libvirt, QEMU or the host refused       5  done in part: the rest needs a restart of the domain
  2  wrong command line                      6  there is no such domain
  3  the policy is not valid                 7  done, but a file below /etc/idletime was left out
see also virt-idletime(1), idletime-policy(5), idletimed-rules(5)"""


def parser() -> argparse.ArgumentParser:
    """The whole command line. Each command sets run=(name of a function in commands)."""
    top = argparse.ArgumentParser("virt-idletime", epilog=_EPILOG, allow_abbrev=False,
                                  formatter_class=argparse.RawDescriptionHelpFormatter,
                                  description="Idletime policies of libvirt domains: check, compile, apply, show.")
    top.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    top.add_argument("-c", "--connect", metavar="URI", help="libvirt connection (default: libvirt's)")
    top.add_argument("--settings", metavar="FILE", type=Path, default=FILE, dest="settings_file",
                     help="settings of idletimed (default: %(default)s)")
    top.add_argument("--run-dir", metavar="DIR", help="parent of all arenas (default: run-dir of the settings)")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for add in (_files, _changes, _shows):
        add(commands)
    return top


def _command(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
    command.set_defaults(run=name)
    return command


def _domain(command: argparse.ArgumentParser, **options: Any) -> None:
    argument = command.add_argument("domain", metavar="DOMAIN", help="name, UUID or id of a domain", **options)
    argument.completer = complete_domain  # type: ignore[attr-defined]


def _json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON")


def _policy(command: argparse.ArgumentParser) -> None:
    command.add_argument("--policy", metavar="FILE|CLASS", help="use the policy of this file instead of the domain's, "
                         "or one that says nothing but this class (foreground, background, guest)")


def _target(command: argparse.ArgumentParser, what: str) -> None:
    command.add_argument("--live", action="store_true", help=f"{what} the running domain")
    command.add_argument("--config", action="store_true", help=f"{what} what the next start uses "
                         "(default: both, as far as there is a running and a persistent domain)")


def _files(commands: Any) -> None:
    check = _command(commands, "check", "check the policy of a file or domain, without changing anything")
    compile_ = _command(commands, "compile", "print the domain XML that a policy compiles to")
    for command in (check, compile_):
        argument = command.add_argument("source", metavar="FILE|DOMAIN", help="domain XML, - for standard input, "
                                        "or a domain (its persistent XML)")
        argument.completer = complete_domain  # type: ignore[attr-defined]
        command.add_argument("--root", metavar="DIR", default="/", help="look for /sys, /proc and images below DIR")
        _policy(command)
    _json(check)
    compile_.add_argument("--undo", action="store_true", help="take out what was compiled in; the policy stays")
    compile_.add_argument("--device", metavar="FILE", help="print this device's XML, ready for virsh attach-device")


def _changes(commands: Any) -> None:
    apply = _command(commands, "apply", "bring the policy into force")
    _domain(apply)
    _policy(apply)
    _target(apply, "change")
    set_ = _command(commands, "set", "change a policy and apply it, such as: set vm1 interval-us=5000")
    _domain(set_)
    settings = set_.add_argument("settings", nargs="+", metavar="NAME=VALUE", help=", ".join(SETTABLE) +
                                 "; with --disk or --interface: " + ", ".join(DEVICE_SETTABLE))
    settings.completer = complete_setting  # type: ignore[attr-defined]
    which = set_.add_mutually_exclusive_group()
    which.add_argument("--resource", metavar="NAME", help="for this resource only")
    which.add_argument("--disk", metavar="TARGET", help="of this disk; 'all' of those not named")
    which.add_argument("--interface", metavar="TARGET", help="of this interface; 'all' of those not named")
    _target(set_, "change")
    for name, text in (("mark", "make a domain background"), ("unmark", "make a domain foreground")):
        command = _command(commands, name, text)
        _domain(command)
        for kind in ("disk", "interface"):
            command.add_argument(f"--{kind}", action="append", default=[], metavar="TARGET=RESOURCE",
                                 help=f"name the resource of this {kind} ('all': of the others; 'none' leaves it out)")
        _target(command, "change")
    command.add_argument("--remove", action="store_true", help="remove the policy and all that was compiled from it")


def _shows(commands: Any) -> None:
    status = _command(commands, "status", "show what is in force, of one domain or of all with a policy")
    _domain(status, nargs="?")
    list_ = _command(commands, "list", "list the domains with their class")
    list_.add_argument("--all", action="store_true", help="also domains without a policy")
    explain = _command(commands, "explain", "say why a domain is what it is, and why its requests are held now")
    _domain(explain)
    resources = _command(commands, "resources", "list the resources of this host, and who is on them")
    for command in (status, list_, explain, resources):
        _json(command)
        command.add_argument("-r", "--readonly", action="store_true",
                             help="read-only connection to libvirt: no numbers from QEMU")


def complete_domain(parsed_args: Any, **_: Any) -> list[str]:
    """Names of domains, for argcomplete."""
    try:
        from .. import domains
        connection = domains.connect(getattr(parsed_args, "connect", None), read_only=True)
        return [domain.name() for domain in connection.listAllDomains()]
    except Exception:  # completion must never disturb the shell
        return []


def complete_setting(parsed_args: Any, **_: Any) -> list[str]:
    """Names that set knows: of a device if one is named, else of resources."""
    names = DEVICE_SETTABLE if parsed_args.disk or parsed_args.interface else SETTABLE
    return [f"{name}=" for name in names]

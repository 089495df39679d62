# SPDX-License-Identifier: GPL-2.0-or-later
"""What the operator set: /etc/idletime/idletimed.toml. The daemon and the hook read the same file.

A missing file is all defaults. A wrong one is an error for the daemon, which says so and ends; the hook says so
and looks at nothing, for a domain must not fail to start because of a slip in there.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..police.suspend import Rule

FILE = Path("/etc/idletime/idletimed.toml")


class SettingsError(ValueError):
    """The file cannot be used; the text names file, name, value and remedy."""


@dataclass(frozen=True)
class Qmp:
    """[qmp]: VMs that no libvirt has started. sockets: a path with * and ? of their QMP sockets, "" is none. name: a regular
    expression that finds a VM's name in the socket's path, by its first group; "" asks QEMU (-name).
    """

    sockets: str = ""
    name: str = ""
    look_seconds: int = 30  # QEMU tells nothing: how often a VM is looked at for devices plugged in and out


@dataclass(frozen=True)
class Metrics:
    """[metrics]: where figures are served, to be read only. socket: in the run directory. group: who may read
    it, "" is everybody. port: of TCP, 0 is none. address: of TCP, a number. look_seconds: how often figures are taken while
    somebody reads them."""

    socket: bool = True
    group: str = ""
    port: int = 0
    address: str = "127.0.0.1"
    look_seconds: int = 15


@dataclass(frozen=True)
class Api:
    """[api]: for programs such as Cockpit's page. socket: in the run directory. group: who may read, beside root, "" is
    everybody. Only root changes anything."""

    socket: bool = True
    group: str = ""


@dataclass(frozen=True)
class Suspend:
    """[suspend]: when whole background VMs are stopped. rule: how a stopped one comes back, "eii" (by probes) or "ipd" (when
    the host is idle). cpu_percent, device_percent: below this share of the background there is contention; 0 is never.
    quiet_per_second: so many accesses a second of a device that the kernel counts are nobody's work."""

    rule: str = "eii"
    cpu_percent: int = 85
    device_percent: int = 98
    quiet_per_second: int = 4


@dataclass(frozen=True)
class Rate:
    """[rate]: when background VMs with enforce='rate' are limited, in KB a second (1,000 bytes): from when the foreground moves
    more than high_kbytes on a device until it moves less than low_kbytes. limit_kbytes: for all background of the device."""

    high_kbytes: int = 1000
    low_kbytes: int = 500
    limit_kbytes: int = 500


@dataclass(frozen=True)
class Memory:
    """[memory]: when background VMs give memory back. reserve_percent: of the host's, which is to be available at least.
    within_seconds: what balloons have not brought by then is taken by saving a VM. calm_seconds: after so long without a
    shortage it goes back."""

    reserve_percent: int = 5
    within_seconds: int = 10
    calm_seconds: int = 60


@dataclass(frozen=True)
class Space:
    """[space]: when background VMs' scratch disks are trimmed and dropped. low_percent: of their file system, free; 0 is
    never."""

    low_percent: int = 5


@dataclass(frozen=True)
class Migrate:
    """[migrate]: where background VMs may be sent that get too little of this host's processors. to: URIs of libvirt with
    blanks between, "" is nowhere. dry_run: say only what would be done. block_disks: also those with block devices as disks, as
    all hosts have the same by the same name. mbytes_per_second: what a migration gets of the line. again_seconds: who was sent,
    or was to be, is not for so long."""

    to: str = ""
    dry_run: bool = False
    block_disks: bool = False
    mbytes_per_second: int = 100
    again_seconds: int = 600


@dataclass(frozen=True)
class Settings:
    """The defaults are the documentation's."""

    uri: str = "qemu:///system"  # "" is no libvirt
    strict: bool = False  # a background domain is not started while idletimed is not alive
    owner: str = ""  # of arenas, "user:group"; empty is the user that the domain's QEMU has
    run_dir: str = "/run/idletime"
    observer: str = "idletime-observer"  # the program; "" is none
    resync_seconds: int = 300  # all domains are looked at again, were an event ever lost
    qmp: Qmp = Qmp()
    metrics: Metrics = Metrics()
    api: Api = Api()
    suspend: Suspend = Suspend()
    memory: Memory = Memory()
    space: Space = Space()
    rate: Rate = Rate()
    migrate: Migrate = Migrate()


_GONE = ("on-misfit", "on-uncompiled", "compile-on-define")
"""Settings of earlier versions, which compiled. They do not stop a daemon that was upgraded."""

_SPANS = {"resync-seconds": (10, 86400), "qmp.look-seconds": (2, 86400),
          "metrics.look-seconds": (2, 3600), "metrics.port": (0, 65535),
          "memory.reserve-percent": (0, 50), "memory.within-seconds": (1, 30), "memory.calm-seconds": (1, 3600),
          "space.low-percent": (0, 50),
          "rate.high-kbytes": (1, 10**9), "rate.low-kbytes": (0, 10**9), "rate.limit-kbytes": (1, 10**9),
          "suspend.cpu-percent": (0, 100), "suspend.device-percent": (0, 100),
          "suspend.quiet-per-second": (0, 100000),
          "migrate.mbytes-per-second": (1, 100000), "migrate.again-seconds": (1, 86400)}


_TABLES: dict[str, type] = {"qmp": Qmp, "metrics": Metrics, "api": Api, "suspend": Suspend, "memory": Memory, "space": Space,
                            "rate": Rate, "migrate": Migrate}


def load(file: Path = FILE) -> Settings:
    """Read the file. Raises SettingsError."""
    try:
        data = tomllib.loads(file.read_text())
    except FileNotFoundError:
        return Settings()
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(f"{file}: {error}") from error
    for shown in _GONE:
        if data.pop(shown, None) is not None:
            logging.getLogger("idletimed").warning("%s: %s is no setting any more; remedy: remove the line", file, shown)
    tables = {name: _table(file, data, name, kind) for name, kind in _TABLES.items()}
    result = Settings(**_values(file, "", data, _types(Settings)), **tables)
    _check_name(file, result.qmp.name)
    _check_address(file, result.metrics.address)
    for uri in result.migrate.to.split():
        if "://" not in uri:
            raise SettingsError(f"{file}: migrate.to has '{uri}': use URIs of libvirt, such as qemu+ssh://host2/system, with "
                                "blanks between")
    if result.suspend.rule not in (one.value for one in Rule):
        raise SettingsError(f"{file}: suspend.rule is '{result.suspend.rule}': use {' or '.join(one.value for one in Rule)}")
    if result.rate.low_kbytes > result.rate.high_kbytes:
        raise SettingsError(f"{file}: rate.low-kbytes is {result.rate.low_kbytes}: use at most rate.high-kbytes, "
                            f"{result.rate.high_kbytes}")
    return result


def _table(file: Path, data: dict[str, Any], name: str, kind: type) -> Any:
    values = data.pop(name, {})
    if not isinstance(values, dict):
        raise SettingsError(f"{file}: {name} is {values!r}: write [{name}] above its settings")
    return kind(**_values(file, f"{name}.", values, _types(kind)))


def _types(kind: type) -> dict[str, type | None]:
    return {field.name: type(field.default) for field in fields(kind)}


def _values(file: Path, prefix: str, data: Mapping[str, Any], known: Mapping[str, type | None]) -> dict[str, Any]:
    values = {}
    for shown, value in data.items():
        name = shown.replace("-", "_")
        if name not in known or "_" in shown:
            names = ", ".join(each.replace("_", "-") for each in known)
            raise SettingsError(f"{file}: there is no setting '{prefix}{shown}'; use {names}")
        if type(value) is not known[name]:
            raise SettingsError(f"{file}: {prefix}{shown} is {value!r}: it must be of type {_name(known[name])}")
        low, high = _SPANS.get(prefix + shown, (None, None))
        if low is not None and high is not None and not low <= value <= high:
            raise SettingsError(f"{file}: {prefix}{shown} is {value}: use {low} to {high}")
        values[name] = value
    return values


def _name(kind: type | None) -> str:
    return {bool: "bool, true or false", int: "int", str: "str"}.get(kind or object, "table")


def _check_name(file: Path, text: str) -> None:
    try:
        groups = re.compile(text).groups if text else 1
    except re.error as error:
        raise SettingsError(f"{file}: qmp.name is '{text}': {error}") from error
    if groups < 1:
        raise SettingsError(f"{file}: qmp.name is '{text}': put what is the name into parentheses, such as '([^/]+)[.]qmp$'")


def _check_address(file: Path, text: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError as error:
        raise SettingsError(f"{file}: metrics.address is '{text}': use a number, such as 127.0.0.1 or ::1; "
                            "0.0.0.0 and :: are all that this host has") from error

# SPDX-License-Identifier: GPL-2.0-or-later
"""What the operator set, by oslo.config: nova.conf of the host has [placement] already, and [idletime] adds a little."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ka
from keystoneauth1 import loading as ks
from oslo_config import cfg

from . import VERSION
from .gauge import FILE

FILES = ("/etc/nova/nova.conf", "/etc/idletime/openstack.conf")
GROUP = "idletime"

OPTIONS = (
    cfg.StrOpt("provider", default="", help="Name of this compute node's resource provider; empty: the host's full name, as "
               "libvirt has it."),
    cfg.StrOpt("gauge", default=str(FILE), help="The file of idletimed: idletime-gauge(5)."),
    cfg.IntOpt("look_seconds", default=10, min=2, max=3600, help="How often the gauge is read and Placement looked at."),
)


class SettingsError(Exception):
    """The text names the setting, its value and the remedy."""


def load(arguments: Sequence[str], files: Sequence[str] | None = None) -> cfg.ConfigOpts:
    """Of the agent. Raises SettingsError; --help and a wrong command line end the program."""
    conf = cfg.ConfigOpts()
    register(conf, GROUP, OPTIONS, "placement")
    conf.register_cli_opt(cfg.BoolOpt("retire", default=False, help="Look once as if nothing were idle here any more, and end: "
                                      "before the agent goes."))
    return read(conf, "idletime-openstack", arguments, files, GROUP, OPTIONS, others=("weight_multiplier",))


_SERVICES = {"placement": "placement", "nova": "compute"}


def register(conf: cfg.ConfigOpts, group: str, options: Sequence[cfg.Opt], *services: str) -> None:
    conf.register_opts(options, group)
    for service in services:
        ks.register_auth_conf_options(conf, service)
        ks.register_session_conf_options(conf, service)
        ks.register_adapter_conf_options(conf, service)
        conf.set_default("service_type", _SERVICES[service], service)
    conf.register_cli_opt(cfg.BoolOpt("once", default=False, help="Look once, say what was done, and end."))


def read(conf: cfg.ConfigOpts, program: str, arguments: Sequence[str], files: Sequence[str] | None, group: str,
         options: Sequence[cfg.Opt], others: Iterable[str] = ()) -> cfg.ConfigOpts:
    """others: names in the group that another program reads."""
    try:
        conf(list(arguments), project="idletime", prog=program, version=VERSION,
             default_config_files=_there() if files is None else list(files))
        _no_others(conf, program, group, [*(option.name for option in options), *others])
        for option in options:
            _value(conf, group, option.name)
    except cfg.ConfigFileValueError as error:
        raise SettingsError(f"{error}; remedy: correct it, or remove the line") from error
    except cfg.Error as error:
        raise SettingsError(f"{error}; remedy: correct the file, see {program}(8)") from error
    return conf


def _no_others(conf: cfg.ConfigOpts, program: str, group: str, known: Sequence[str]) -> None:
    """oslo.config passes over names that it does not know, a misspelt dry_run too. The group is ours alone."""
    folders = [file for folder in conf.config_dir or () for file in sorted(Path(folder).glob("*.conf"))]
    for file in [*(conf.config_file or ()), *folders]:
        sections: dict[str, dict[str, list[str]]] = {}
        cfg.ConfigParser(str(file), sections).parse()
        for name in sections.get(group, {}):
            if name not in known:
                raise SettingsError(f"{file}: [{group}] has '{name}', which is no setting; remedy: correct it, or remove the "
                                    f"line: {program}(8) has {', '.join(known)}")


def _value(conf: cfg.ConfigOpts, group: str, name: str) -> None:
    try:
        conf[group][name]
    except (cfg.TemplateSubstitutionError, cfg.NoSuchOptError) as error:
        raise SettingsError(f"[{group}] {name}: {error}; remedy: write each $ that is meant as $$") from error


def _there() -> list[str]:
    return [file for file in FILES if _readable(file)]


def _readable(file: str) -> bool:
    try:
        with open(file, encoding="utf-8"):
            return True
    except OSError:
        return False


def keystone(conf: cfg.ConfigOpts) -> adapter.Adapter:
    """What speaks to Placement. Nothing is asked yet. Raises SettingsError."""
    session = session_of(conf, "placement")
    if session is None:
        raise SettingsError("[placement] auth_type is not set; remedy: give --config-file /etc/nova/nova.conf, or write "
                            "[placement] as nova.conf of a compute node has it")
    return ks.load_adapter_from_conf_options(conf, "placement", session=session)


def session_of(conf: cfg.ConfigOpts, group: str) -> Any:
    """None: nobody is said to be anyone. Each request has a time limit."""
    try:
        auth = ks.load_auth_from_conf_options(conf, group)
        return auth and ks.load_session_from_conf_options(conf, group, auth=auth, timeout=conf[group].timeout or 30)
    except (cfg.Error, ka.ClientException) as error:
        raise SettingsError(f"[{group}]: {error}; remedy: write it as nova.conf of a compute node has [placement]") from error


def provider(conf: cfg.ConfigOpts) -> str:
    return str(conf.idletime.provider) or socket.getfqdn()

# SPDX-License-Identifier: GPL-2.0-or-later
"""What the operator set, by oslo.config: nova.conf of the host has [placement] already, and [idletime] adds a little."""

from __future__ import annotations

import socket
from collections.abc import Sequence

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
    """Raises SettingsError; --help and a wrong command line end the program."""
    conf = cfg.ConfigOpts()
    conf.register_opts(OPTIONS, GROUP)
    ks.register_auth_conf_options(conf, "placement")
    ks.register_session_conf_options(conf, "placement")
    ks.register_adapter_conf_options(conf, "placement")
    conf.set_default("service_type", "placement", "placement")
    conf.register_cli_opt(cfg.BoolOpt("once", default=False, help="Look once, say what was done, and end."))
    try:
        conf(list(arguments), project="idletime", prog="idletime-openstack", version=VERSION,
             default_config_files=_there() if files is None else list(files))
        for option in OPTIONS:
            conf[GROUP][option.name]
    except cfg.ConfigFileValueError as error:
        raise SettingsError(f"{error}; remedy: correct it, or remove the line") from error
    except cfg.Error as error:
        raise SettingsError(f"{error}; remedy: correct the file, see idletime-openstack(8)") from error
    return conf


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
    try:
        auth = ks.load_auth_from_conf_options(conf, "placement")
        if auth is None:
            raise SettingsError("[placement] auth_type is not set; remedy: give --config-file /etc/nova/nova.conf, or write "
                                "[placement] as nova.conf of a compute node has it")
        session = ks.load_session_from_conf_options(conf, "placement", auth=auth, timeout=conf.placement.timeout or 30)
        return ks.load_adapter_from_conf_options(conf, "placement", session=session)
    except (cfg.Error, ka.ClientException) as error:
        raise SettingsError(f"[placement]: {error}; remedy: write it as nova.conf of a compute node has it") from error


def provider(conf: cfg.ConfigOpts) -> str:
    return str(conf.idletime.provider) or socket.getfqdn()

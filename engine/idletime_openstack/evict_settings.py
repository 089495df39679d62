# SPDX-License-Identifier: GPL-2.0-or-later
"""What the operator set of eviction, by oslo.config: [eviction], [nova], and [placement] as nova.conf has it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from openstack import connection
from oslo_config import cfg

from .compute import Background
from .eviction import Nowhere, Settings
from .evictor import Policy
from .settings import SettingsError, read, register, session_of

PROGRAM = "idletime-openstack-evict"
GROUP = "eviction"

OPTIONS = (
    cfg.ListOpt("background_flavors", default=[], help="Globs of flavors whose servers are background, as the hosts' rules "
                "have them, such as bg.*"),
    cfg.ListOpt("background_projects", default=[], help="UUIDs of projects whose servers are background."),
    cfg.BoolOpt("dry_run", default=False, help="Say what would be done, and do nothing."),
    cfg.StrOpt("nowhere", default="pause", choices=["pause", "shelve", "leave"], help="What becomes of a server that fits on "
               "no other host."),
    cfg.IntOpt("after_seconds", default=120, min=0, max=86400, help="How long a host has to be short before a server leaves."),
    cfg.IntOpt("migration_mib_per_second", default=100, min=0, max=100000, help="What a live migration moves of a server's "
               "memory: it stays on a host that is short as long as that brings more than a move. 0: for after_seconds."),
    cfg.IntOpt("resume_seconds", default=300, min=0, max=86400, help="How long there has to be room before one comes back."),
    cfg.IntOpt("margin_percent", default=5, min=0, max=50, help="Of a whole disk or uplink: what has to be free beyond what a "
               "server asks."),
    cfg.IntOpt("disruptions", default=6, min=0, max=1000, help="How often one may be moved, paused or shelved in 24 hours."),
    cfg.FloatOpt("acts_per_minute", default=10.0, min=0.1, max=1000.0, help="Over all hosts."),
    cfg.IntOpt("look_seconds", default=30, min=2, max=3600, help="How often Placement and Nova are asked."),
    cfg.IntOpt("move_seconds", default=900, min=30, max=86400, help="A live migration of ours that takes longer is ended."),
    cfg.IntOpt("busy_seconds", default=1800, min=30, max=86400, help="A server with which something is done for longer is not "
               "waited for."),
    cfg.IntOpt("facts_seconds", default=60, min=5, max=600, help="If Placement and Nova take longer, nothing is done."),
    cfg.StrOpt("coordination", default="", help="URL of tooz, by which one of several evictors leads; empty: there is one."),
    cfg.StrOpt("metrics_address", default="127.0.0.1", help="Where Prometheus finds the metrics."),
    cfg.PortOpt("metrics_port", default=0, help="0: nowhere."),
)


def load(arguments: Sequence[str], files: Sequence[str] | None = None) -> cfg.ConfigOpts:
    """Raises SettingsError; --help and a wrong command line end the program."""
    conf = cfg.ConfigOpts()
    register(conf, GROUP, OPTIONS, "placement", "nova")
    conf.register_cli_opt(cfg.BoolOpt("dry-run", default=False, help="As dry_run in [eviction]."))
    return read(conf, PROGRAM, arguments, files, GROUP, OPTIONS)


def nova(conf: cfg.ConfigOpts) -> Callable[[], Any]:
    """Gives openstacksdk's proxy of the service compute, as [nova] says, or as the user of [placement]. Nothing is asked before
    that. Raises SettingsError."""
    session = session_of(conf, "nova") or session_of(conf, "placement")
    if session is None:
        raise SettingsError(f"[nova] auth_type is not set, and neither is it in [placement]; remedy: write [nova] in "
                            f"/etc/idletime/openstack.conf, see {PROGRAM}(8)")
    return lambda: connection.Connection(session=session, oslo_conf=conf, service_types=["compute"]).compute


def policy(conf: cfg.ConfigOpts) -> Policy:
    """Raises SettingsError."""
    said = conf.eviction
    if not said.background_flavors and not said.background_projects:
        raise SettingsError("[eviction] background_flavors and background_projects are empty, so nobody may be evicted; "
                            "remedy: say in /etc/idletime/openstack.conf who is background, such as background_flavors = bg.*")
    for one in said.background_projects:
        try:
            uuid.UUID(one)
        except ValueError as error:
            raise SettingsError(f"[eviction] background_projects has '{one}', which is no UUID; remedy: openstack project show "
                                f"'{one}' -f value -c id") from error
    return Policy(
        Background(tuple(said.background_flavors), frozenset(said.background_projects)),
        Settings(float(said.after_seconds), float(said.resume_seconds), said.margin_percent / 100, said.disruptions,
                 said.acts_per_minute, Nowhere(said.nowhere), float(said.migration_mib_per_second)),
        said.dry_run or conf.dry_run, float(said.move_seconds), float(said.busy_seconds), float(said.facts_seconds))

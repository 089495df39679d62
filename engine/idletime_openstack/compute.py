# SPDX-License-Identifier: GPL-2.0-or-later
"""Nova as eviction sees it, by openstacksdk: hosts, background servers, migrations, and what is done with a server.

Nothing is waited for: a request is accepted or refused, and the next look sees what came of it. Each has the time limit of its
session. What was done before is read from Nova's own list of a server's actions, so nothing has to be kept here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from keystoneauth1 import exceptions as ka
from openstack import exceptions as sdk
from openstack.compute.v2.migration import Migration as AnyMigration
from openstack.compute.v2.server_action import ServerAction
from openstack.compute.v2.server_migration import ServerMigration

MICROVERSION = "2.80"
"""The user of a migration (2.80), flavors within servers (2.47), tags (2.26). Nova of Train and later has it."""
MARK = "idletime-evicted"
"""Tag of a server that we paused or shelved."""
_REMEDIES = {401: "correct user and password in [nova]", 403: "give the user of [nova] the role admin",
             404: "correct the endpoint of the service compute in Keystone, or [nova] endpoint_override",
             400: "Nova's reason is before this", 406: "Nova of Train or later is needed"}
_CHANGED = (404, 409)
"""Of an act: the server is gone, or in another state."""


class ComputeError(Exception):
    """The text says what was asked, what came, and the remedy."""


class Changed(ComputeError):
    """The server is not any more as it was seen: look again."""


class Unanswered(ComputeError):
    """Nova did not answer in time: whether it did what was asked, it will show."""


@dataclass(frozen=True)
class Node:
    """A compute node. host: as Nova's service is called. up: nova-compute answers; takes: and is enabled."""

    host: str
    up: bool
    takes: bool


@dataclass(frozen=True)
class Seen:
    """A server, as Nova shows it. specs: of its flavor. ram: MiB. background: it may be evicted; else it is here as it
    is marked, and is only brought back."""

    uuid: str
    name: str
    host: str
    status: str
    task: str
    flavor: str
    project: str
    ram: int
    marked: bool
    specs: Mapping[str, str] = field(default_factory=dict)
    background: bool = True


@dataclass(frozen=True)
class Migration:
    """A live migration. uuid is also Placement's consumer of what is held at the source meanwhile."""

    id: int
    uuid: str
    server: str
    status: str
    to: str
    user: str
    age: float


@dataclass(frozen=True)
class Done:
    """An action of a server, by anyone. age: seconds since."""

    action: str
    user: str
    age: float


@dataclass(frozen=True)
class Background:
    """Who is background: globs of flavors, projects by UUID."""

    flavors: tuple[str, ...] = ()
    projects: frozenset[str] = frozenset()

    def __contains__(self, server: Seen) -> bool:
        return server.project in self.projects or any(fnmatchcase(server.flavor, glob) for glob in self.flavors)


class Compute:
    """With openstacksdk 0.101 of Debian 12, too: its proxy asks for migrations without a query, and for those and the actions
    of a server at a wrong path, so its resources are asked here.

    connect: gives openstacksdk's proxy of the service compute; it asks Keystone already."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._proxy: Any = None

    @property
    def _nova(self) -> Any:
        if self._proxy is None:
            proxy = self._connect()
            proxy.default_microversion = MICROVERSION
            self._proxy = proxy
        return self._proxy

    def user(self) -> str:
        """UUID of who we are; "" where Keystone does not say."""
        with _asking("who am I?"):
            return str(self._nova.get_user_id() or "")

    def nodes(self) -> dict[str, Node]:
        """By UUID, which is that of Placement's provider."""
        with _asking("compute nodes"):
            return {str(one.id): Node(str((one.service_details or {}).get("host", "")), one.state == "up",
                                      one.state == "up" and one.status == "enabled")
                    for one in self._nova.hypervisors(details=True)}

    def servers(self, background: Background) -> dict[str, Seen]:
        """Background ones of all projects, and those that we paused or shelved when they were background, by UUID. Others are
        not even asked for."""
        queries: list[dict[str, str]] = [{"tags": MARK}, *({"project_id": one} for one in sorted(background.projects))]
        if background.flavors:
            with _asking("flavors"):
                queries += [{"flavor": str(one.id)} for one in self._nova.flavors(details=True, is_public="None")
                            if any(fnmatchcase(str(one.name), glob) for glob in background.flavors)]
        found = {}
        for query in queries:
            with _asking(f"servers by {query}"):
                for one in map(_seen, self._nova.servers(details=True, all_projects=True, **query)):
                    meant = one in background
                    if meant or one.marked:
                        found[one.uuid] = replace(one, background=meant)
        return found

    def server(self, uuid: str) -> Seen:
        with _asking(f"server {uuid}", act=True):
            return _seen(self._nova.get_server(uuid))

    def migrations(self, now: datetime, since: datetime) -> list[Migration]:
        """Live migrations that changed since, oldest first."""
        with _asking("migrations"):
            found = [_migration(one, now) for one in AnyMigration.list(
                self._nova, migration_type="live-migration",
                changes_since=since.replace(tzinfo=None, microsecond=0).isoformat() + "Z")]
        return sorted(found, key=lambda one: -one.age)

    def underway(self, server: str, now: datetime) -> list[Migration]:
        """Migrations of a server that have not ended."""
        with _asking(f"migrations of {server}", act=True):
            return [_migration(one, now, server)
                    for one in ServerMigration.list(self._nova, base_path=f"/servers/{server}/migrations")]

    def actions(self, server: str, now: datetime) -> list[Done]:
        """All that was done with a server, the last one first."""
        with _asking(f"actions of {server}", act=True):
            found = [Done(str(one.action), str(one.user_id or ""), _age(one.start_time, now))
                     for one in ServerAction.list(self._nova, base_path=f"/servers/{server}/os-instance-actions")]
        return sorted(found, key=lambda one: one.age)

    # ---- acts

    def move(self, server: str, host: str) -> None:
        """Nova asks its scheduler whether the host fits."""
        with _asking(f"live migration of {server} to {host}", act=True):
            self._nova.live_migrate_server(server, host=host, force=False, block_migration="auto")

    def abort(self, migration: Migration) -> None:
        with _asking(f"end of the migration of {migration.server}", act=True):
            sdk.raise_from_response(self._nova.delete(f"/servers/{migration.server}/migrations/{migration.id}"))

    def pause(self, server: str) -> None:
        with _asking(f"pause of {server}", act=True):
            self._nova.pause_server(server)

    def resume(self, server: str) -> None:
        with _asking(f"unpause of {server}", act=True):
            self._nova.unpause_server(server)

    def shelve(self, server: str) -> None:
        with _asking(f"shelve of {server}", act=True):
            self._nova.shelve_server(server)

    def unshelve(self, server: str) -> None:
        with _asking(f"unshelve of {server}", act=True):
            self._nova.unshelve_server(server)

    def mark(self, server: str) -> None:
        with _asking(f"tag {MARK} of {server}", act=True):
            self._nova.get_server(server).add_tag(self._nova, MARK)

    def unmark(self, server: str) -> None:
        with _asking(f"removal of tag {MARK} of {server}", act=True):
            self._nova.get_server(server).remove_tag(self._nova, MARK)


@contextmanager
def _asking(what: str, act: bool = False) -> Iterator[None]:
    """What goes wrong becomes a ComputeError."""
    try:
        yield
    except sdk.HttpException as error:
        status = error.status_code or (error.response.status_code if error.response is not None else None)
        text = f"Nova: {what}: {status or ''} {' '.join(str(error.details or error.message).split())}"
        if act and status in _CHANGED:
            raise Changed(text) from error
        raise ComputeError(f"{text}; remedy: {_REMEDIES.get(status or 0, 'see the log of nova-api')}") from error
    except (sdk.SDKException, ka.ClientException) as error:
        text = " ".join(str(error).split())
        kind = Unanswered if act and isinstance(error, ka.ConnectTimeout) else ComputeError
        raise kind(f"Nova: {what}: {text}; remedy: do Keystone and Nova run, and is [nova] right?") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ComputeError(f"Nova: {what}: the answer cannot be read: {type(error).__name__}: {error}; remedy: is the endpoint "
                           "Nova's?") from error


def _seen(one: Any) -> Seen:
    flavor = one.flavor or {}
    return Seen(str(one.id), str(one.name), str(one.compute_host or ""), str(one.status), str(one.task_state or ""),
                str(flavor.get("original_name") or flavor.get("name") or ""), str(one.project_id), int(flavor.get("ram") or 0),
                MARK in (one.tags or ()), {str(key): str(value) for key, value in (flavor.get("extra_specs") or {}).items()})


def _migration(one: Any, now: datetime, server: str = "") -> Migration:
    return Migration(int(one.id), str(one.uuid or ""), server or str(one.server_id), str(one.status),
                     str(one.dest_compute or ""), str(one.user_id or ""), _age(one.created_at, now))


def _age(text: str, now: datetime) -> float:
    """Nova says UTC, without saying so."""
    at = datetime.fromisoformat(str(text).removesuffix("Z"))
    return max(0.0, (now - (at if at.tzinfo else at.replace(tzinfo=UTC))).total_seconds())


def disruptions(done: Iterable[Done], user: str, within: float) -> list[float]:
    """Ages of what we did to a server that runs. Pure."""
    return [one.age for one in done if one.action in ("live-migration", "pause", "shelve") and one.age < within
            and (not user or one.user == user)]


def by_us(done: Iterable[Done], action: str, user: str) -> bool:
    """Whether it was we who did this last, of the last one first. Where Keystone does not say who we are, the mark has to."""
    last = next((one for one in done if one.action == action), None)
    return last is not None and (not user or last.user == user)

# SPDX-License-Identifier: GPL-2.0-or-later
"""Nova's and Keystone's API, played over HTTP as far as openstacksdk and eviction use them; the Placement is a real one.

As Nova: a server in a wrong state is 409, an unknown one 404, tags only where Nova takes them, another microversion is 406;
a live migration moves what the server holds to the migration's own consumer, claims the destination's part in Placement
("no valid host" where there is none), and is running until finish() ends it, well or not.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from keystoneauth1 import fixture

if TYPE_CHECKING:
    from conftest import Server as Placement

US, OPERATOR = "5" * 32, "0" * 32
PAGE = 3
"""Of a list: so that there is more than one."""


@dataclass
class Played:
    """A server."""

    name: str
    flavor: str
    host: str
    project: str
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    status: str = "ACTIVE"
    task: str | None = None
    tags: set[str] = field(default_factory=set)
    actions: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Moved:
    """A live migration. claim: what the server held at its source."""

    id: int
    server: str
    source: str
    to: str
    at: datetime
    user: str
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    status: str = "running"
    changed: datetime | None = None


class Nova:
    """hosts: UUID of the compute node by host. now: its clock."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.hosts: dict[str, str] = {}
        self.down: set[str] = set()
        self.disabled: set[str] = set()
        self.flavors: dict[str, dict[str, Any]] = {}
        self.servers: dict[str, Played] = {}
        self.migrations: list[Moved] = []
        self.asked: list[str] = []
        self.acts: list[str] = []
        self.faults: deque[tuple[str, int | str]] = deque()
        """What is asked, and the status, or "hang", or "garbage"; each once."""
        self.delay = 0.0
        self.hang_seconds = 2.0
        self.move_fails = ""
        self.hidden: set[str] = set()
        """Flavors that were deleted."""
        self.homeless: set[str] = set()
        """UUIDs of servers that no host takes when they are unshelved."""
        self._lock = threading.RLock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"nova": self}))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    # ---- what a test does

    def flavor(self, name: str, ram: int = 1024, **specs: int) -> None:
        self.flavors[name] = {"id": str(uuid.uuid4()), "name": name, "ram": ram, "vcpus": 1, "disk": 1,
                              "extra_specs": {f"resources:{key}": str(value) for key, value in specs.items()}}

    def boot(self, name: str, flavor: str, host: str, project: str = "b" * 32) -> Played:
        """On that host, with what the flavor asks."""
        server = Played(name, flavor, host, project)
        self.servers[server.uuid] = server
        self._claim(server.uuid, flavor, host)
        return server

    def act(self, server: Played, action: str, user: str = OPERATOR) -> None:
        """What somebody else does."""
        self._done(server, action, user)
        server.status = {"pause": "PAUSED", "unpause": "ACTIVE", "stop": "SHUTOFF", "start": "ACTIVE"}[action]

    def finish(self, well: bool = True, error: bool = False) -> None:
        """All that is being done ends."""
        with self._lock:
            for one in self.migrations:
                if one.status == "running":
                    self._end(one, "completed" if well else "error")
                    self.servers[one.server].status = "ERROR" if error else self._before(one.server)
            for server in self.servers.values():
                if server.task:
                    self._finish_task(server)

    def claims(self, consumer: str) -> dict[str, Any]:
        return dict(self.placement.ask("GET", f"/allocations/{consumer}")["allocations"])

    def close(self) -> None:
        """Nothing is held any more."""
        for uuid_ in [*self.servers, *(one.uuid for one in self.migrations)]:
            if self.claims(uuid_):
                self.placement.ask("DELETE", f"/allocations/{uuid_}")

    # ---- how it works

    def _before(self, server: str) -> str:
        return "PAUSED" if self._last(server) == "pause" else "ACTIVE"

    def _last(self, server: str) -> str:
        done = [one["action"] for one in self.servers[server].actions if one["action"] in ("pause", "unpause")]
        return done[-1] if done else ""

    def _claim(self, consumer: str, flavor: str, host: str) -> bool:
        amounts = {key.partition(":")[2]: int(value) for key, value in self.flavors[flavor]["extra_specs"].items()}
        if not amounts:
            return True
        query = ",".join(f"{class_}:{amount}" for class_, amount in [("VCPU", 1), *amounts.items()])
        found = self.placement.ask("GET", f"/allocation_candidates?resources={query}&in_tree={self.hosts[host]}")
        for claim in found.get("allocation_requests", [])[:1]:
            self._put(consumer, claim["allocations"])
            return True
        return False

    def _put(self, consumer: str, allocations: Any) -> None:
        there = self.placement.ask("GET", f"/allocations/{consumer}")
        answer = self.placement.ask("PUT", f"/allocations/{consumer}", {
            "allocations": allocations, "project_id": "p", "user_id": "u",
            "consumer_generation": there.get("consumer_generation")})
        assert not answer, answer

    def _done(self, server: Played, action: str, user: str) -> None:
        server.actions.append({"action": action, "user_id": user, "start_time": _time(self.now), "request_id": "req",
                               "message": None, "project_id": server.project, "instance_uuid": server.uuid,
                               "updated_at": _time(self.now)})

    def _migrate(self, server: Played, host: str, user: str) -> None:
        one = Moved(len(self.migrations) + 1, server.uuid, server.host, host, self.now, user, changed=self.now)
        self.migrations.append(one)
        held = self.claims(server.uuid)
        if host in self.down or not self._swap(one, server, held):
            one.status = "error"
        elif self.move_fails == "at once":
            self._end(one, "error")
        else:
            server.status, server.task = "MIGRATING", "migrating"

    def _swap(self, one: Moved, server: Played, held: Any) -> bool:
        """The source's part to the migration, the destination's to the server; as it was where there is none."""
        amounts = {provider: {"resources": each["resources"]} for provider, each in held.items()}
        if amounts:
            self.placement.ask("DELETE", f"/allocations/{server.uuid}")
            self._put(one.uuid, amounts)
        if self._claim(server.uuid, server.flavor, one.to):
            return True
        self._back(one, server)
        return False

    def _back(self, one: Moved, server: Played) -> None:
        amounts = {provider: {"resources": each["resources"]} for provider, each in self.claims(one.uuid).items()}
        if amounts:
            self.placement.ask("DELETE", f"/allocations/{one.uuid}")
            if self.claims(server.uuid):
                self.placement.ask("DELETE", f"/allocations/{server.uuid}")
            self._put(server.uuid, amounts)

    def _end(self, one: Moved, status: str) -> None:
        server = self.servers[one.server]
        one.status, one.changed, server.task = status, self.now, None
        if status != "completed":
            self._back(one, server)
            return
        server.host = one.to
        if self.claims(one.uuid):
            self.placement.ask("DELETE", f"/allocations/{one.uuid}")

    def _finish_task(self, server: Played) -> None:
        task, server.task = server.task, None
        if task == "shelving":
            self.placement.ask("DELETE", f"/allocations/{server.uuid}")
            server.status, server.host = "SHELVED_OFFLOADED", ""
        elif task == "unshelving":
            for host in () if server.uuid in self.homeless else sorted(self.hosts):
                if self._claim(server.uuid, server.flavor, host):
                    server.status, server.host = "ACTIVE", host
                    break


_WANTS = {"pause": {"ACTIVE"}, "unpause": {"PAUSED"}, "shelve": {"ACTIVE", "PAUSED", "SHUTOFF"},
          "unshelve": {"SHELVED", "SHELVED_OFFLOADED"}, "os-migrateLive": {"ACTIVE", "PAUSED"},
          "tags": {"ACTIVE", "PAUSED", "SUSPENDED", "SHUTOFF"}}
_CALLED = {"os-migrateLive": "live-migration"}


class _Handler(BaseHTTPRequestHandler):
    nova: Nova
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _any(self) -> None:
        nova, path = self.nova, urlsplit(self.path)
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else {}
        what = f"{self.command} {path.path}"
        nova.asked.append(what)
        fault = self._fault(f"{what} {json.dumps(body)}")
        time.sleep(nova.delay)
        if fault == "hang":
            time.sleep(nova.hang_seconds)
        if fault == "garbage":
            self._say(200, b"<html>It works!</html>")
        elif isinstance(fault, int):
            self._fail(fault, "Unexpected API Error.")
        else:
            query = {key: one[0] for key, one in parse_qs(path.query).items()}
            self._answer([one for one in path.path.split("/") if one], query, body)

    do_GET = do_POST = do_PUT = do_DELETE = _any  # noqa: N815

    def _fault(self, what: str) -> int | str | None:
        for one in self.nova.faults:
            if one[0] in what:
                self.nova.faults.remove(one)
                return one[1]
        return None

    def _say(self, status: int, body: bytes, **headers: str) -> None:
        try:
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            self.close_connection = True  # nobody waits for it any more

    def _json(self, found: Any, status: int = 200, **headers: str) -> None:
        self._say(status, json.dumps(found).encode(), **headers)

    def _fail(self, status: int, text: str) -> None:
        name = {404: "itemNotFound", 409: "conflictingRequest", 400: "badRequest"}.get(status, "computeFault")
        self._json({name: {"message": text, "code": status}}, status)

    def _answer(self, path: list[str], query: dict[str, str], body: Any) -> None:
        with self.nova._lock:
            if path[:1] == ["v3"]:
                self._keystone(path)
            elif path[:1] != ["v2.1"] or len(path) == 1:
                version = {"id": "v2.1", "status": "CURRENT", "version": "2.90", "min_version": "2.1",
                           "links": [{"rel": "self", "href": f"{self.nova.url}/v2.1/"}]}
                self._json({"version": version} if path else {"versions": [version]})
            elif self.headers.get("X-Auth-Token") != "admin":
                self._fail(401, "Unauthorized")
            elif not self._knows(self.headers.get("OpenStack-API-Version"), path):
                self._fail(406, "Version is not supported by the API")
            else:
                self._nova(path[1:], query, body)

    def _knows(self, version: str | None, path: list[str]) -> bool:
        """openstacksdk 0.101 of Debian 12 says none for actions, which is 2.1, and enough for them."""
        return path[-1] == "action" if version is None else 30 <= int(version.partition(".")[2]) <= 90

    def _keystone(self, path: list[str]) -> None:
        url = self.nova.url
        if path[1:] != ["auth", "tokens"]:
            self._json({"version": {"id": "v3.14", "status": "stable", "links": [{"rel": "self", "href": f"{url}/v3/"}]}})
            return
        token = fixture.V3Token(user_id=US, user_name="idletime", project_id="a" * 32)
        token.add_role(name="admin")
        token.add_service("compute").add_standard_endpoints(public=f"{url}/v2.1", region="R")
        token.add_service("placement").add_standard_endpoints(public=self.nova.placement.url, region="R")
        self._json(token, 201, X_Subject_Token="admin")

    # ---- Nova

    def _nova(self, path: list[str], query: dict[str, str], body: Any) -> None:
        match self.command, path:
            case "GET", ["os-hypervisors", "detail"]:
                self._json({"hypervisors": [self._hypervisor(host) for host in self.nova.hosts]})
            case "GET", ["flavors", "detail"]:
                there = [one for name, one in self.nova.flavors.items() if name not in self.nova.hidden]
                self._json({"flavors": there if "marker" not in query else []})
            case "GET", ["servers", "detail"]:
                self._servers(query)
            case "GET", ["os-migrations"]:
                since = datetime.fromisoformat(query["changes-since"])
                found = [] if "marker" in query else self.nova.migrations
                self._json({"migrations": [_migration(one) for one in found if one.changed and one.changed >= since]})
            case _, ["servers", uuid_, *rest]:
                server = self.nova.servers.get(uuid_)
                if server is None:
                    self._fail(404, f"Instance {uuid_} could not be found.")
                else:
                    self._of_server(server, rest, body)
            case _:
                self._fail(404, "The resource could not be found.")

    def _hypervisor(self, host: str) -> dict[str, Any]:
        return {"id": self.nova.hosts[host], "hypervisor_hostname": host, "state": "down" if host in self.nova.down else "up",
                "status": "disabled" if host in self.nova.disabled else "enabled", "service": {"host": host, "id": "1"}}

    def _servers(self, query: dict[str, str]) -> None:
        flavor = {one["id"]: name for name, one in self.nova.flavors.items()}.get(query.get("flavor", ""))
        found = [one for one in self.nova.servers.values() if query.get("all_tenants") and
                 ("flavor" not in query or one.flavor == flavor) and query.get("project_id", one.project) == one.project and
                 ("tags" not in query or query["tags"] in one.tags)]
        begin = next((index + 1 for index, one in enumerate(found) if one.uuid == query.get("marker")), 0)
        page = found[begin:begin + PAGE]
        answer: dict[str, Any] = {"servers": [self._server(one) for one in page]}
        if len(found) > begin + PAGE:
            more = "&".join(f"{key}={value}" for key, value in {**query, "marker": page[-1].uuid}.items())
            answer["servers_links"] = [{"rel": "next", "href": f"{self.nova.url}/v2.1/servers/detail?{more}"}]
        self._json(answer)

    def _server(self, one: Played) -> dict[str, Any]:
        flavor = self.nova.flavors[one.flavor]
        return {"id": one.uuid, "name": one.name, "status": one.status, "OS-EXT-STS:task_state": one.task,
                "tenant_id": one.project, "OS-EXT-SRV-ATTR:host": one.host or None, "tags": sorted(one.tags), "links": [],
                "flavor": {"original_name": flavor["name"], "ram": flavor["ram"], "vcpus": 1, "disk": 1, "ephemeral": 0,
                           "swap": 0, "extra_specs": flavor["extra_specs"]}}

    def _of_server(self, server: Played, rest: list[str], body: Any) -> None:
        match self.command, rest:
            case "GET", []:
                self._json({"server": self._server(server)})
            case "GET", ["os-instance-actions"]:
                self._json({"instanceActions": list(reversed(server.actions))})
            case "GET", ["migrations"]:
                self._json({"migrations": [_migration(one) | {"server_uuid": one.server} for one in self.nova.migrations
                                           if one.server == server.uuid and one.status == "running"]})
            case "DELETE", ["migrations", number]:
                self._abort(server, int(number))
            case ("PUT" | "DELETE"), ["tags", tag]:
                self._tag(server, tag)
            case "POST", ["action"]:
                self._action(server, next(iter(body)), next(iter(body.values())))
            case _:
                self._fail(404, "The resource could not be found.")

    def _wrong(self, server: Played, action: str) -> bool:
        if server.status in _WANTS[action] and server.task is None:
            return False
        self._fail(409, f"Cannot '{action}' instance {server.uuid} while it is in vm_state {server.status.lower()}")
        return True

    def _tag(self, server: Played, tag: str) -> None:
        if self._wrong(server, "tags"):
            return
        if self.command == "DELETE" and tag not in server.tags:
            self._fail(404, f"Instance has no tag '{tag}'")
            return
        (server.tags.add if self.command == "PUT" else server.tags.discard)(tag)
        self._say(201 if self.command == "PUT" else 204, b"")

    def _action(self, server: Played, action: str, said: Any) -> None:
        if self._wrong(server, action):
            return
        self.nova.acts.append(" ".join([action, server.name, *([said["host"]] if said else [])]))
        self.nova._done(server, _CALLED.get(action, action), US)
        if action == "os-migrateLive":
            assert said["block_migration"] == "auto" and "force" not in said
            self.nova._migrate(server, said["host"], US)
        elif action in ("shelve", "unshelve"):
            server.task = {"shelve": "shelving", "unshelve": "unshelving"}[action]
        else:
            server.status = {"pause": "PAUSED", "unpause": "ACTIVE"}[action]
        self._say(202, b"")

    def _abort(self, server: Played, number: int) -> None:
        one = self.nova.migrations[number - 1]
        if one.status != "running":
            self._fail(400, "Migration is not running")
            return
        self.nova.acts.append(f"abort {server.name}")
        self.nova._end(one, "cancelled")
        server.status = self.nova._before(server.uuid)
        self._say(202, b"")


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%f")


def _migration(one: Moved) -> dict[str, Any]:
    return {"id": one.id, "uuid": one.uuid, "instance_uuid": one.server, "status": one.status,
            "source_compute": one.source, "dest_compute": one.to, "created_at": _time(one.at),
            "updated_at": _time(one.changed or one.at), "user_id": one.user,
            "project_id": "a" * 32, "migration_type": "live-migration"}


# SPDX-License-Identifier: GPL-2.0-or-later
"""The API, version 1: what Cockpit's page asks and changes, by HTTP and JSON on RUN_DIR/.api.sock. See idletime-api(7).

    GET    /v1/host                  VMs and resources
    GET    /v1/jobs                  block jobs that run: progress, rate, what holds them, expected end
    GET    /v1/timeline/RESOURCE     what it did in the last ten seconds
    GET    /v1/vms/UUID/policy       root: its own policy
    PUT    /v1/vms/UUID/policy       root: gives it one; with ?check only says what it would come to
    DELETE /v1/vms/UUID/policy       root: takes its own policy away
    PUT    /v1/vms/UUID/class        root: changes the class in its own policy
    PUT    /v1/vms/UUID/interval     root: sets the preemption interval in its own policy, or has it learned

Who asks is asked of the kernel. A change is what `virt-idletime mark` does: metadata are written, and idletimed carries that
out when libvirt tells it; what has become of it, /v1/host shows.
Context: the server's loop; libvirt is called in threads of hands, which idletimed's loop gives the work.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import re
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import libvirt

from .. import arena, change, domains, jobview, observed, resolve
from ..conf.resources import Resources
from ..conf.rules import Rules, decide_xml
from ..domains import HostError
from ..errors import Finding, IdletimeError, PolicyError
from ..gauge.boards import Observer
from ..patience import Patience
from ..policy import edit
from ..policy.model import Class
from ..verdict import Verdict, of_domain
from . import api_host
from .hands import Hands
from .metrics_look import Looks
from .metrics_server import Request, Response
from .timeline import BIN_MS, Timeline

OFF_SECONDS = 10.0
"""How old the list of VMs that do not run may be; it costs libvirtd their XML."""
OFF_WAIT_SECONDS = 1.0
"""How long a look at the host waits for that list."""

HOST_SECONDS, HOST_REST = 0.25, 4.0
"""Between two looks at the host: at least, and of what the last one took."""

JOBS_SECONDS = 1.0
"""How old an answer about jobs may be: each asks libvirtd about every disk."""

RATE_SECONDS = 30.0
"""How old the look may be that a rate is since: a disk's job of an hour ago may have been another one."""

LEFT_SECONDS = 3.0
"""A timeline that nobody has asked for so long is not kept."""
MOST_TIMELINES = 8

SEEK_SECONDS = 1.0
"""How long an observer that has come is not seen in a timeline."""

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_PATHS = {
    re.compile(r"/v1/host"): {"GET": "host"},
    re.compile(r"/v1/jobs"): {"GET": "jobs"},
    re.compile(r"/v1/timeline/([A-Za-z0-9][A-Za-z0-9._-]*)"): {"GET": "timeline"},
    re.compile(rf"/v1/vms/({_UUID})/policy"): {"GET": "policy", "PUT": "put_policy", "DELETE": "delete_policy"},
    re.compile(rf"/v1/vms/({_UUID})/class"): {"PUT": "put_class"},
    re.compile(rf"/v1/vms/({_UUID})/interval"): {"PUT": "put_interval"},
}
_FOR_ALL = ("host", "jobs", "timeline")
_CLASSES = [one.value for one in Class]

log = logging.getLogger("idletimed")


class Wrong(Exception):
    """What cannot be answered. status: of HTTP."""

    def __init__(self, status: str, problem: str, remedy: str = ""):
        self.status, self.problem, self.remedy = status, problem, remedy
        super().__init__(problem)


def answer(status: str, values: Mapping[str, Any], allow: str = "") -> Response:
    body = json.dumps(values, separators=(",", ":"), default=_plain).encode()
    return Response(status, "application/json", [body, b"\n"], allow)


def _plain(value: Any) -> Any:
    if isinstance(value, Finding):
        return {"severity": value.severity.value, "line": value.line, "element": value.element, "message": value.message,
                "remedy": value.remedy}
    raise TypeError(f"{type(value).__name__} is not for JSON")


class _Single:
    """Work that is done once at a time, however many ask for it and go."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """What is under way, or begins now."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(work())
        return self._task


class Api:
    """Made in idletimed's loop; respond() is called in the server's. known: rules and resources as idletimed has them now."""

    def __init__(self, run_dir: str, hands: Hands | None, known: Callable[[], tuple[Rules, Resources]]) -> None:
        self._run_dir, self._hands, self._known = run_dir, hands, known
        self._loop = asyncio.get_running_loop()
        self.looks: Looks | None = None
        self._off: tuple[float, list[dict[str, Any]]] = (-OFF_SECONDS, [])
        self._host_at, self._host_rest = -math.inf, 0.0
        self._host_said: dict[str, Any] = {}
        self._host_task, self._off_task, self._jobs_task = _Single(), _Single(), _Single()
        self._changes = 0
        self._jobs_look: jobview.Look | None = None
        self._jobs_said: list[dict[str, Any]] = []
        self._patience = Patience(hands.connect if hands else lambda: None)
        self._timelines: dict[str, _Followed] = {}

    async def respond(self, request: Request) -> Response:
        """Raises nothing of ours."""
        try:
            found = next((match, methods) for path, methods in _PATHS.items() if (match := path.fullmatch(request.path)))
        except StopIteration:
            return answer("404 Not Found", {"problem": f"there is no {request.path[:200]}", "remedy": "see idletime-api(7)"})
        match, methods = found
        method = "GET" if request.method == "HEAD" else request.method
        if method not in methods:
            return answer("405 Method Not Allowed", {"problem": f"no {request.method[:20]} here"}, ", ".join(methods))
        if methods[method] not in _FOR_ALL and request.uid != 0:
            return answer("403 Forbidden", {"problem": "only root may do this", "remedy": "get administrative access"})
        try:
            return answer("200 OK", await getattr(self, f"_{methods[method]}")(request, *match.groups()))
        except PolicyError as error:
            return answer("422 Unprocessable Content", {"problem": "the policy is wrong, or does not fit this VM",
                                                        "findings": error.findings})
        except Wrong as error:
            return answer(error.status, {"problem": error.problem, "remedy": error.remedy})
        except libvirt.libvirtError as error:
            gone = error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN
            return answer("404 Not Found" if gone else "500 Internal Server Error", {"problem": str(error)})
        except IdletimeError as error:
            return answer("500 Internal Server Error", {"problem": str(error)})

    async def _work(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Of a thread with a connection."""
        if self._hands is None:
            raise Wrong("409 Conflict", "by the settings this host has no libvirt", "name the class of its VMs by rules")
        hands = self._hands

        async def ask() -> Any:
            hands.watch(time.monotonic())
            return await hands.do(work, *arguments)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(ask(), self._loop))

    # ---- what is there

    async def _host(self, request: Request) -> dict[str, Any]:
        if self.looks is None:
            raise Wrong("503 Service Unavailable", "idletimed has not looked yet", "ask again")
        self.looks.hurry()
        if time.monotonic() - self._host_at >= self._host_rest:
            await asyncio.shield(self._host_task.begin(partial(self._look_at_host, self.looks)))
        return {**self._host_said, "may_change": request.uid == 0}

    async def _look_at_host(self, looks: Looks) -> None:
        """Then a rest, so that who asks in a loop takes no processor from idletimed."""
        changes = self._changes
        if self._hands is not None and time.monotonic() - self._off[0] > OFF_SECONDS:
            # libvirtd may hang: those that run are shown then.
            await asyncio.wait([self._off_task.begin(self._look_for_off)], timeout=OFF_WAIT_SECONDS)
        began = time.monotonic()
        self._host_said = await asyncio.to_thread(self._built, looks)
        now = time.monotonic()
        self._host_rest = max(HOST_SECONDS, HOST_REST * (now - began))
        self._host_at = now if changes == self._changes else -math.inf

    async def _look_for_off(self) -> None:
        now = time.monotonic()
        self._off = now, self._off[1]
        with contextlib.suppress(libvirt.libvirtError, IdletimeError, Wrong):
            self._off = now, await self._work(_off, self._known()[0])

    def _built(self, looks: Looks) -> dict[str, Any]:
        """Thread."""
        observers = observed.read(self._run_dir)
        found = api_host.vms(looks.said, looks.fresh, observers)
        running = {one.uuid for one in found}
        off = [one for one in self._off[1] if one["uuid"] not in running]
        return api_host.host(found, off, self._run_dir, self._known()[1], observers, looks.book.snapshot.facts.left_out)

    async def _jobs(self, _request: Request) -> dict[str, Any]:
        """Rates are those since the last look, whoever asked for it; without one of just before they are not known. Of a VM
        that hangs none are shown; it is named."""
        if self._jobs_look is None or time.monotonic() - self._jobs_look.seconds >= JOBS_SECONDS:
            await asyncio.shield(self._jobs_task.begin(self._look_for_jobs))
        return {"jobs": self._jobs_said, "silent": self._jobs_look.silent if self._jobs_look else ()}

    async def _look_for_jobs(self) -> None:
        look: jobview.Look = await self._work(_jobs_now, self._run_dir, self._patience)
        before, self._jobs_look = self._jobs_look, look
        if before is None or look.seconds - before.seconds > RATE_SECONDS:
            before = look
        self._jobs_said = [asdict(one) for one in jobview.build(before, look, time.time())]

    async def _timeline(self, request: Request, name: str) -> dict[str, Any]:
        since = next((int(word[6:]) for word in request.words if re.fullmatch(r"since=[0-9]{1,18}", word)), 0)
        followed = self._timelines.get(name)
        if followed is None:
            followed = self._follow(name)
        followed.asked = time.monotonic()
        return {"resource": name, "problem": followed.problem, **followed.timeline.read(since)}

    # ---- timelines

    def _follow(self, name: str) -> _Followed:
        said = self.looks.said.values() if self.looks is not None else ()
        path = next((str(each["path"]) for one in said for each in one.resources if each["name"] == name), None)
        if path is None:
            if self.looks is not None:
                self.looks.hurry()  # it may have come since the last look
            raise Wrong("404 Not Found", f"no VM that runs is on a resource '{name}'")
        if len(self._timelines) >= MOST_TIMELINES:
            raise Wrong("503 Service Unavailable", f"{MOST_TIMELINES} timelines are shown already", "close another page")
        found = _Followed(path)
        found.look()
        self._timelines[name] = found
        found.task = asyncio.create_task(self._keep(name, found))
        return found

    async def _keep(self, name: str, found: _Followed) -> None:
        """Look until nobody asks any more."""
        sought = -SEEK_SECONDS
        try:
            while time.monotonic() - found.asked < LEFT_SECONDS:
                if time.monotonic() - sought >= SEEK_SECONDS:
                    await asyncio.to_thread(found.observer.find)
                    sought = time.monotonic()
                await asyncio.sleep(BIN_MS / 1000 if not found.problem else 1)
                found.look()
        finally:
            self._timelines.pop(name, None)
            found.observer.close()

    # ---- changes

    async def _policy(self, _request: Request, uuid: str) -> Any:
        return await self._work(_shown, uuid)

    async def _put_policy(self, request: Request, uuid: str) -> Any:
        text = edit.element_text(_text(request))
        if text is None:
            raise Wrong("400 Bad Request", "there is no policy in what was sent",
                        "send a policy element, as in idletime-policy(5)")
        return await self._change(uuid, lambda _: text, "check" in request.words)

    async def _delete_policy(self, request: Request, uuid: str) -> Any:
        return await self._change(uuid, lambda _: None, "check" in request.words)

    async def _put_class(self, request: Request, uuid: str) -> Any:
        wanted = _said(request, "class")
        if wanted not in _CLASSES:
            raise Wrong("400 Bad Request", "no class in what was sent", f'send {{"class": "..."}} with {", ".join(_CLASSES)}')
        return await self._change(uuid, lambda policy: edit.with_class(policy, wanted), "check" in request.words)

    async def _put_interval(self, request: Request, uuid: str) -> Any:
        learned, interval_us = _said(request, "auto"), _said(request, "interval_us")
        if learned is True:
            wanted = {"auto": "on"}
        elif type(interval_us) is int:  # a bool is one, too
            wanted = {"interval-us": str(interval_us), "auto": "off"}
        else:
            raise Wrong("400 Bad Request", "no interval in what was sent",
                        'send {"interval_us": N} in microseconds, or {"auto": true}')
        resource = _said(request, "resource")
        if not (resource is None or isinstance(resource, str)):
            raise Wrong("400 Bad Request", f"resource {resource!r} is no name", "name one, or leave it out: for all of them")
        return await self._change(uuid, partial(_with_settings, wanted, resource), "check" in request.words)

    async def _change(self, uuid: str, edited: change.Edit, only_check: bool) -> Any:
        rules, _ = self._known()
        if self.looks is not None:
            self.looks.hurry()
        try:
            return await self._work(partial(_changed, run_dir=self._run_dir, rules=rules, only_check=only_check), uuid, edited)
        finally:  # whoever looked meanwhile may have seen what was
            self._changes += 1
            self._off, self._host_at = (-OFF_SECONDS, self._off[1]), -math.inf


class _Followed:
    """A resource whose timeline is shown."""

    def __init__(self, path: str) -> None:
        self.path, self.timeline, self.observer = path, Timeline(), Observer(path)
        self.asked, self.problem = time.monotonic(), ""
        self.task: asyncio.Task[None] | None = None

    def look(self) -> None:
        try:
            heads = self.timeline.heads
            seen = self.observer.since(heads)
            moment = arena.moment(self.path, heads)
            self.timeline.add(moment if seen is None else replace(moment, foreground=(*moment.foreground, seen)))
            self.problem = ""
        except arena.ArenaError as error:
            self.problem = str(error)


def _text(request: Request) -> str:
    try:
        return request.body.decode()
    except UnicodeDecodeError as error:
        raise Wrong("400 Bad Request", f"what was sent is not UTF-8: {error}") from error


def _said(request: Request, name: str) -> Any:
    """A member of the object that was sent; None if there is none."""
    try:
        return json.loads(_text(request))[name]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _with_settings(settings: Mapping[str, str], resource: str | None, policy: str | None) -> str:
    if policy is None:
        raise Wrong("409 Conflict", "the VM has no policy of its own, so no interval", "give it a class first")
    return edit.with_settings(policy, settings, resource)


# ---- in a thread, with a connection

def _off(connection: Any, rules: Rules) -> list[dict[str, Any]]:
    """VMs that do not run."""
    found = []
    for domain in connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_INACTIVE):
        try:
            decision = decide_xml(domains.xml_of(domain, inactive=True), rules)
            class_, by, problems = (decision.policy.class_.value, decision.by, []) if decision.policy else (None, None, [])
        except PolicyError as error:
            class_, by, problems = None, None, [str(one) for one in error.findings]
        except (HostError, libvirt.libvirtError):
            continue  # it is gone
        found.append({"name": domain.name(), "uuid": domain.UUIDString(), "state": "shut off", "class": class_, "by": by,
                      "libvirt": True, "problems": problems, "devices": [], "resources": []})
    return found


def _jobs_now(connection: Any, run_dir: str, patience: Patience) -> jobview.Look:
    return jobview.look(connection, True, run_dir, None, patience)


def _shown(connection: Any, uuid: str) -> dict[str, Any]:
    found = change.look(connection.lookupByUUIDString(uuid))
    return {"name": found.name, "policy": found.policy}


def _changed(connection: Any, uuid: str, edited: change.Edit, run_dir: str, rules: Rules, only_check: bool) -> dict[str, Any]:
    host = resolve.Host(lookup=domains.HostLookup(connection), run_dir=run_dir)
    found = change.look(connection.lookupByUUIDString(uuid))

    def judge(xml: str) -> Verdict:
        return of_domain(xml, rules, host, run_dir, running=found.run is not None)

    planned = change.plan(found, edited, judge)
    if not only_check:
        planned = change.carry_out(planned, edited, judge)
    decision = planned.verdict.decision
    return {"changed": planned.changed, "written": planned.changed and not only_check, "policy": planned.after,
            "class": decision.policy.class_.value if decision.policy else None, "why": str(decision),
            "findings": list(planned.verdict.findings)}

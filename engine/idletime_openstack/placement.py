# SPDX-License-Identifier: GPL-2.0-or-later
"""Placement's API, as far as it is needed here. keystoneauth1 finds the endpoint, brings the token and tries again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlencode

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ka

from .providers import CLASSES, GAUGE, KINDS, Make, Present, SetInventory, SetTraits, Step, prefix

MICROVERSION = "placement 1.29"
"""Nested providers in allocation candidates; reserved as high as total (1.26). Placement of Stein and later has it."""

HEADERS = {"OpenStack-API-Version": MICROVERSION}
_REMEDIES = {401: "correct the user and password in [placement]", 403: "give the user of [placement] the role admin or service",
             404: "correct the endpoint of the service placement in Keystone, or endpoint_override",
             406: "Placement of Stein or later is needed"}


class PlacementError(Exception):
    """The text says what was asked, what came, and the remedy."""


class Conflict(PlacementError):
    """Somebody else changed it meanwhile, or a server holds it: look again."""


@dataclass(frozen=True)
class Child:
    """A provider of ours, on any host. root: UUID of the compute node. spare, full: by its gauge, in the unit of kind, None
    where it says nothing; age: of that, in seconds. used: what each consumer holds of kind."""

    root: str
    name: str
    kind: str
    spare: int | None
    full: int | None
    age: float
    used: Mapping[str, int]


class Placement:
    """keystone: has session, service_type, interface, region_name, endpoint_override."""

    def __init__(self, keystone: adapter.Adapter) -> None:
        self._keystone = keystone
        self._named: frozenset[str] = frozenset()

    def _ask(self, method: str, path: str, body: Any = None, fine: Sequence[int] = ()) -> Any:
        """Raises PlacementError."""
        return self._answer(method, path, body, fine)[0]

    def _answer(self, method: str, path: str, body: Any = None, fine: Sequence[int] = ()) -> tuple[Any, Mapping[str, str]]:
        """With its headers. Raises PlacementError."""
        what = f"{method} {path}"
        try:
            answer = self._keystone.request(path, method, headers=HEADERS, raise_exc=False,
                                            **({} if body is None else {"json": body}))
        except ka.ClientException as error:
            raise PlacementError(f"{what}: {str(error).strip()}; remedy: does Placement run, and is [placement] right?") \
                from error
        if answer.status_code >= 400 and answer.status_code not in fine:
            detail = _detail(answer)
            kind = Conflict if answer.status_code == 409 else PlacementError
            remedy = _REMEDIES.get(answer.status_code, "see the log of Placement")
            raise kind(f"{what}: {answer.status_code} {detail}; remedy: {remedy}")
        try:
            return answer.json() if answer.content else None, answer.headers
        except ValueError as error:
            raise PlacementError(f"{what}: the answer is no JSON; remedy: is the endpoint Placement's?") from error

    def prepare(self) -> None:
        """The resource classes are there. They may be made at any time, by each host."""
        for class_ in (*CLASSES, GAUGE):
            self._ask("PUT", f"/resource_classes/{class_}")

    def root(self, host: str) -> str | None:
        """UUID of a compute node's provider; None: there is none of that name."""
        found = self._providers(name=host)
        return next((str(one["uuid"]) for one in found if one.get("parent_provider_uuid") is None), None)

    def children(self, host: str, root: str) -> list[Present]:
        """Ours of this compute node."""
        return [self._present(one) for one in self._providers(in_tree=root) if one["name"].startswith(prefix(host))]

    def _providers(self, **query: str) -> list[dict[str, Any]]:
        return list(self._ask("GET", f"/resource_providers?{urlencode(query)}")["resource_providers"])

    def _present(self, one: Mapping[str, Any]) -> Present:
        uuid = str(one["uuid"])
        inventories = self._ask("GET", f"/resource_providers/{uuid}/inventories")
        traits = self._ask("GET", f"/resource_providers/{uuid}/traits")
        used = self._ask("GET", f"/resource_providers/{uuid}/usages")
        # The oldest generation: a change between these answers then is a conflict, and not lost.
        generation = min(int(inventories["resource_provider_generation"]), int(traits["resource_provider_generation"]))
        return Present(str(one["name"]), uuid, generation, inventories["inventories"], frozenset(traits["traits"]),
                       {str(key): int(value) for key, value in used["usages"].items()})

    def everywhere(self, between: Callable[[], None]) -> Iterator[Child]:
        """Ours of all compute nodes: two questions each. between: is called before each. Raises PlacementError."""
        known = self._ask("GET", f"/traits?{urlencode({'name': 'in:' + ','.join(KINDS)})}")["traits"]
        for trait in sorted(known):
            for one in self._providers(required=trait):
                between()
                yield self._child(one, KINDS[trait])

    def _child(self, one: Mapping[str, Any], kind: str) -> Child:
        path = f"/resource_providers/{one['uuid']}"
        found, headers = self._answer("GET", f"{path}/inventories", fine=(404,))
        said = found.get("inventories", {}).get(GAUGE)
        held = self._ask("GET", f"{path}/allocations", fine=(404,)).get("allocations", {})
        used = {str(consumer): int(each["resources"].get(kind, 0)) for consumer, each in held.items()}
        return Child(str(one["root_provider_uuid"]), str(one["name"]), kind,
                     None if said is None else int(said["total"]) - int(said["reserved"]),
                     None if said is None else int(said["total"]), _age(headers),
                     {consumer: amount for consumer, amount in used.items() if amount})

    def do(self, root: str, step: Step) -> None:
        """Carry out one step. Raises PlacementError."""
        match step:
            case Make():
                self._ask("POST", "/resource_providers", {"name": step.name, "uuid": step.uuid, "parent_provider_uuid": root})
            case SetInventory():
                self._ask("PUT", f"/resource_providers/{step.uuid}/inventories",
                          {"resource_provider_generation": step.generation,
                           "inventories": {class_: dict(one) for class_, one in step.inventories.items()}})
            case SetTraits():
                for name in sorted(step.traits - self._named):
                    self._ask("PUT", f"/traits/{quote(name)}")
                self._named |= step.traits
                self._ask("PUT", f"/resource_providers/{step.uuid}/traits",
                          {"resource_provider_generation": step.generation, "traits": sorted(step.traits)})

    def candidates(self, amounts: Mapping[str, int]) -> Mapping[str, Any]:
        """provider_summaries of all hosts that have these amounts. One request, however many hosts."""
        query = urlencode({"resources": ",".join(f"{class_}:{amount}" for class_, amount in sorted(amounts.items()))})
        found = self._ask("GET", f"/allocation_candidates?{query}")["provider_summaries"]
        return dict(found)


def _age(headers: Mapping[str, str]) -> float:
    """By Placement's own clock, if its web server says it."""
    def read(name: str) -> float | None:
        try:
            return parsedate_to_datetime(headers[name]).timestamp()
        except (KeyError, ValueError, TypeError):
            return None
    changed, now = read("last-modified"), read("date")
    return float("inf") if changed is None else max(0.0, (time.time() if now is None else now) - changed)


def _detail(answer: Any) -> str:
    try:
        return " ".join(str(answer.json()["errors"][0]["detail"]).split())
    except (ValueError, KeyError, IndexError, TypeError):
        return str(answer.reason)

"""Guest agents at idletimed: rights, restarts, floods. The guest's end is played by a shell."""

from __future__ import annotations

import os
import signal
import time
from typing import Callable

import pytest

from tests.e2e.libvirt_fixtures import (  # noqa: F401  (fixtures)
    INTERVAL_US, domain, expect, foreground, host, idletimed, module_stack, set_policy, shared_disk,
)
from tests.framework.agent import AgentGuest, boot_with_agent
from tests.framework.agent_port import AgentPort
from tests.framework.domain import AGENT_CHANNEL, Domain
from tests.framework.idletimed import Idletimed, virt_idletime, wait_until
from tests.framework.kernel import get_kernel
from tests.framework.libvirtd import Libvirtd

Make = Callable[..., Domain]

BG = ("background", "slow", INTERVAL_US)
FG = ("foreground", "slow", INTERVAL_US)

DEMOTE = "<idletime:guest control='demote'/>"
NONE = "<idletime:guest control='none'/>"


@pytest.fixture(scope="module")
def tenant(host: Libvirtd, idletimed: Idletimed, module_stack: object, shared_disk: object) -> Callable[..., AgentPort]:
    """Define, start and boot a domain, and open its agent's port."""

    def start(make: Make, name: str, control: str = DEMOTE) -> AgentPort:
        result = make(name, foreground(control), (AGENT_CHANNEL,))
        result.define()
        return AgentPort(result.start().booted()).open()

    return start


def test_a_guest_demotes_itself(idletimed: Idletimed, host: Libvirtd, domain: Make,
                                tenant: Callable[..., AgentPort]) -> None:
    """Down and up again; its wish outlives idletimed and libvirtd, but no reset; without the right it is refused."""
    agent = tenant(domain, "guest")
    wait_until(lambda: bool(agent.heard()), "the host speaks first")
    first = agent.heard()[0]
    assert [first[name] for name in ("type", "control", "class", "answers")] == ["policy", "demote", "foreground", None]

    answer = agent.answer(agent.ask("background"))
    assert (answer["class"], answer["granted"]["class"], answer["refused"]) == ("background", "background", [])
    expect(agent.domain, vda=BG)

    for number in (signal.SIGTERM, signal.SIGKILL):
        idletimed.stop(number)
        expect(agent.domain, vda=BG)
        idletimed.start()
        expect(agent.domain, vda=BG)
    host.stop_libvirtd(signal.SIGKILL)
    host.start_libvirtd()
    expect(agent.domain, vda=BG)
    wait_until(lambda: agent.heard()[-1]["session"] != first["session"], "a new session is announced")
    assert agent.heard()[-1]["granted"]["class"] == "background"

    set_policy(agent.domain, foreground(NONE))
    expect(agent.domain, vda=FG)
    answer = agent.answer(agent.ask("background"))
    assert [refusal["code"] for refusal in answer["refused"]] == ["control-none"]
    set_policy(agent.domain, foreground(DEMOTE))
    agent.answer(agent.ask("background"))
    expect(agent.domain, vda=BG)

    assert agent.answer(agent.ask("foreground"))["granted"] == {"class": "foreground", "queues": []}
    expect(agent.domain, vda=FG)
    queues = [{"device": {"target": "vda"}, "queues": "0"}, {"device": {"serial": "none"}, "queues": "0"},
              {"device": {"target": "vda", "kernel": "x"}, "queues": "7"}]
    answer = agent.answer(agent.ask("foreground", queues[:2]))
    assert [entry["queues"] for entry in answer["granted"]["queues"]] == ["0"]
    assert [refusal["code"] for refusal in answer["refused"]] == ["unknown-device"]
    assert next(iter(agent.domain.scheduler().values()))["queues"] == "0"
    answer = agent.answer(agent.ask("background", queues[2:]))
    assert [refusal["code"] for refusal in answer["refused"]] == ["no-such-queue"]
    expect(agent.domain, vda=BG)

    agent.domain.dom.reset()
    expect(agent.domain, vda=FG)


def test_the_agent_itself(idletimed: Idletimed, host: Libvirtd, domain: Make) -> None:
    """idletime-agent in the guest, idletimed on the host, a person at each end; one of the two restarts at a time."""
    tenant = domain("agent", foreground(DEMOTE), (AGENT_CHANNEL,))
    tenant.boot = boot_with_agent(host.boot, get_kernel())
    tenant.define()
    tenant.start().booted()
    assert tenant.guest is not None
    agent = AgentGuest(tenant.guest)
    agent.start()
    agent.call("vm", "background")
    expect(tenant, vda=BG)
    assert "background" in virt_idletime(host, "status", "agent")
    idletimed.stop(signal.SIGKILL)
    idletimed.start()
    agent.signal("KILL")
    agent.start()
    wait_until(lambda: agent.status()["host"]["connected"], "agent and host have found each other again")
    expect(tenant, vda=BG)
    agent.call("vm", "foreground")
    expect(tenant, vda=FG)


FLOODS = {
    "zeroes": "cat /dev/zero",
    "lines": "yes '{}'",
    "newlines": "yes ''",
    "states": """yes '{"version":1,"type":"state","session":"a","sequence":1,"request":{"class":"background"}}'""",
    "flips": """while :; do for c in background foreground; do echo '{"version":1,"type":"state","session":"a",'"""
             """'"sequence":1,"request":{"class":"'$c'"}}'; done; done""",
    "depth": "yes '[' | tr -d '\\n' | fold -w 60000",
}
QUICK = ("lines", "flips")
"""The costliest to read, and the costliest to obey; $IDLETIME_FULL (make test-libvirt-full) adds the others."""

FLOOD_SECONDS = 3.0

CPU_LIMIT = 0.01
"""Of one core, what idletimed does anyway included (0.2 %)."""


def test_floods(idletimed: Idletimed, domain: Make, tenant: Callable[..., AgentPort]) -> None:
    """Whatever a guest pours into its port: at most 1 % of a processor, and another guest's answer is not late."""
    flooder, other = (tenant(domain, name) for name in ("flooder", "other"))
    other.answer(other.ask("foreground"))
    used = {}
    names = FLOODS if os.environ.get("IDLETIME_FULL") else QUICK
    for name, command in ((name, FLOODS[name]) for name in names):
        assert flooder.domain.guest is not None
        flood = flooder.domain.guest.start(f"({command}) >/run/say & echo $! >/run/flood; wait")
        time.sleep(1)  # the burst that everybody has is over
        before, begin = idletimed.cpu_seconds(), time.monotonic()
        time.sleep(FLOOD_SECONDS)
        used[name] = (idletimed.cpu_seconds() - before) / (time.monotonic() - begin)
        begin = time.monotonic()
        other.answer(other.ask("background"))
        late = time.monotonic() - begin
        other.answer(other.ask("foreground"))
        flooder.domain.guest.run("kill $(cat /run/flood); killall yes cat tr fold 2>/dev/null; true")
        flood.cancel()
        print(f"{name}: {100 * used[name]:.2f} % of a processor, the other's answer after {1000 * late:.0f} ms")
        assert late < 20, name  # the guests themselves are slow here: under TCG, one of them at full load
    assert max(used.values()) < CPU_LIMIT, used

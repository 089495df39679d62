"""Role nova makes of a stock Nova one that places by idleness and evicts, with our packages; and makes it stock again.

The last of these tests: what the lab has started itself is not there any more after it.
"""

from __future__ import annotations

from tests.openstack import configuration as conf
from tests.openstack import role
from tests.openstack.events import BUSY, IDLE, come, held, hypervisor, moved
from tests.openstack.lab import Lab
from tests.openstack.role import AGENT, EVICTOR

INSTALLED = "test -x /usr/bin/%s && echo yes || true"
STOCK = conf.nova(True, "ctl", conf.CONTROLLER)
WEIGHERS = "grep -h weight_classes /etc/nova/nova.conf /etc/nova/nova.conf.d/* 2>/dev/null || true"


def test_role(lab: Lab) -> None:
    """Held, placed and moved by what the role has installed; a second run changes nothing; and nothing is left."""
    control, one = lab.controller, hypervisor(lab, "hv1")
    for host, service in ((control, "evictor"), (control, "nova-scheduler"), (one, "agent")):
        host.stop(service)
    control.sh(f"cat >/etc/nova/nova.conf <<'END'\n{STOCK}END\nservice nova-scheduler start")
    role.prepare(lab, one)
    server = lab.boot("bg", "bg.small", "greedy", "hv1")
    assert server.status == "ACTIVE", server.fault
    assert lab.class_of(server) != "background", "nobody has said so yet"

    assert all(role.play().values())
    assert role.play() == {"ctl": 0, "hv1": 0}
    assert one.sh(INSTALLED % AGENT) == control.sh(INSTALLED % EVICTOR) == "yes\n"
    held(lab, server, "background by the role's rule")
    come(lambda: lab.spare("hv1") >= IDLE, "the agent tells Placement", lab)
    assert lab.boot("busy", "m1.small", "busy", "hv1").status == "ACTIVE"
    moved(lab, server, "hv1")
    come(lambda: 0 <= lab.spare("hv1") <= BUSY, "Placement knows who is busy", lab)
    other = lab.boot("bg-2", "bg.small", "greedy")
    assert other.compute_host not in ("", "hv1"), "the weigher is asked"

    role.play("-e", "nova_state=absent")
    assert one.sh(INSTALLED % AGENT) == control.sh(INSTALLED % EVICTOR) == ""
    assert control.sh(WEIGHERS) == "" and not one.sh("ls /etc/idletime/rules.d")
    assert lab.boot("any", "m1.small").status == "ACTIVE", "nova-scheduler goes on without a weigher"

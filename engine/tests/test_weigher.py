# SPDX-License-Identifier: GPL-2.0-or-later
"""The weigher within Nova's own handler, with the real Placement."""

from __future__ import annotations

import uuid
from types import SimpleNamespace

import pytest

from idletime_openstack.gauge import Resource
from idletime_openstack.placement import Placement
from idletime_openstack.providers import DISK
from test_placement import Host

pytestmark = pytest.mark.nova
pytest.importorskip("nova", reason="needs Nova: make engine-test")


class State:
    """As nova.scheduler.host_manager.HostState, as far as weighers look at it."""

    def __init__(self, root: str) -> None:
        self.uuid, self.host, self.nodename, self.aggregates = root, root, root, []


@pytest.fixture
def weigh(real_placement, monkeypatch):
    """Weighs hosts for a flavor as nova-scheduler does: classes by configuration, Nova's handler."""
    from nova.scheduler import weights

    from idletime_openstack import weigher
    monkeypatch.setattr(weigher.nova_utils, "get_ksa_adapter", lambda _service: real_placement.adapter())
    handler = weights.HostWeightHandler()
    (class_,) = handler.get_matching_classes(["idletime_openstack.weigher.IdletimeWeigher"])

    def weigh(roots, extra_specs):
        request = SimpleNamespace(flavor=SimpleNamespace(extra_specs=extra_specs))
        found = handler.get_weighed_objects([class_()], [State(root) for root in roots], request)
        return [(one.obj.uuid, one.weight) for one in found]

    return weigh


@pytest.fixture
def hosts(real_placement):
    made = [Host(real_placement, f"host-{uuid.uuid4().hex[:8]}") for _ in range(3)]
    for host, steady in zip(made, (0.3, 0.9, 0.6), strict=True):
        host.say(Resource("sda", "disk", True, steady))
        host.agent.look()
    yield made
    for host in made:
        host.say()
        host.agent.look()


def test_the_idlest_is_first(weigh, hosts):
    """Of 30, 90 and 60 %: shares of the most that any host has free, times 100."""
    a, b, c = (host.root for host in hosts)
    assert weigh([a, b, c], {f"resources:{DISK}": "10"}) == [
        (b, 100.0), (c, pytest.approx(100 * 60 / 90)), (a, pytest.approx(100 * 30 / 90))]


def test_what_is_held_counts(weigh, hosts):
    """50 of b's 90 are held: 40 are left."""
    a, b, c = hosts
    (child,) = b.children().values()
    b.server.ask("PUT", f"/allocations/{uuid.uuid4()}", {
        "allocations": {child.uuid: {"resources": {DISK: 50}}}, "project_id": "p", "user_id": "u",
        "consumer_generation": None})
    found = weigh([a.root, b.root, c.root], {f"resources:{DISK}": "10"})
    assert [root for root, _ in found] == [c.root, b.root, a.root]


def test_any_other_server_is_weighed_as_stock_weighs_it(weigh, hosts, monkeypatch):
    """And Placement is not asked."""
    monkeypatch.setattr(Placement, "candidates", lambda *_: pytest.fail("asked"))
    assert {weight for _, weight in weigh([host.root for host in hosts], {"hw:mem": "x"})} == {0.0}


def test_placement_that_fails_changes_nothing(weigh, hosts, monkeypatch, caplog):
    from idletime_openstack import weigher

    def fail(_service):
        raise RuntimeError("no endpoint")

    monkeypatch.setattr(weigher.nova_utils, "get_ksa_adapter", fail)
    assert {weight for _, weight in weigh([host.root for host in hosts], {f"resources:{DISK}": "10"})} == {0.0}
    assert "placed without regard to idleness: no endpoint" in caplog.text


def test_it_is_loaded_by_configuration():
    """As nova.conf of the example has it."""
    import nova.conf
    from nova.scheduler import weights
    nova.conf.CONF([], default_config_files=[])
    classes = weights.HostWeightHandler().get_matching_classes(
        ["nova.scheduler.weights.all_weighers", "idletime_openstack.weigher.IdletimeWeigher"])
    assert classes[-1].__name__ == "IdletimeWeigher" and len(classes) > 5
    assert nova.conf.CONF.idletime.weight_multiplier == 100.0

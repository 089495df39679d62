# SPDX-License-Identifier: GPL-2.0-or-later
"""Sends a background server to the idlest host. Nova loads it by configuration:

    [filter_scheduler]
    weight_classes = nova.scheduler.weights.all_weighers, idletime_openstack.weigher.IdletimeWeigher

    [idletime]
    weight_multiplier = 100

A server whose flavor asks for no spare time weighs the same on all hosts, and nobody is asked: stock Nova. Where Placement does
not answer, a background server is placed as stock Nova places it, and the log has the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import nova.conf
from nova import utils as nova_utils
from nova.scheduler import utils, weights
from oslo_config import cfg
from oslo_log import log as logging

from .candidates import asked, idle
from .placement import Placement
from .settings import GROUP

LOG = logging.getLogger(__name__)
CONF = nova.conf.CONF
CONF.register_opts([cfg.FloatOpt(
    "weight_multiplier", default=100.0, help="Weight of idle hosts for background servers; Nova's own weighers have about 1, "
    "so idleness goes first. 0 switches it off. An aggregate's metadata idletime_weight_multiplier goes before it.")], GROUP)


class IdletimeWeigher(weights.BaseHostWeigher):  # type: ignore[misc]
    """Weights are 0 to 1, as Nova multiplies them."""

    minval, maxval = 0, 1

    def weight_multiplier(self, host_state: Any) -> float:
        return float(utils.get_weight_multiplier(host_state, "idletime_weight_multiplier", CONF.idletime.weight_multiplier))

    def _weigh_object(self, host_state: Any, weight_properties: Any) -> float:
        return self._shares(weight_properties).get(str(host_state.uuid), 0.0)

    def weigh_objects(self, weighed_obj_list: Any, weight_properties: Any) -> list[float]:
        shares = self._shares(weight_properties)
        return [shares.get(str(one.obj.uuid), 0.0) for one in weighed_obj_list]

    def _shares(self, request: Any) -> Mapping[str, float]:
        """By compute node. One request to Placement for each background server."""
        try:
            amounts = asked(request.flavor.extra_specs or {})
            return idle(self._placement().candidates(amounts), amounts) if amounts else {}
        except Exception as error:  # a server is placed, whatever is wrong here
            LOG.warning("background servers are placed without regard to idleness: %s", error)
            return {}

    def _placement(self) -> Placement:
        """As nova-scheduler itself speaks to it: [placement] of nova.conf."""
        return Placement(nova_utils.get_ksa_adapter("placement"))

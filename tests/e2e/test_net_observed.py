"""A foreground on the uplink that no QEMU of ours sends: the observer in the kernel sees it."""

from __future__ import annotations

import pytest

from tests.bench.net import observed
from tests.bench.net.plan import Case
from tests.framework.qemu import Boot
from tests.testbed import observer
from tests.testbed.link import BRIDGE_SYSCTL, Model

SECONDS = 2.0


@pytest.mark.skipif(bool(observer.missing_beside_stock()), reason=str(observer.missing_beside_stock()))
def test_the_hosts_own_packets_are_foreground(net_boot: Boot) -> None:
    """A greedy process of the host leaves a greedy background VM next to nothing; while nobody observes, they share.

    With br_netfilter: without it packets wait in the uplink's queue behind the host's, and the cap holds the VM anyway.
    """
    with observed.HostPair(net_boot, Model()) as pair:
        if not pair.link.host.has_sysctl(BRIDGE_SYSCTL):
            pytest.skip(f"this kernel has no /proc/sys/{BRIDGE_SYSCTL}: load br_netfilter")
        pair.warm_up()
        observed_share = share(pair)
        assert observed_share < 0.05
        pair.observer.stop()
        assert share(pair) > max(0.03, 3 * observed_share), observed_share


def share(pair: observed.ObservedPair) -> float:
    """What the background sent, by all that was sent; both send all they can."""
    result = pair.measure(Case("udp", "udp", interval_us=5000, br_netfilter=True), SECONDS)
    sent = {role: float(result[role]["mbit_s"]) for role in ("foreground", "background")}
    return sent["background"] / sum(sent.values())

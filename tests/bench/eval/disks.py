"""The disks of the evaluation, each with what is run on it. Facts only.

A solid state disk of 16 channels and 100 us serves 160,000 requests a second;
two guests under TCG make some 2,000. So `ssd` has 16 channels of 20 ms: all
its times are stretched by 200, those of the guests and of the host are not.
QEMU's NBD client has 16 requests in flight at most, and tells of an end only
when the next reply has come: there each machine has the disk mounted by
nbdfuse, which serves 10 at a time, so the foreground is two machines. One
mount for all, which a loop device needs, would make a disk of 10 channels:
the kernel's schedulers cannot be compared there.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.bench.eval import contenders, workloads
from tests.bench.eval.contenders import Contender
from tests.bench.eval.workloads import Workload
from tests.testbed.disk import Model


@dataclass(frozen=True)
class Setting:
    """A disk, and the workloads and contenders that run on it if no others are named."""

    model: Model
    title: str
    workloads: tuple[Workload, ...]
    contenders: tuple[Contender, ...]
    outstanding: int = 1
    """Requests that the greedy background keeps."""
    other_rules: bool = False
    """QEMU is the one of rules.py."""
    mounted: bool = False
    """QEMU reaches it through a mount of its own, else by NBD."""


ARM = Setting(
    Model(model="fixed", size="1G", service_us=5000), "5 ms a request, one at a time", workloads.WORKLOADS, contenders.CONTENDERS,
)
FORESEEN = tuple(workload for workload in workloads.WORKLOADS if workload.name not in ("search", "greedy"))
"""Those that leave a clairvoyant scheduler something."""
RULES = Setting(ARM.model, ARM.title, FORESEEN, contenders.RULES, other_rules=True)
SEEK = Setting(
    Model(model="seek", size="1G", seek_max_us=28000, rotation="half"), "seeks, 15 ms a request within one half, 24 ms across, one at a time",
    workloads.SEEK, contenders.SEEK,
)
SSD = Setting(
    Model(model="fixed", size="1G", service_us=workloads.SSD_SERVICE_US, channels=workloads.SSD_CHANNELS, spin_us=100),
    f"{workloads.SSD_CHANNELS} requests of {workloads.SSD_SERVICE_US / 1000:g} ms at a time", workloads.SSD, contenders.SSD, 32, True,
)
BY_NAME = {"arm": ARM, "rules": RULES, "seek": SEEK, "ssd": SSD}

"""A guest that plays the host: foreground and background are cgroups (v2) in it, on one stock virtio disk."""

from __future__ import annotations

from tests.framework.guest import Guest

CGROUPS = "/sys/fs/cgroup"
ENTER = "/bin/in-cgroup"
"""In the guest: runs a program in a cgroup."""

FOREGROUND_WEIGHT, BACKGROUND_WEIGHT = 10000, 1
"""The extremes that cgroup v2 has."""

QUALITY = "enable=1 ctrl=user rpct=95.00 rlat=6000 wpct=95.00 wlat=6000 min=50.00 max=100.00"
"""io.cost.qos: slow down where more than 5 % of the requests take longer than 6 ms, 1.2 service times."""

MODEL = "ctrl=user model=linear rbps=100000000 rseqiops=200 rrandiops=200 wbps=100000000 wseqiops=200 wrandiops=200"
"""io.cost.model of the disk of 5 ms: 200 requests a second whatever they are."""


def prepare(guest: Guest, controllers: str = "+io") -> None:
    """Mount the hierarchy and make both cgroups."""
    guest.run(
        f"mkdir -p {CGROUPS}; mount -t cgroup2 none {CGROUPS}; echo {controllers} >{CGROUPS}/cgroup.subtree_control;"
        f"mkdir {CGROUPS}/foreground {CGROUPS}/background;"
        f"printf '#!/bin/sh\\necho $$ >{CGROUPS}/$1/cgroup.procs; shift; exec \"$@\"\\n' >{ENTER}; chmod +x {ENTER}"
    )


def control(guest: Guest, io_cost: bool) -> None:
    """Switch io.cost on with its strongest weights, or off; ValueError where the guest's kernel lacks it."""
    if guest.run(f"test -e {CGROUPS}/io.cost.qos", check=False).status:
        raise ValueError("the guest's kernel has no io.cost (CONFIG_BLK_CGROUP_IOCOST)")
    device = "$(cat /sys/block/vda/dev)"
    if io_cost:
        guest.run(f'echo "{device} {MODEL}" >{CGROUPS}/io.cost.model; echo "{device} {QUALITY}" >{CGROUPS}/io.cost.qos')
    else:
        guest.run(f'echo "{device} enable=0" >{CGROUPS}/io.cost.qos')
    for name, weight in (("foreground", FOREGROUND_WEIGHT), ("background", BACKGROUND_WEIGHT)):
        guest.run(f"echo default {weight if io_cost else 100} >{CGROUPS}/{name}/io.weight")

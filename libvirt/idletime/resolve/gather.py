# SPDX-License-Identifier: GPL-2.0-or-later
"""Entry points: one source, or all sources of a VM."""

from __future__ import annotations

from collections.abc import Sequence

from ..conf import resources
from ..facts import DISK, INTERFACE, RUN_DIR, DeviceFacts, HostFacts, Resolution, Source
from ..plan import said_of
from ..police.enforce import Through
from ..policy.model import AUTO, Policy
from .disk import Disks
from .lookup import Lookup
from .net import Uplinks
from .outcome import NoResource, Unresolved
from .tree import Tree


class Host:
    """One look at a host: what was read once is not read again, so keep it for one command or one event only."""

    def __init__(self, root: str = "/", lookup: Lookup | None = None, run_dir: str = RUN_DIR):
        tree = self.tree = Tree(root, run_dir)
        self.root = root
        self._disks, self._uplinks = Disks(tree, lookup), Uplinks(tree, lookup)
        self._known: dict[Source, Resolution] = {}
        self.resources = resources.load(tree)

    def resolve(self, source: Source) -> Resolution:
        """The resource behind one source. Never raises: where there is no name, problem or none says why."""
        if source not in self._known:
            self._known[source] = self._resolve(source)
        return self._known[source]

    def _resolve(self, source: Source) -> Resolution:
        rules = self._disks if source.device == "disk" else self._uplinks
        try:
            found = rules.resolve(source)
        except Unresolved as error:
            found = Resolution(None, problem=error.problem, remedy=error.remedy, apart=error.apart)
        except NoResource as error:
            found = Resolution(None, none=error.reason)
        named = self.resources.named(rules.identity(source, found)) if self.resources.names_any else None
        if named is None:
            return found
        return Resolution(named.name, found.devices, (*(found.trail or (source.name,)), named.place), notes=found.notes,
                          apart=found.apart)


def resolve(source: Source, root: str = "/", lookup: Lookup | None = None) -> Resolution:
    """The same for a single source. Reads below root only."""
    return Host(root, lookup).resolve(source)


def _jobs(policy: Policy, device: DeviceFacts) -> bool:
    """Whether a device that QEMU cannot schedule has block jobs that it can."""
    return policy.jobs and device.kind == DISK and device.through is Through.OTHER


def gather(policy: Policy, devices: Sequence[DeviceFacts], host: Host, run_dir: str = RUN_DIR) -> HostFacts:
    """The host for choose(): resolves each device whose resource the policy does not name, and the uplink of migrations: that
    of the default route, as of networks in user space."""
    wanted = {device.source for device in devices if (not device.unserved or _jobs(policy, device))
              and said_of(policy, device)[0].resource == AUTO}
    if policy.jobs:
        wanted |= {copy for device in devices for copy in device.copies}
    uplink = host.resolve(Source(INTERFACE, "user")) if policy.jobs else None
    return HostFacts({source: host.resolve(source) for source in wanted}, run_dir, host.resources.settings, uplink)

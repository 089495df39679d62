# SPDX-License-Identifier: GPL-2.0-or-later
"""What a compiled XML says of the host that it was compiled on: as HostFacts, to compile it once more. Pure.

So the hook tells a policy that nobody compiled from a host that has changed since (another default route, a disk that
is not there yet): the first is refused, the second starts with what it was compiled to.
"""

from __future__ import annotations

from ..policy.grammar import SWITCHES
from ..xmltext import Document, Element
from .choose import ID_PREFIX
from .devices import devices_of
from .facts import HostFacts, Resolution, Source
from .merge import QEMU

_LEFT_OUT = Resolution(None, problem="it was not resolved when the domain was compiled")


def facts_of(domain_xml: str, run_dir: str) -> HostFacts:
    """The host as the qemu: elements of this domain name it; the parent of all arenas is this host's."""
    root = Document(domain_xml).root
    on = _overrides(root)
    resolutions: dict[Source, Resolution] = {}
    for device in devices_of(root):
        name = on.get(device.alias)
        resolutions[device.source] = Resolution(name) if name else _LEFT_OUT
    return HostFacts(resolutions, run_dir, settings=_objects(root))


def _overrides(root: Element) -> dict[str, str]:
    """Alias of a device -> name of its resource."""
    found = {}
    for device in root.iter(f"{{{QEMU}}}device"):
        for one in device.iter(f"{{{QEMU}}}property"):
            if one.get("name") == "idletime":
                found[device.get("alias", "")] = one.get("value", "").removeprefix(ID_PREFIX)
    return found


def _objects(root: Element) -> dict[str, dict[str, int | bool]]:
    """The properties of each resource."""
    settings: dict[str, dict[str, int | bool]] = {}
    for arg in root.iter(f"{{{QEMU}}}arg"):
        kind, _, rest = arg.get("value", "").partition(",")
        if kind != "idletime-resource":
            continue
        values = dict(part.split("=", 1) for part in rest.split(",") if "=" in part)
        name = values.pop("id", "").removeprefix(ID_PREFIX)
        settings[name] = {key: value == "on" if key in SWITCHES else int(value)
                          for key, value in values.items() if key in SWITCHES or value.isdecimal()}
        settings[name].setdefault("auto", False)  # compiled before a learned interval was the default
    return settings

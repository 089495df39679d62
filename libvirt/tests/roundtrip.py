# SPDX-License-Identifier: GPL-2.0-or-later
"""Passes each golden domain through a real libvirt; prints a line each, exits 1 if one does not come through.

    python3 libvirt/tests/roundtrip.py [URI [EMULATOR]]     (default: qemu:///system, the built QEMU)

For each: define the original and dump it; compile the dump, define, dump: compiling that again changes no byte; undone
and defined again it is the original's dump, but for the controllers that libvirt adds when a domain is defined twice.
Domains are defined under their own names and undefined at once; nothing is started. Give it a libvirtd of its own.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import libvirt  # noqa: E402
from lxml import etree  # noqa: E402

import trees  # noqa: E402
from conftest import Lookup  # noqa: E402
from idletime import compiler, resolve  # noqa: E402
from idletime.compiler.same import same  # noqa: E402

BUILT = HERE.parents[1] / "build/stage/bin/qemu-system-x86_64"
DUMP = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE


def fit(xml: str, emulator: str) -> str:
    """The domain as this QEMU can have it: no KVM, no display, no IDE, its own machine types."""
    root = etree.fromstring(xml.encode())
    root.set("type", "qemu")
    for path in ("./cpu", "./devices/graphics", "./devices/sound", "./devices/video", "./devices/emulator",
                 "./devices/disk[@type='vhostuser']"):  # fmt: skip
        for element in root.findall(path):
            element.getparent().remove(element)
    for target in root.findall("./devices/disk/target[@bus='ide']"):
        target.set("bus", "sata")
    etree.SubElement(root.find("devices"), "emulator").text = emulator
    machine = root.find("./os/type")
    machine.set("machine", re.sub(r"^pc-(q35|i440fx)-.*", r"pc-\1-10.0", machine.get("machine", "q35")))
    return etree.tostring(root, encoding="unicode")


class Passage:
    """A connection through which domains pass."""

    def __init__(self, uri: str, emulator: str):
        self.connection, self.emulator = libvirt.open(uri), emulator
        self.root = str(trees.expand(HERE / "data/hosts/rack.tree", Path(tempfile.mkdtemp())))

    def dump(self, xml: str) -> str:
        domain = self.connection.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
        try:
            return domain.XMLDesc(DUMP)
        finally:
            domain.undefine()

    def compile(self, xml: str) -> str:
        return compiler.compile(xml, resolve.gather(xml, self.root, Lookup())).xml

    def problems(self, xml: str) -> list[str]:
        original = self.dump(fit(xml, self.emulator))
        compiled = self.dump(self.compile(original))
        found = []
        if self.compile(compiled) != compiled:
            found.append("compiling it again changes it")
        if not same(without_controllers(self.dump(compiler.decompile(compiled))), without_controllers(original)):
            found.append("undone it is not the original")
        return found


def without_controllers(xml: str) -> etree._Element:
    root = etree.fromstring(xml.encode())
    for controller in root.findall("./devices/controller"):
        controller.getparent().remove(controller)
    return root


def main() -> int:
    libvirt.registerErrorHandler(lambda *_: None, None)
    given = sys.argv[1:] + ["qemu:///system", str(BUILT)][len(sys.argv) - 1 :]
    passage = Passage(given[0], given[1])
    bad = 0
    for path in sorted((HERE / "data/compile/rack").glob("*.xml")):
        if ".out." in path.name:
            continue
        try:
            found = passage.problems(path.read_bytes().decode())
        except libvirt.libvirtError as error:
            found = [f"libvirt: {error.get_error_message()}"]
        bad += bool(found)
        print(f"{path.stem}: {'; '.join(found) or 'ok'}")
    print(f"libvirt {passage.connection.getLibVersion() / 1e6:.3f}: {bad} do not come through")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())

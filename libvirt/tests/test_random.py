# SPDX-License-Identifier: GPL-2.0-or-later
"""Domains in random formatting: the promises of the compiler hold whatever the text looks like. Seeds are fixed."""

from __future__ import annotations

import random

import pytest
from lxml import etree

from idletime import compiler
from idletime.policy import edit
from idletime.xmltext import Document

QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
CLASSES = ("foreground", "background", "guest")


class Writer:
    """Writes the same kind of domain in ever new clothes."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.step = self.random.choice(["  ", "\t", "    ", " "])
        self.newline = self.random.choice(["\n", "\n", "\r\n"])
        self.flat = self.random.random() < 0.2

    def maybe(self, *choices):
        return self.random.choice([*choices, ""])

    def space(self, depth):
        if self.flat:
            return ""
        return self.random.choice(
            [self.newline + self.step * depth] * 8 + ["", " ", self.newline * 2 + self.step * depth]
        )

    def attributes(self, **values):
        items = [(name.rstrip("_").replace("__", ":"), value) for name, value in values.items() if value is not None]
        self.random.shuffle(items)
        quote = self.random.choice("'\"")
        return "".join(f"{self.maybe(' ')} {name}={quote}{value}{quote}" for name, value in items)

    def element(self, tag, depth, *children, **values):
        comment = self.maybe("", "", f"{self.space(depth)}<!-- > ' \" <{tag}> & -->")
        start = f"{comment}{self.space(depth)}<{tag}{self.attributes(**values)}{self.maybe(' ')}"
        if not children and self.random.random() < 0.7:
            return start + "/>"
        inner = "".join(children)
        return f"{start}>{inner}{self.space(depth) if children else self.maybe(self.newline)}</{tag}>"

    def leaf(self, tag, depth, text, **values):
        return f"{self.space(depth)}<{tag}{self.attributes(**values)}>{text}</{tag}>"

    def disk(self, name):
        alias = self.maybe(
            self.element("alias", 3, name=f"ua-{name}-own"), self.element("alias", 3, name="virtio-disk7")
        )
        return self.element(
            "disk", 2, self.element("source", 3, file=f"/{name}"), alias, self.element("target", 3, dev=name, bus="virtio"),
            type="file", device="disk")  # fmt: skip

    def interface(self, number):
        driver = self.maybe(self.element("driver", 3, name="vhost"), self.element("driver", 3, queues="2"),
                            self.element("driver", 3))  # fmt: skip
        mac = self.maybe(self.element("mac", 3, address=f"52:54:00:00:00:0{number}"))
        return self.element("interface", 2, mac, self.element("model", 3, type="virtio"), driver, type="bridge")

    def policy(self):
        parts = [
            self.element("i:disk", 3, resource="sda"), self.element("i:interface", 3, resource="eth0"),
            self.maybe(self.element("i:cpu", 3, class_=self.random.choice(["idle", "minimal"]))),
            self.maybe(self.element("i:memory", 3, **{"soft-limit": "64MiB"})),
            self.maybe(self.element("i:guest", 3, control="demote")), self.maybe(self.element("i:share", 3, weight="7")),
        ]  # fmt: skip
        self.random.shuffle(parts)
        return self.element(
            "i:policy", 2, *parts, xmlns__i="urn:idletime:policy:1", class_=self.random.choice(CLASSES)
        )

    def foreign(self):
        arg = self.element("q:arg", 2, value=self.random.choice(["-snapshot", "device.virtio-disk0.x=1"]))
        override = self.element(
            "q:device", 2, self.element("q:frontend", 3, self.element("q:property", 4, name="x", type="remove")),
            alias=self.random.choice(["net0", "virtio-disk1"]))  # fmt: skip
        return self.maybe(
            self.element("q:commandline", 1, arg, xmlns__q=QEMU), self.element("q:commandline", 1, xmlns__q=QEMU),
            self.element("q:override", 1, override, xmlns__q=QEMU),
            self.element("q:commandline", 1, arg, xmlns__q=QEMU) + self.element("q:override", 1, override, xmlns__q=QEMU),
        )  # fmt: skip

    def domain(self):
        parts = [
            self.element("metadata", 1, self.maybe(self.element("x:y", 2, xmlns__x="urn:x")), self.policy()),
            self.leaf("memory", 1, "65536", unit="KiB"), self.leaf("vcpu", 1, str(self.random.randint(1, 3))),
            self.maybe(self.leaf("iothreads", 1, "2")),
            self.maybe(self.element("cputune", 1), self.element("cputune", 1, self.leaf("period", 2, "1000"))),
            self.maybe(self.element("memtune", 1), self.element("memtune", 1, self.leaf("soft_limit", 2, "70000"))),
            self.element("devices", 1, *(self.disk(name) for name in ("vda", "vdb")[: self.random.randint(0, 2)]),
                         *(self.interface(number) for number in range(self.random.randint(0, 2)))),
        ]  # fmt: skip
        self.random.shuffle(parts)
        text = f"<domain{self.attributes(type='kvm')}>{self.leaf('name', 1, 'a &amp; b')}{''.join(parts)}{self.foreign()}"
        head, tail = self.maybe("<?xml version='1.0'?>\n"), self.maybe(self.newline)
        return f"{head}{text}{self.newline}</domain>{tail}"


@pytest.mark.parametrize("seed", range(400))
def test_promises(seed):
    xml = Writer(seed).domain()
    host = compiler.HostFacts()
    once = compiler.compile(xml, host).xml
    etree.fromstring(once.encode())
    assert compiler.compile(once, host).xml == once
    assert compiler.decompile(once) == xml
    without = edit.without(xml)
    if Document(without).root.find("metadata") is not None:  # else the policy was alone in it, and it goes as well
        assert compiler.compile(edit.without(once), host).xml == without


@pytest.mark.parametrize("seed", range(100))
def test_edits_of_text_are_edits_of_the_tree(seed):
    """Each element's span is its text: cut out, it parses to the same element."""
    xml = Writer(seed).domain()
    document, data = Document(xml), xml.encode()
    for element in document.root.iter(etree.Element):
        span = document.span(element)
        tag = etree.QName(element).localname.encode()
        cut = data[span.start : span.end]
        assert cut.startswith(b"<") and cut.endswith(b">") and tag in cut[: len(tag) + 4]
        assert span.empty == cut.endswith(b"/>") or len(element)

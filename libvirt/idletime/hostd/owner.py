# SPDX-License-Identifier: GPL-2.0-or-later
"""Who runs a domain's QEMU, and so owns its arenas: from the setting, else the domain's label, else qemu.conf."""

from __future__ import annotations

import grp
import pwd
import re
from pathlib import Path

from lxml import etree

from .arena import Owner

QEMU_CONF = Path("/etc/libvirt/qemu.conf")
USUAL = ("libvirt-qemu", "qemu")
"""Users that distributions give QEMU: Debian's, Fedora's."""


def parse(text: str) -> Owner:
    """ "user:group", names or numbers ("+64055:+64055", as libvirt writes them). Raises ValueError."""
    user, _, group = text.partition(":")
    try:
        uid = int(user) if user.lstrip("+").isdecimal() else pwd.getpwnam(user).pw_uid
        if not group:
            return Owner(uid, pwd.getpwuid(uid).pw_gid)
        return Owner(uid, int(group) if group.lstrip("+").isdecimal() else grp.getgrnam(group).gr_gid)
    except KeyError as error:
        raise ValueError(f"the owner of arenas, '{text}': {error.args[0]}; use an existing user and group") from None


def of_domain(xml: str, setting: str = "") -> Owner:
    """The owner of the arenas of a domain. Raises ValueError."""
    if setting:
        return parse(setting)
    label = etree.fromstring(xml.encode()).findtext("./seclabel[@model='dac']/label")
    return parse(label) if label else of_host()


def of_host(conf: Path = QEMU_CONF) -> Owner:
    """The user that libvirt gives to QEMU where a domain says nothing."""
    said = _said(conf)
    if said.get("user"):
        return parse(f"{said['user']}:{said['group']}" if said.get("group") else said["user"])
    for name in USUAL:
        try:
            return parse(name)
        except ValueError:
            continue
    return Owner(0, 0)


def _said(conf: Path) -> dict[str, str]:
    try:
        text = conf.read_text()
    except OSError:
        return {}
    return dict(re.findall(r'^\s*(user|group)\s*=\s*"([^"]*)"', text, re.MULTILINE))

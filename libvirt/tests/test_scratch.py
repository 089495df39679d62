# SPDX-License-Identifier: GPL-2.0-or-later
"""What can be a scratch disk, and how one is emptied, without a host."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from idletime import scratch
from idletime.errors import Severity
from idletime.hostd import overlay
from idletime.policy.parse import parse_tree
from idletime.resolve import qcow2
from idletime.resolve.tree import Tree
from idletime.scratch import Scratch, Unfit
from idletime.xmltree import read
from overlays import AGENT, MIB, image, local, xml


def test_the_header_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is killed in the middle leaves what nobody takes for an image."""
    file, real = tmp_path / "image", os.pwrite
    file.write_bytes(image() + b"x" * MIB)
    content = image()[:-4096] + b"z" * 4096
    descriptor = os.open(file, os.O_RDWR)

    def killed(number: int, data: bytes, at: int) -> int:
        if at == 0:
            raise OSError(5, "killed")
        return real(number, data, at)

    monkeypatch.setattr(os, "pwrite", killed)
    with pytest.raises(OSError, match="killed"):
        overlay.write(descriptor, content)
    assert qcow2.image(lambda size, at: file.read_bytes()[at:at + size]) is None
    assert file.read_bytes()[-4096:] == b"z" * 4096
    monkeypatch.undo()
    overlay.write(descriptor, content)
    os.close(descriptor)
    assert file.read_bytes() == content


# ---- an empty overlay by qemu-img

def _program(folder: Path, text: str) -> None:
    (folder / "qemu-img").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "qemu-img").chmod(0o755)


def test_what_qemu_img_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same kind of image, and nothing that it names is opened (-u)."""
    (tmp_path / "made").write_bytes(image("json:{}, x"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    _program(tmp_path, f"""printf '%s\\n' "$@" >{tmp_path}/asked
        while [ $# -gt 2 ]; do shift; done; cp {tmp_path}/made "$1" """)
    old = qcow2.Image(3, 1 << 30, 1 << 16, "json:{}, x", "raw", 16, qcow2.EXTENDED_L2 | qcow2.COMPRESSION, 1, zstd=True)
    assert overlay.fresh(old, str(tmp_path)) == image("json:{}, x")
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[:-2] == ["create", "-q", "-u", "-f", "qcow2", "-o", "compat=1.1,cluster_size=65536,refcount_bits=16,"
                          "lazy_refcounts=on,extended_l2=on,compression_type=zstd", "-F", "raw", "-b", "json:{}, x"]
    assert asked[-1] == str(1 << 30)
    with pytest.raises(Unfit, match="another size"):
        overlay.fresh(replace(old, size=5), str(tmp_path))
    _program(tmp_path, "echo 'no room' >&2; exit 1")
    with pytest.raises(Unfit, match="no room"):
        overlay.fresh(old, str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(Unfit, match="install qemu-utils"):
        overlay.fresh(old, str(tmp_path))
    assert list(tmp_path.glob(".scratch-*")) == []


@pytest.mark.parametrize("version", [2, 3])
def test_headers(version: int) -> None:
    content = image("/a/base", "qcow2", version)
    found = qcow2.image(lambda size, at: content[at:at + size])
    assert found is not None and (found.backing, found.backing_format, found.size) == ("/a/base", "qcow2", 1 << 30)
    assert qcow2.image(lambda size, at: (b"x" + content[1:])[at:at + size]) is None
    assert qcow2.image(lambda size, at: content[:60][at:at + size]) is None


# ---- findings

NEVER = "line 1: space target='vda': never dropped: "
NOTE = "note: line 1: space target='vda': the disk cannot be trimmed, so it is "
FINDINGS = {
    "no disk": (xml("{}", "b", "<space target='vdz' reclaim='yes'/>"),
                "error: line 1: space target='vdz': never dropped: the domain has no such disk; remedy: use one of its "
                "targets (vda), or remove the element"),
    "foreground": (xml("{}", "b", class_="foreground"),
                   f"warning: {NEVER}class='foreground': only disks of a background domain are; "
                   "remedy: write class='background', or remove the element"),
    "guest": (xml("{}", "b", class_="guest"), f"{NEVER}class='guest': only disks of a background domain are"),
    "read-only": (xml("{}", "b", disk="<readonly/>"), f"{NEVER}it is <readonly/>; remedy: mark a writable disk"),
    "shared": (xml("{}", "b", disk="<shareable/>"), f"{NEVER}it is <shareable/>"),
    "raw": (xml("{}", "b").replace("type='qcow2'", "type='raw'"), f"{NEVER}its format is 'raw', no overlay"),
    "block device": (xml("{}", "b").replace("type='file'", "type='block'"), f"{NEVER}type='block': its source is no file"),
    "CD-ROM": (xml("{}", "b").replace("device='disk'", "device='cdrom'"), f"{NEVER}device='cdrom'"),
    "no file": (xml("{}.gone", "b"), f"warning: {NEVER}'{{}}.gone' cannot be looked at: No such file"),
    "no discard": (xml("{}", "b", more=AGENT).replace(" discard='unmap'", ""),
                   f"{NOTE}dropped at once: it has no discard='unmap'"),
    "no agent": (xml("{}", "b"), f"{NOTE}dropped at once: there is no channel '{scratch.AGENT}'"),
}


@pytest.mark.parametrize("name", FINDINGS)
def test_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Value and remedy; only a note leaves the disk a scratch disk. While it runs, none is an error."""
    local(tmp_path, monkeypatch)
    text, expected = FINDINGS[name]
    file = tmp_path / "image"
    file.write_bytes(image())
    root = read(text.replace("{}", str(file)))
    disks, (finding,) = scratch.of(root, parse_tree(root), Tree("/"), running=False)
    assert expected.replace("{}", str(file)) in str(finding) and finding.remedy
    assert bool(disks) == (finding.severity is Severity.NOTE)
    _, (running,) = scratch.of(root, parse_tree(root), Tree("/"))
    assert running.severity is not Severity.ERROR


def test_findings_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local(tmp_path, monkeypatch)
    file = tmp_path / "image"
    file.write_bytes(image())
    root = read(xml(str(file), "b", more=AGENT))
    assert scratch.of(root, parse_tree(root), Tree("/")) == ((Scratch("vda", str(file), True),), ())
    monkeypatch.setattr(scratch, "LOCAL", ("ext9",))
    disks, (finding,) = scratch.of(root, parse_tree(root), Tree("/"))
    assert not disks and "other hosts may use it; remedy: use a local file system (ext9)" in str(finding)

# SPDX-License-Identifier: GPL-2.0-or-later
"""virt-idletime trace: lines of a log, slices, Chrome's format. A real QEMU's log: tests/e2e/test_trace.py."""

from __future__ import annotations

import json
import re

import pytest

from conftest import DATA
from idletime.trace import chrome
from idletime.trace.log import FORMATS, NoTimes, events
from idletime.trace.slices import Slice, slices
from test_cli import ROOM, run

BG = """2026-11-23 15:37:47.359+0000: starting up libvirt version: 9.0.0
9@100.000000:idletime_gate_claim participant bg/vd 0 board /run/idletime/sda/background slot 3
9@100.000100:virtio_blk_idletime_hold vdev 0x1 req 0xa queue 0
9@100.020100:idletime_gate_started participant bg/vd 0 bytes 4096 held_ns 20000000 promoted 0
9@100.020101:virtio_blk_handle_read vdev 0x1 req 0xa sector 8 nsectors 8
9@100.025100:virtio_blk_req_complete vdev 0x1 req 0xa status 0
9@100.025100:idletime_gate_done participant bg/vd 0 service_ns 5000000 collision 1
9@100.025101:idletime_gate_ask participant bg/vd 0 verdict wait-interval again_ns 5
9@100.9:torn line
"""
FG = """7@100.022000:virtio_blk_handle_read vdev 0x2 req 0xb sector 16 nsectors 16
7@100.023000:virtio_blk_handle_write vdev 0x2 req 0xc sector 0 nsectors 1
7@100.030000:virtio_blk_req_complete vdev 0x2 req 0xb status 0
7@100.031000:virtio_blk_req_complete vdev 0x2 req 0xdead status 0
"""


def drawn(text):
    return list(slices(events(text.splitlines())))


def test_slices():
    """The address of a request that was held comes twice; only what the gate says of it is drawn."""
    claim, held, served = drawn(BG)
    assert (claim.name, claim.end_us, claim.values["slot"]) == ("idletime_gate_claim", None, "3")
    assert held == Slice("bg/vd 0 held", "held", 100_000_100, 100_020_100, {"bytes": 4096, "promoted": False})
    assert served == Slice("bg/vd 0 in service", "collision", 100_020_100, 100_025_100, {"collision": True})
    (met,) = drawn(FG)  # the other one's end, and a beginning, are not in the log
    assert (met.name, met.begin_us, met.end_us, met.values["bytes"]) == ("read", 100_022_000, 100_030_000, 8192)


def test_the_address_of_a_request_is_used_again():
    """After its end it is another request."""
    again = BG + "9@101.000000:virtio_blk_handle_write vdev 0x1 req 0xa sector 0 nsectors 1\n" \
                 "9@101.000500:virtio_blk_req_complete vdev 0x1 req 0xa status 0\n"
    assert [one.name for one in drawn(again)][3:] == ["write"]


def test_scsi():
    """A read and an inquiry of two disks, with one tag; an end whose beginning is not in the log."""
    text = """3@5.000000:virtio_scsi_cmd_req virtio_scsi_cmd_req lun=0 tag=0x7f cmd=0x28
3@5.000100:virtio_scsi_cmd_req virtio_scsi_cmd_req lun=1 tag=0x7f cmd=0x12
3@5.000200:virtio_scsi_cmd_resp virtio_scsi_cmd_resp lun=1 tag=0x7f response=0 status=0x0
3@5.004000:virtio_scsi_cmd_resp virtio_scsi_cmd_resp lun=0 tag=0x7f response=0 status=0x0
3@5.005000:virtio_scsi_cmd_resp virtio_scsi_cmd_resp lun=0 tag=0x80 response=0 status=0x0
"""
    inquiry, read = drawn(text)
    assert (inquiry.track, inquiry.name, inquiry.values["lun"]) == ("scsi", "0x12", 1)
    assert (read.name, read.begin_us, read.end_us) == ("read", 5_000_000, 5_004_000)


def test_document(golden):
    """The foreground's request began while the background's was in service, and ended after it: a collision."""
    document = chrome.document({"fg": drawn(FG), "bg": drawn(BG)})
    golden(DATA / "show" / "trace.json", json.dumps(document, indent=1) + "\n")
    found = {(one["name"], one["cat"]): one for one in document["traceEvents"] if one["ph"] == "X"}
    met, served = found["read", "foreground"], found["collision", "bg/vd 0 in service"]
    assert served["ts"] < met["ts"] < served["ts"] + served["dur"] < met["ts"] + met["dur"]
    assert (met["pid"], served["pid"]) == (1, 2)


def test_lanes():
    """What overlaps is not drawn over each other; a lane that is free is used again."""
    found = [Slice("t", "a", 0, 10), Slice("t", "b", 5, 8), Slice("t", "c", 8, 12), Slice("t", "d", 12, 13), Slice("u", "m", 1)]
    assert [(track, number, [one.name for one in row]) for track, number, row in chrome._lanes(found)] == [
        ("t", 1, ["a", "d"]), ("t", 2, ["b", "c"]), ("u", 1, ["m"])]


def test_no_events():
    assert drawn("") == [] and chrome.document({})["traceEvents"] == []
    with pytest.raises(NoTimes):
        drawn("idletime_gate_done participant a service_ns 5 collision 0\n")


def test_the_formats_are_those_of_the_source():
    """Each event here is in a trace-events file or a patch, with these words."""
    top = ROOM.parent / "qemu-patches"
    files = [*top.glob("overlay/**/trace-events"), *top.glob("patches/*.patch")]
    text = "\n".join(path.read_text() for path in files)
    stock = ("virtio_blk_handle", "virtio_blk_req", "virtio_scsi")
    theirs = {name: form for name, form in FORMATS.items() if not name.startswith(stock)}
    for name, form in theirs.items():
        (line,) = re.findall(rf"^\+?{name}\(.*$", text, re.M)
        said = re.sub(r"%\w+", "{}", re.sub(r'"? ?(PRI\w+) ?"?', "", line.partition('"')[2])).rstrip('"').replace("%", "{}")
        assert said == re.sub(r"{\w+}", "{}", form), name


def test_each_event_is_known_and_in_the_man_page():
    """Only what a participant asks is not drawn: it asks many times, and what came of it is."""
    top = ROOM.parent / "qemu-patches/overlay"
    there = {name for path in top.glob("**/trace-events") for name in re.findall(r"^(idletime_\w+)\(", path.read_text(), re.M)}
    page = (ROOM.parent / "docs/idletime-qemu.7").read_text()
    assert there and {name for name in there if not re.search(rf"\b{name}\b", page)} == set()
    assert there - FORMATS.keys() == {"idletime_gate_ask"}


def test_the_command(tmp_path):
    for name, text in (("fg", FG), ("bg", BG)):
        (tmp_path / f"{name}.log").write_text(text)
    done = run("trace", tmp_path / "fg.log", tmp_path / "bg.log", "-o", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    assert "bg: 1 releases, 1 ends of service, 1 of them collisions, 0 requests of the foreground" in done.stderr
    names = {one["args"]["name"] for one in json.loads((tmp_path / "out.json").read_text())["traceEvents"] if one["ph"] == "M"}
    assert names == {"fg", "bg", "foreground", "events", "bg/vd 0 held", "bg/vd 0 in service"}
    (tmp_path / "empty.log").write_text("nothing\n")
    for arguments, words in ((["empty.log"], "no event of Idletime"), (["none.log"], "cannot read"),
                             (["fg.log", "fg.log"], "named twice"), (["fg.log", "-o", "none/out.log"], "cannot write")):
        done = run("trace", *(tmp_path / word if word.endswith(".log") else word for word in arguments))
        assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr

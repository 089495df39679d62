# SPDX-License-Identifier: GPL-2.0-or-later
"""examples/htcondor: its scripts run; its configuration is read, and its expressions are evaluated, by HTCondor's own code."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from conftest import write_gauge

EXAMPLE = Path(__file__).parents[2] / "examples/htcondor"
POLICY = "{urn:idletime:policy:1}policy"


def run(script: str, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-I", str(EXAMPLE / script), *arguments], input=text, capture_output=True, text=True,
                          check=False)


def test_the_gauge_as_attributes(tmp_path):
    """The least share counts; unknown ones are left out."""
    file = write_gauge(tmp_path / "g.json", time.monotonic(), sda=0.4, eth0=0.9, nvme0n1=None)
    assert run("idletime-gauge", str(file)).stdout.splitlines() == [
        "IdletimeSpare = 0.4", "IdletimeSpare_sda = 0.4", "IdletimeSpare_eth0 = 0.9", "-"]


@pytest.mark.parametrize("text", [None, "", "{}", '{"version": 1, "monotonic": -99, "resources": []}'])
def test_no_gauge_is_no_attribute(tmp_path, text):
    if text is not None:
        (tmp_path / "g.json").write_text(text)
    done = run("idletime-gauge", str(tmp_path / "g.json"))
    assert (done.stdout, done.returncode) == ("-\n", 0) and "g.json" in done.stderr


@pytest.mark.parametrize("said, class_", [('IdletimeClass = "guest"\n', "background"), ("", "background"),
                                          ('IdletimeClass = "x\'/><evil/>"\n', "background")])
def test_the_jobs_domain(said, class_):
    ad = f'{said}JobVMMemory = 512\nVMPARAM_vm_Disk = "/a&b.qcow2:vda:w:qcow2,c.iso:vdb:r:raw"\nVMPARAM_vm_name = "j 1"\n'
    root = ElementTree.fromstring(run("idletime-xml", text=ad).stdout)
    assert root.find(f"metadata/{POLICY}").get("class") == class_
    assert [one.get("file") for one in root.iter("source")] == ["/a&b.qcow2", "c.iso"]
    assert (root.findtext("memory"), root.findtext("name"), len(root.findall("*//readonly"))) == ("512", "j_1", 1)


@pytest.fixture(scope="module")
def configured(tmp_path_factory):
    """The example below HTCondor's defaults, as HTCondor reads it."""
    htcondor = pytest.importorskip("htcondor2", reason="needs HTCondor's bindings: make engine-test")
    import os
    file = tmp_path_factory.mktemp("condor") / "condor_config"
    file.write_text(f"START = Owner =!= \"nobody\"\nRELEASE_DIR = /usr\nLOCAL_DIR = {file.parent}\nALLOW_ADMINISTRATOR = root\n"
                    f"include : {EXAMPLE / '50-idletime.conf'}\n")
    os.environ["CONDOR_CONFIG"] = str(file)
    htcondor.reload_config()
    return htcondor.param


def value(text: str, **machine: object) -> object:
    import classad2
    ad = classad2.ClassAd({**machine, "Expression": classad2.ExprTree(text)})
    return ad.eval("Expression")


@pytest.mark.parametrize("spare, start, suspend, resume", [
    (0.1, False, True, False), (0.3, False, False, False), (0.9, True, False, True), (None, False, False, False)])
def test_expressions(configured, spare, start, suspend, resume):
    """Between the thresholds all stays as it is; without a figure nothing starts and nothing is suspended."""
    machine = {"Owner": "somebody", "Activity": "Idle"} | ({} if spare is None else {"IdletimeSpare": spare})
    found = [value(configured[name], **machine) for name in ("START", "SUSPEND", "CONTINUE")]
    assert found == [start, suspend, resume]


@pytest.mark.parametrize("activity, since, suspended, spare, found", [
    ("Suspended", 3599, 3599, 0.1, (False, True, False)),  # it waits
    ("Suspended", 3601, 3601, 0.1, (True, True, False)),   # it is continued
    ("Busy", 5, 3601, 0.1, (True, False, False)),          # and not suspended again
    ("Busy", 16, 3601, 0.1, (True, False, True)),          # but sent away
    ("Busy", 16, 3601, 0.3, (False, True, False)),         # unless there is room by now
    ("Busy", 61, 3601, 0.1, (True, True, False)),          # the next time it is suspended as any
    ("Busy", 16, None, 0.1, (True, True, False))])
def test_sent_away_after_its_patience_and_not_while_suspended(configured, activity, since, suspended, spare, found):
    """HTCondor 23.9 never offers a job again whose checkpoint it made while it was suspended: its status stays "suspended"."""
    machine = {"Activity": activity, "EnteredCurrentActivity": int(time.time()) - since, "IdletimeSpare": spare,
               "TotalJobSuspendTime": suspended}
    machine = {name: each for name, each in machine.items() if each is not None}
    said = {name: value(configured[name], **machine) for name in ("SUSPEND", "CONTINUE", "WANT_SUSPEND", "PREEMPT")}
    goes = said["CONTINUE"] if activity == "Suspended" else said["SUSPEND"]
    assert (goes, said["WANT_SUSPEND"], said["PREEMPT"] is True) == found


def test_the_operators_own_start_holds(configured):
    assert value(configured["START"], Owner="nobody", IdletimeSpare=0.9) is False


def test_what_the_startd_runs(configured):
    assert configured["STARTD_CRON_JOBLIST"].split() == ["IDLETIME"]
    for name in ("STARTD_CRON_IDLETIME_EXECUTABLE", "LIBVIRT_XML_SCRIPT"):
        assert (EXAMPLE / Path(configured[name]).name).exists()

# SPDX-License-Identifier: GPL-2.0-or-later
"""examples/kubevirt: the hook on a domain, and the manifests against the schemas of Kubernetes. There is no cluster."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

EXAMPLE = Path(__file__).parents[2] / "examples/kubevirt"
DOMAIN = """<domain type="kvm" xmlns:qemu="http://libvirt.org/schemas/domain/qemu/1.0"><name>default_batch</name>
<metadata><kubevirt xmlns="http://kubevirt.io"><uid>1</uid></kubevirt></metadata>
<qemu:commandline><qemu:arg value="-x"/></qemu:commandline></domain>"""


def hook(vmi: object, domain: str = DOMAIN) -> subprocess.CompletedProcess[str]:
    text = vmi if isinstance(vmi, str) else json.dumps(vmi)
    return subprocess.run([sys.executable, str(EXAMPLE / "onDefineDomain"), "--vmi", text, "--domain", domain],
                          capture_output=True, text=True, check=True)


def manifests(name: str) -> list[dict]:
    return list(yaml.safe_load_all((EXAMPLE / name).read_text()))


def test_a_label_becomes_the_policy():
    vmi = {"metadata": {"labels": {"idletime.org/class": "background"}}}
    once = hook(vmi).stdout
    root = ElementTree.fromstring(once)
    assert [one.get("class") for one in root.iter("{urn:idletime:policy:1}policy")] == ["background"]
    assert root.find("metadata/{http://kubevirt.io}kubevirt") is not None
    arguments = [one.get("value") for one in root.iter("{http://libvirt.org/schemas/domain/qemu/1.0}arg")]
    assert arguments == ["-x", "-qmp", "unix:/var/run/kubevirt-private/background.idletime.qmp,server=on,wait=off"]


@pytest.mark.parametrize("vmi", [
    {}, {"metadata": None}, {"metadata": {"labels": {"idletime.org/class": "backgroud"}}}, "[]", "{"])
def test_any_other_vm_stays_as_it_is(vmi):
    assert hook(vmi).stdout.strip() == DOMAIN


def test_what_is_wrong_is_said():
    done = hook({"metadata": {"labels": {"idletime.org/class": "backgroud"}}})
    assert done.stderr == "idletime.org/class is 'backgroud': use background, guest, foreground\n"
    assert hook({"metadata": {"labels": {"idletime.org/class": "guest"}}}, "<domain").stdout == "<domain\n"


def test_the_config_map_is_the_script():
    (config, machine) = manifests("hook.yaml")
    assert config["data"]["onDefineDomain"] == (EXAMPLE / "onDefineDomain").read_text()
    (sidecar,) = json.loads(machine["spec"]["template"]["metadata"]["annotations"]["hooks.kubevirt.io/hookSidecars"])
    assert sidecar["configMap"]["name"] == config["metadata"]["name"] and sidecar["configMap"]["key"] in config["data"]


@pytest.mark.parametrize("name, kinds", [("hook.yaml", ["ConfigMap"]), ("host.yaml", ["Namespace", "ConfigMap", "DaemonSet"])])
def test_kubernetes_schemas(name, kinds):
    validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate: make engine-test")
    ours = [one for one in manifests(name) if not one["apiVersion"].startswith("kubevirt.io")]
    assert [one["kind"] for one in ours] == kinds
    for one in ours:
        validate.validate(one, validate.latest_version(), strict=True)


def test_settings_and_rules_are_toml():
    data = manifests("host.yaml")[1]["data"]
    assert tomllib.loads(data["idletimed.toml"])["qmp"]["sockets"].endswith("/private/*.idletime.qmp")
    assert [one["class"] for one in tomllib.loads(data["rules.toml"])["rule"]] == ["background", "guest", "foreground"]

"""The whole life of a cluster, in order: raised from nothing, changed live, updated, migrated, broken, rolled back.

Each step stands on the one before; `make cluster-test` runs them and prints how long each took. What is measured goes
to build/cluster/results/cluster-test.json.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import cluster, inventory, place, repository
from tests.cluster.conftest import good_play, on_node, query, run_play
from tests.framework import hardware

FIGURES: dict[str, Any] = {}
UPDATED: dict[str, str] = {}
"""What the inventory says since the rolling update."""
CONSOLE = "/var/log/libvirt/qemu/{}-console.log"
WAIT_SECONDS = 180.0
ITS_START = "virsh list --all; virsh dominfo batch; ps axf | tail -n 30; tail -n 20 /var/log/libvirt/qemu/batch.log /var/log/libvirt/libvirtd.log 2>&1 || true"
"""What says why a domain has not started."""
WINDOWS = 8
"""Reports of 2 s before, and after, what is measured."""

pytestmark = pytest.mark.usefixtures("raised")


@pytest.fixture(scope="module", autouse=True)
def figures() -> Any:
    """Written whatever happens, so that a failure still shows what was measured before."""
    FIGURES["conditions"] = {**hardware.machine(), "load_average_before": os.getloadavg()[0]}
    yield
    place.RESULTS.mkdir(parents=True, exist_ok=True)
    (place.RESULTS / "cluster-test.json").write_text(json.dumps(FIGURES, indent=2) + "\n")


def reports(node: str, tenant: str) -> list[dict[str, Any]]:
    """What a tenant has said about its disk so far, one report for each 2 s."""
    lines = on_node(node, f"cat {CONSOLE.format(tenant)}").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}") and "operations" in line]


def wait_for_reports(node: str, tenant: str, count: int) -> list[dict[str, Any]]:
    """Return when there are `count` reports."""
    end = time.monotonic() + WAIT_SECONDS
    while len(found := reports(node, tenant)) < count:
        assert time.monotonic() < end, f"{tenant} on {node} has said {len(found)} times how it is, not {count}"
        time.sleep(0.5)
    return found


def summary(found: list[dict[str, Any]]) -> dict[str, float]:
    """Operations per second and latency of some reports."""
    operations = sum(report["operations"] for report in found)
    return {
        "operations_per_second": round(operations / sum(report["seconds"] for report in found), 1),
        "mean_ms": round(sum(report["mean_us"] * report["operations"] for report in found) / operations / 1000, 2),
        "p99_ms_median_of_windows": round(statistics.median(report["p99_us"] for report in found) / 1000, 2),
        "windows": len(found),
    }


def machines(node: str) -> dict[str, int]:
    """The pid of each running domain's QEMU."""
    names = on_node(node, "virsh --quiet list --name").split()
    return {name: int(on_node(node, f"cat /run/libvirt/qemu/{name}.pid")) for name in names}


def devices(node: str, domain: str) -> list[str]:
    """The devices of a domain that are on a resource."""
    answer = json.loads(on_node(node, f"virsh qemu-monitor-command {domain} query-idletime"))["return"]
    return [device["device"] for resource in answer for device in resource["devices"]]


def test_check_mode_tells_and_does_nothing() -> None:
    """On bare hosts, check mode says that much would change, needs nothing that is not there, and changes nothing."""
    play = good_play("site", "--check")
    FIGURES["check_of_bare_hosts_seconds"] = round(play.seconds, 1)
    assert all(host["changed"] > 0 for host in play.stats.values()), play.stats
    assert on_node("node1", "ls -d /var/lib/idletime* /etc/idletime /usr/sbin/libvirtd 2>/dev/null || true") == ""


def test_site_from_nothing() -> None:
    """Two bare hosts become hosts with tenants."""
    play = good_play("site")
    FIGURES["site_from_nothing_seconds"] = round(play.seconds, 1)
    assert play.changed
    assert sorted(machines("node1")) == ["batch", "mail"]


def test_second_run_changes_nothing() -> None:
    """The site is idempotent, in check mode too."""
    play = good_play("site")
    FIGURES["site_again_seconds"] = round(play.seconds, 1)
    assert play.changed == []
    assert good_play("site", "--check").changed == []


def test_a_held_request_is_held() -> None:
    """With an interval of an hour, the background's request stays held while the foreground goes on."""
    assert query("node1", "batch")["devices"][0]["class"] == "background"
    on_node("node1", "virt-idletime mark batch --set interval-us=3600000000 --set max-hold-ms=600000")
    end = time.monotonic() + WAIT_SECONDS
    while (held := query("node1", "batch"))["held"] != 1 or held["devices"][0]["in-service"]:
        assert time.monotonic() < end, held
    wait_for_reports("node1", "mail", len(reports("node1", "mail")) + 2)
    later = query("node1", "batch")
    assert later["held"] == 1
    assert later["background"]["requests"] == held["background"]["requests"], "a held request was issued"
    play = good_play("tenants")
    assert play.changed, "the inventory's policy is not what is in force"
    assert query("node1", "batch")["interval-us"] == 20000, "the policy is in force again"
    end = time.monotonic() + WAIT_SECONDS
    while query("node1", "batch")["background"]["requests"] <= later["background"]["requests"] + 10:
        assert time.monotonic() < end, "the background does not go on"


def test_a_policy_rolls_out_live() -> None:
    """A changed interval of the host comes into force in running machines; none is restarted."""
    before = machines("node1")
    model = yaml.safe_load(inventory.MODEL.read_text())["host_resources"]
    changed = {"host_resources": [{**model[0], "interval": "40ms"}]}
    play = good_play("site", variables=changed)
    FIGURES["policy_seconds"] = round(play.seconds, 1)
    assert play.changed
    wait_for_interval("node1", "batch", 40000)
    assert good_play("site", variables=changed).changed == []
    good_play("site", "--tags", "host")
    wait_for_interval("node1", "batch", 20000)
    assert machines("node1") == before, "a machine was restarted"


def wait_for_interval(node: str, domain: str, interval_us: int) -> None:
    """idletimed reads its files when they change, in a moment of its own."""
    end = time.monotonic() + WAIT_SECONDS
    while (found := query(node, domain)["interval-us"]) != interval_us:
        assert time.monotonic() < end, f"{domain} has an interval of {found} us, not {interval_us}"
        time.sleep(0.2)


def newer_repository(folder: Path) -> Path:
    """Our repository with the package of QEMU in a higher version."""
    package = next((repository.REPOSITORY / "out" / "qemu").glob("*.deb"))
    place.run(["dpkg-deb", "-R", package, folder / "tree"])
    control = folder / "tree" / "DEBIAN" / "control"
    lines = [f"{line}+1" if line.startswith("Version:") else line for line in control.read_text().splitlines()]
    control.write_text("\n".join(lines) + "\n")
    place.run(["dpkg-deb", "--root-owner-group", "-Zxz", "-z1", "--build", folder / "tree", folder])
    result = folder / "repository"
    shutil.copytree(repository.REPOSITORY / "key", result / "key")
    others = [path for path in repository.packages() if not path.name.startswith("qemu")]
    repository.publish([*others, *folder.glob("qemu*.deb")], result)
    return result


def installed(node: str) -> str:
    """The version of QEMU's package on a node."""
    return on_node(node, "dpkg-query -W -f '${Version}' qemu-system-x86")


def test_a_rolling_update_drains_nothing(tmp_path: Path) -> None:
    """A new QEMU package comes to one host after the other, under machines that keep running."""
    nodes = ("node1", "node2")
    before = {node: machines(node) for node in nodes}
    assert not any(installed(node).endswith("+1") for node in nodes)
    UPDATED["repository_source"] = str(newer_repository(tmp_path))
    play = good_play("update", variables=UPDATED)
    FIGURES["rolling_update_seconds"] = round(play.seconds, 1)
    assert all(installed(node).endswith("+1") for node in nodes)
    assert {node: machines(node) for node in nodes} == before, "a machine was restarted"


def test_a_background_tenant_migrates_under_load() -> None:
    """batch moves from node1 to node2; mail, on node1, is compared before, during and after."""
    first = len(reports("node1", "mail"))
    wait_for_reports("node1", "mail", first + WINDOWS + 1)
    begin = len(reports("node1", "mail"))
    play = good_play("migrate", variables={"tenant": "batch", "to": "node2"})
    end = len(wait_for_reports("node1", "mail", len(reports("node1", "mail")) + 1))
    found = wait_for_reports("node1", "mail", end + WINDOWS + 1)
    FIGURES["migration"] = {
        "seconds": round(play.seconds, 1),
        # The report that is under way when a phase begins belongs to neither.
        "foreground_before": summary(found[first + 1:begin]),
        "foreground_during": summary(found[begin:end]),
        "foreground_after": summary(found[end + 1:]),
    }
    assert sorted(machines("node1")) == ["mail"] and sorted(machines("node2")) == ["batch"]
    assert query("node2", "batch")["devices"][0]["class"] == "background"
    done = len(reports("node2", "batch"))
    wait_for_reports("node2", "batch", done + 2)


def moved() -> dict[str, Any]:
    """The inventory after update and migration: another repository, and batch belongs to node2."""
    text = place.run([place.TOOLS / "ansible-inventory", "--host", "node1"], env=inventory.environment())
    tenants = json.loads(text)["tenant_domains"]
    return {**UPDATED, "tenant_domains": [{**one, "host": "node2"} if one["name"] == "batch" else one for one in tenants]}


def test_a_tenant_is_never_started_twice() -> None:
    """The inventory still says node1: each play stops, of all hosts, of one after the other or of one alone, and says what to
    do; with the new place files are changed only."""
    for name, words in (("tenants", ()), ("update", ()), ("site", ("--limit", "node1"))):
        play = run_play(name, *words, variables=UPDATED)
        assert play.status != 0, name
        assert "it runs on node2, or is saved there; starting it here would destroy its disks" in play.failures["node1"], name
        assert sorted(machines("node1")) == ["mail"], name
    on_node("node2", "virsh managedsave batch")
    for words in ((), ("--limit", "node1")):
        play = run_play("tenants", *words, variables=UPDATED)
        assert "or is saved there" in play.failures["node1"], words
        assert sorted(machines("node1")) == ["mail"], words
    on_node("node2", "virsh start batch")
    good_play("tenants", variables=moved())
    assert sorted(machines("node2")) == ["batch"]
    assert good_play("update", variables=moved()).changed == []


def test_who_was_saved_for_memory_is_left_to_idletimed() -> None:
    """A new definition would take away its record, by which alone idletimed starts it again: that is for the next run."""
    record = '<memory bytes="1" run="1" why="memory" at="1"/>'
    on_node("node2", "service idletimed stop; virsh managedsave batch && "
                     f"virsh metadata batch urn:idletime:memory:1 --config --key idletimem --set '{record}'")
    changed = moved()
    changed["tenant_domains"] = [{**one, "memory": "208MiB"} for one in changed["tenant_domains"]]
    good_play("tenants", variables=changed)
    now = on_node("node2", "virsh dumpxml --inactive batch; virsh list --all --managed-save")
    assert "urn:idletime:memory:1" in now and "saved" in now and ">196608<" in now
    on_node("node2", "virsh start batch && service idletimed start")
    good_play("tenants", variables=changed)
    assert ">212992<" in on_node("node2", "virsh dumpxml --inactive batch")
    good_play("tenants", variables=moved())


def test_a_killed_node_comes_back() -> None:
    """After a power failure of node2, mail on node1 has not noticed, and batch starts with its node and its policy."""
    before = machines("node1")
    begin = time.monotonic()
    cluster.kill("node2")
    wait_for_reports("node1", "mail", len(reports("node1", "mail")) + 2)
    assert machines("node1") == before
    cluster.start("node2")
    end = time.monotonic() + WAIT_SECONDS
    while "batch" not in machines("node2"):
        assert time.monotonic() < end, "batch does not start with its node:\n" + on_node("node2", ITS_START)
        time.sleep(0.5)
    FIGURES["node_killed_and_back_seconds"] = round(time.monotonic() - begin, 1)
    # Its idletimed starts with the node, too.
    while not devices("node2", "batch"):
        assert time.monotonic() < end, "its policy is not in force:\n" + on_node("node2", "virt-idletime status batch || true")
        time.sleep(0.5)
    assert query("node2", "batch")["devices"][0]["class"] == "background"
    assert good_play("site", variables=moved()).changed == []


def test_rollback_holds_nothing_from_then_on() -> None:
    """First live, though idletimed does not run on node2: the machines run on, nothing is held. Then on the distribution's
    QEMU, and nothing of ours is left."""
    before = machines("node2")
    on_node("node2", "service idletimed stop; echo '# as by the README' >/etc/apt/sources.list.d/idletime.list")
    play = good_play("rollback", variables=moved())
    FIGURES["rollback_live_seconds"] = round(play.seconds, 1)
    assert machines("node2") == before
    assert devices("node2", "batch") == [], "it is not stock"
    on_node("node2", "ip link set lo down")  # by which it reaches its disk
    play = run_play("rollback", variables={**moved(), "restart": True})
    assert play.failures["node2"] and "batch" not in machines("node2")
    on_node("node2", "ip link set lo up")
    play = good_play("rollback", variables={**moved(), "restart": True})
    assert "batch" in machines("node2"), "what a run has ended the next one starts"
    FIGURES["rollback_restart_seconds"] = round(play.seconds, 1)
    for node in ("node1", "node2"):
        for pid in machines(node).values():
            assert on_node(node, f"readlink /proc/{pid}/exe").strip() == "/usr/bin/qemu-system-x86_64"
        left = on_node(node, "dpkg -l | grep idletime || true; ls -d /usr/lib/idletime* /etc/init.d/idletime* /etc/apt/*/idletime* "
                             "/etc/libvirt/hooks/qemu.d/idletime /etc/rc?.d/*idletime* 2>/dev/null || true")
        assert left == ""
    for name in machines("node2"):
        assert 'machine="pc-q35-7.2"' in on_node("node2", f"virsh dumpxml --inactive {name} --xpath //os/type/@machine"), name
    again = good_play("rollback", variables={**moved(), "restart": True})
    assert again.changed == []

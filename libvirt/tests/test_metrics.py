# SPDX-License-Identifier: GPL-2.0-or-later
"""From QEMU's answers to what Prometheus reads: sums that only grow, answers that fit nothing, names as in the man page."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import exposition, parser
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics import parser as openmetrics_parser

import hypothesis_profile  # noqa: F401
from idletime import observed, state
from idletime.gauge.said import Gauge, Gauged
from idletime.gauge.spare import Spare
from idletime.hostd import metrics, metrics_facts, metrics_look
from idletime.hostd.metrics import Tally
from idletime.hostd.metrics_facts import Facts, Misfit, Reader, Vm
from idletime.hostd.metrics_ledger import MOST, Ledger
from idletime.hostd.metrics_table import BY_NAME, METRICS
from idletime.observed import ObserverState

PAGE = Path(__file__).parents[1] / "man/idletime-metrics.7"
TALLY = Tally("0.1", 1e9, 5, 1, 0.25, 0)
BOUNDS = [100 << bin_ for bin_ in range(19)]


def traffic(requests: int) -> dict[str, int]:
    return {"requests": requests, "bytes": 4096 * requests}


def device(name: str = "virtio-disk0", class_: str = "background", requests: int = 0) -> dict[str, Any]:
    """As qapi/idletime.json has it."""
    return {
        "device": name, "class": class_, "detaching": False, "seen": True, "background-queues": "", "participants": 1,
        "foreground": traffic(requests if class_ == "foreground" else 0),
        "background": traffic(requests if class_ != "foreground" else 0),
        "passed": 2, "dropped": 0, "held": 1, "in-service": 1, "service": "completion", "pieces": 3,
        "promotions": dict.fromkeys(metrics_facts.CAUSES, requests), "waits": dict.fromkeys(metrics_facts.REASONS, requests),
        "hold": {"boundaries-us": BOUNDS, "bins": [1] * 20, "max-us": 1500, "drained-us": 20},
    }


def job(name: str = "backup-vda-libvirt-1-format", requests: int = 0) -> dict[str, Any]:
    """The same of a block job."""
    return {
        "id": name, "detaching": False, "background": traffic(requests), "held": 1, "in-service": 1, "waits": {},
        "promotions": dict.fromkeys(metrics_facts.CAUSES, requests),
        "hold": {"boundaries-us": BOUNDS, "bins": [1] * 20, "max-us": 1500, "drained-us": 20}}


def resource(requests: int = 0, class_: str = "background", **more: Any) -> dict[str, Any]:
    events = dict.fromkeys(metrics_facts.EVENTS, requests)
    return {
        "id": "idletime-sda", "path": "/run/idletime/sda", "state": "preemption", "interval-us": 5000, "max-inflight": 1,
        "max-request-bytes": 131072, "max-hold-ms": 5000, "weight": 100, "auto": True, "budget-percent": 3, "shadow": False,
        "rate-bps": 0, "generation": 4, "other-generations": [],
        "observer": {"state": "seen", "declared": False, "label": "sda", "foreground": traffic(requests), "in-service": 0,
                     "requeued": 0, "unpaired": 1, "healed": 0, "missed": 0, "came": 1, "died": 0, "refused": 0},
        "counters": dict.fromkeys(metrics_facts.COUNTED, events), "collisions": requests, "collision-cost-us": requests * 1000,
        "foreground": traffic(0), "background": traffic(requests), "held": 1,
        "learned": {"ready": True, "gaps": 9, "distribution": [], "changes": 0, "lost": 0, "cyclic": False, "windows": [],
                    "service-us": 5000, "starts-per-gap": 1.5, "cost-per-gap-us": 1.0, "channels": 1, "learner-us": 100,
                    "slowdown-percent": 1.5, "delay-factor": 1.0, "seek-cost-us": 0.0, "credit-us": -200,
                    "credit-max-us": 1000, "spare": {"second": 0.5, "minute": 0.25, "forecast": 0.75}},
        "devices": [device(class_=class_, requests=requests)], "jobs": [job(requests=requests)], **more}


def said(name: str = "ci", uuid: str = "0-1", query: Any = (), run: int = 1, looked: float = 100.0,
         **more: Any) -> state.DomainState:
    """What idletimed says of a VM."""
    return state.DomainState(
        uuid, name, run, "", "background", "domain", "why", "", True, looked, (),
        ({"id": "idletime-sda", "name": "sda", "path": "/run/idletime/sda", "properties": {}, "trail": ()},),
        ({"kind": "disk", "target": "vda", "alias": "virtio-disk0", "resource": "idletime-sda", "class": "background"},),
        (), query if query is None else tuple(query), **more)


def vm(requests: int = 0, **more: Any) -> Vm:
    return metrics_facts.vm_of(more.get("uuid", "0-1"), said(query=[resource(requests)], **more))


def text_of(facts: Facts, ledger: Ledger | None = None) -> str:
    ledger = ledger or Ledger()
    metrics.note(ledger, facts)
    found = list(metrics.samples(facts, ledger.sums, TALLY))
    ages = [(name, (), 1.0) for name in METRICS_OF_THE_MOMENT]
    return openmetrics.generate_latest(SimpleNamespace(collect=lambda: metrics.families([*ages, *found]))).decode()


METRICS_OF_THE_MOMENT = ("idletime_daemon_tick_age_seconds", "idletime_daemon_facts_age_seconds",
                         "idletime_daemon_scrapes_total", "idletime_daemon_refused_scrapes_total")
ALL = Facts((vm(7, memory_given=1 << 20, limited=("vda",)),
             vm(9, name="web", uuid="0-2", suspends=True, stopped="disk sda: background 50%")),
            (ObserverState("sda", "disk", "/dev/sda", True, True, ("x",)), ObserverState("nbd", "disk", problem="none")),
            gauge=Gauge(1e9, 5.0, (Gauged("eth0", "interface", "eth0", "kernel", True, Spare(0.5, steady=0.25), 8000),)))


def read(text: str) -> dict[tuple[str, ...], float]:
    """Name and labels' values, in the labels' order, of each sample."""
    return {(one.name, *(one.labels[label] for label in sorted(one.labels))): one.value
            for family in openmetrics_parser.text_string_to_metric_families(text) for one in family.samples}


def sums_of(ledger: Ledger) -> dict[tuple[str, ...], int]:
    return {(name, *series): value for name, sums in ledger.sums.items() for series, value in sums.items()}


# ---- what is served

def test_all_that_is_known_is_served() -> None:
    found = read(text_of(ALL))
    assert found["idletime_view_state", "sda", "preemption", "ci"] == 1
    assert found["idletime_view_state", "sda", "idle", "ci"] == 0
    assert found["idletime_view_interval_seconds", "sda", "ci"] == 0.005
    assert found["idletime_view_budget_ratio", "sda", "ci"] == 0.03
    assert found["idletime_view_slowdown_ratio", "sda", "ci"] == 0.015
    assert found["idletime_view_service_seconds", "sda", "ci"] == 0.005
    assert found["idletime_view_credit_seconds", "sda", "ci"] == -0.0002
    assert found["idletime_view_spare_ratio", "sda", "minute", "ci"] == 0.25
    assert ("idletime_view_spare_ratio", "sda", "hour", "ci") not in found, "unknown is not 0"
    assert found["idletime_view_spare_forecast_ratio", "sda", "ci"] == 0.75
    assert (found["idletime_spare_spare_ratio", "eth0", "steady"], found["idletime_spare_rate_bytes", "eth0"]) == (0.25, 1000)
    assert ("idletime_spare_spare_ratio", "eth0", "hour") not in found
    assert found["idletime_device_bytes_total", "background", "vda", "sda", "ci"] == 7 * 4096
    assert found["idletime_device_promotions_total", "deadline", "vda", "sda", "web"] == 9
    assert found["idletime_device_hold_seconds_bucket", "vda", "0.0001", "sda", "ci"] == 1
    assert found["idletime_device_hold_seconds_bucket", "vda", "+Inf", "sda", "ci"] == 20
    assert found["idletime_job_bytes_total", "vda", "sda", "backup", "ci"] == 7 * 4096
    assert found["idletime_job_hold_seconds_bucket", "vda", "0.0001", "sda", "backup", "ci"] == 1
    assert found["idletime_observer_up", "sda"] == 1 and found["idletime_observer_possible", "nbd"] == 0
    assert found["idletime_resource_devices", "background", "sda"] == 2
    assert found["idletime_vms", "background"] == 2
    assert found["idletime_resource_generations", "sda"] == 1


def test_what_was_done_to_whole_vms_is_known_from_its_begin() -> None:
    """Each act and cause is there before the first one, so that a rate sees it; a word that nobody knows is not counted."""
    tally = Tally("0.1", 1e9)
    tally.deeds.done("suspend", "stop", "disk")
    tally.deeds.done("suspend", "stop", "something else")
    tally.deeds.done("space", "drop", "low-water", 5)
    tally.deeds.moved("out")
    found = {(name, *labels): value for name, labels, value in metrics.samples(Facts(), {}, tally) if "_policy_" in name}
    acts = {key[1:]: value for key, value in found.items() if key[0] == "idletime_policy_acts_total"}
    assert acts.pop(("suspend", "stop", "disk")) == acts.pop(("space", "drop", "low-water")) == 1
    assert len(acts) > 15 and set(acts.values()) == {0}
    assert found["idletime_policy_taken_bytes_total", "space", "drop"] == 5
    assert (found["idletime_policy_migrated_total", "out"], found["idletime_policy_migrated_total", "in"]) == (1, 0)


def test_both_formats_are_what_their_parsers_expect() -> None:
    ledger = Ledger()
    metrics.note(ledger, ALL)
    found = list(metrics.samples(ALL, ledger.copy(), TALLY))
    plain = exposition.generate_latest(SimpleNamespace(collect=lambda: metrics.families(found))).decode()
    assert {one.name for one in parser.text_string_to_metric_families(plain)} >= {"idletime_resource_collisions"}
    assert "_created" not in plain


def test_a_second_generation_is_seen() -> None:
    both = Facts((metrics_facts.vm_of("0-1", said(query=[resource(**{"other-generations": [3]})])),))
    assert read(text_of(both))["idletime_resource_generations", "sda"] == 2


def test_a_foreground_vm_has_no_collisions_rather_than_none() -> None:
    """It does not look: collisions and their cost are unknown."""
    one = resource(class_="foreground")
    del one["counters"], one["learned"]
    found = read(text_of(Facts((metrics_facts.vm_of("0-1", said(query=[one])),))))
    assert not [key for key in found if "collision" in key[0]]
    assert ("idletime_resource_requests_total", "foreground", "sda") in found


def test_only_jobs_that_libvirt_has_started_on_a_disk_of_the_plan() -> None:
    """Another name would be a label of QEMU's making."""
    jobs = [job(name) for name in ("backup-vda-libvirt-1-format", "copy-vdz-libvirt-1-format", "job0", "evil-vda-x")]
    exports = {"libvirt-nbd-a": "vda", "libvirt-nbd-z": "vdz"}
    (other,) = metrics_facts.resources_of(replace(said(), exports=exports), [resource(jobs=[], exports=[*map(job, exports)])])
    assert [(each["id"], each["target"], each["type"]) for each in other["jobs"]] == [("libvirt-nbd-a", "vda", "export")]
    (one,) = metrics_facts.resources_of(said(), [resource(jobs=jobs)])
    assert [each["id"] for each in one["jobs"]] == ["backup-vda-libvirt-1-format"]
    text = text_of(Facts((metrics_facts.vm_of("0-1", said(query=[resource(jobs=jobs)])),)))
    assert "vdz" not in text and "job0" not in text and "evil" not in text


# ---- sums

def test_sums_begin_with_idletimed_and_only_grow() -> None:
    """A VM that was there counts from now on; one that begins anew, in one run or in another, adds what it has; one that goes
    takes nothing along."""
    ledger = Ledger()
    collisions = ("sda", "idletime_resource_collisions_total")

    def look(*vms: Vm) -> int:
        metrics.note(ledger, Facts(vms))
        return sums_of(ledger)[collisions]

    assert look(vm(1000)) == 0
    assert look(vm(1010)) == 10
    assert look(vm(4)) == 14, "less than before: its object was made anew"
    assert look(vm(20, run=2)) == 34, "another run, though it has more"
    assert look(vm(21, run=2), vm(50, uuid="0-2", name="b")) == 35
    assert look() == 35
    assert look(vm(21, run=2)) == 35
    assert look(vm(22, run=2)) == 36


def test_a_job_that_has_begun_counts_from_its_begin() -> None:
    """Of one that was there before idletimed, what it did before is not known to be new."""
    ledger = Ledger()
    requests = ("sda", "idletime_resource_requests_total", "background")

    def look(*jobs: dict[str, Any]) -> int:
        metrics.note(ledger, Facts((metrics_facts.vm_of("0-1", said(query=[resource(jobs=list(jobs))])),)))
        return sums_of(ledger).get(requests, 0)

    assert look(job("backup-vda-a", 50)) == 0
    assert look(job("backup-vda-a", 60)) == 10
    assert look() == 10
    assert look(job("copy-vda-b", 7)) == 17
    assert look(job("copy-vda-b", 9)) == 19


def test_a_vm_that_stops_looking_and_looks_again_adds_nothing_twice() -> None:
    ledger = Ledger()
    blind = resource(50)
    del blind["counters"]
    blind["collisions"] = blind["collision-cost-us"] = 0
    for query in ([resource(50)], [blind], [resource(50)], [resource(51)]):
        metrics.note(ledger, Facts((metrics_facts.vm_of("0-1", said(query=query)),)))
    assert sums_of(ledger)["sda", "idletime_resource_collisions_total"] == 1


def test_an_observer_is_counted_once_however_many_look() -> None:
    """The newest look counts; a new observer counts from 0."""
    ledger = Ledger()
    there = (ObserverState("sda", "disk", "/dev/sda", True),)

    def look(*found: tuple[int, float]) -> int:
        vms = tuple(vm(requests, uuid=f"0-{number}", name=str(number), looked=looked)
                    for number, (requests, looked) in enumerate(found))
        metrics.note(ledger, Facts(vms, there))
        return sums_of(ledger)["sda", "idletime_observer_requests_total"]

    assert look((100, 1.0), (100, 2.0)) == 0
    assert look((110, 4.0), (105, 3.0)) == 10
    assert look((3, 5.0), (110, 4.0)) == 13


COUNTS = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.tuples(st.integers(1, 2), st.integers(0, 5)))


@given(st.lists(COUNTS, max_size=12))
def test_no_sum_ever_goes_back(looks: list[dict[str, tuple[int, int]]]) -> None:
    """VMs come, go and restart in any order."""
    ledger, before = Ledger(), {}
    for one in looks:
        metrics.note(ledger, Facts(tuple(vm(value, uuid=name, name=name, run=run) for name, (run, value) in one.items())))
        now = sums_of(ledger)
        assert all(now[key] >= value for key, value in before.items())
        before = now


def test_resources_are_bounded() -> None:
    ledger = Ledger()
    for number in range(MOST + 5):
        ledger.note(("view", "x"), 0, f"r{number}", {("n",): number})
        ledger.note(("view", "x"), 0, "kept", {("n",): number})
    assert len(ledger.sums) == MOST and "kept" in ledger.sums and "r0" not in ledger.sums


# ---- what a QEMU may say

@pytest.mark.parametrize("change", [
    {"collisions": -1}, {"collisions": "many"}, {"collisions": 1 << 64}, {"collisions": True}, {"interval-us": 1.5},
    {"state": "dreaming"}, {"state": ["idle"]}, {"counters": []}, {"other-generations": list(range(1000))},
    {"learned": {"slowdown-percent": math.inf}}, {"learned": {"slowdown-percent": math.nan}},
    {"learned": {"credit-us": 10 ** 400}},
    {"devices": [device()] * 1000}, {"devices": {}},
])
def test_what_does_not_fit_is_left_out_and_said(change: dict[str, Any]) -> None:
    good = vm(3, name="b", uuid="0-2")
    bad = metrics_facts.vm_of("0-1", said(query=[{**resource(), **change}]))
    assert bad.resources is None and bad.misfit.startswith("query-idletime")
    found = read(text_of(Facts((bad, good))))
    assert found["idletime_daemon_unread_vms",] == 1
    assert found["idletime_view_interval_seconds", "sda", "b"] == 0.005


def test_what_the_plan_does_not_name_becomes_no_label() -> None:
    """Resources, devices, states, causes, bounds of QEMU's own making; and what is there twice."""
    mine = device("virtio-disk0")
    mine["promotions"]["boredom"] = 5
    mine["hold"]["boundaries-us"] = [each + 1 for each in BOUNDS]
    query = [resource(collisions=5, jobs=[]), resource(devices=[mine, mine, device("secret")], jobs=[]),
             resource(id="idletime-secret")]
    found = metrics_facts.vm_of("0-1", said(query=query))
    text = text_of(Facts((found,)))
    read(text)
    assert "secret" not in text and "boredom" not in text and "hold_seconds_bucket" not in text


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                        st.sampled_from(sorted(resource())) | st.text(max_size=5), inner, max_size=4), max_leaves=12)


@given(JSON)
def test_any_answer(answer: Any) -> None:
    """Whatever a QEMU says, the page is one that is understood."""
    found = metrics_facts.with_figures(vm(), said(), answer, 1.0)
    if isinstance(answer, dict):
        found = metrics_facts.with_figures(found, said(), [{**resource(), **answer, "id": "idletime-sda"}], 1.0)
    read(text_of(Facts((found,))))


def test_fit_drops_what_it_does_not_know() -> None:
    assert metrics_facts.fit({"a": str.upper}, {"a": "x", "b": 1}) == {"a": "X"}
    with pytest.raises(Misfit, match=r"query-idletime\.a is '7'"):
        metrics_facts.fit({"a": str.upper}, {"a": 7})


def test_two_vms_of_one_name_are_told_apart() -> None:
    apart = metrics_facts.named_apart([vm(), vm(uuid="0-2"), vm(uuid="0-3", name="web")])
    assert [one.name for one in apart] == ["ci (0-1)", "ci (0-2)", "web"]
    read(text_of(Facts((vm(), vm(uuid="0-2")))))  # even so a reader gets a page


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a}b", "\udcff", "x" * 5000, "é"])
def test_names_are_what_they_are(name: str) -> None:
    found = {key[1] for key in read(text_of(Facts((vm(name=name),)))) if key[0] == "idletime_vm_in_force"}
    (label,) = found
    assert len(label) <= metrics_facts.LABEL_CHARACTERS and (label == name or len(name) > 200 or name == "\udcff")


# ---- files

def test_reader_reads_what_changed(tmp_path: Path) -> None:
    folder = tmp_path / state.FOLDER
    state.write_daemon(str(tmp_path), ("a", "b"), "", "0.1")
    observed.write(str(tmp_path), ALL.observers)
    reader = Reader(str(tmp_path))
    state.write_domain(str(tmp_path), said(query=[resource(1)]))
    state.write_domain(str(tmp_path), said("b", "0-2", query=None, socket="/run/b.qmp"))
    first, left_out = reader.read()
    assert {one.name for one in first.values()} == {"ci", "b"} and left_out == 0
    assert (reader.files(), reader.observers()) == (2, ALL.observers)
    state.write_domain(str(tmp_path), said(query=[resource(2)]))
    second, _ = reader.read()
    assert second["0-1"].query[0]["collisions"] == 2
    assert next(one for key, one in second.items() if key.startswith("qmp-")) is next(
        one for key, one in first.items() if key.startswith("qmp-")), "not read again"
    (folder / "0-1.json").write_text("{")
    assert set(reader.read()[0]) == {key for key in first if key != "0-1"}
    state.remove_domain(str(tmp_path), "0-1")
    assert len(reader.read()[0]) == 1
    assert Reader(str(tmp_path / "absent")).read() == ({}, 0)


def test_who_is_stopped_and_who_may_be() -> None:
    """Of a VM that is never stopped, nothing."""
    found = read(text_of(Facts((vm(name="a"), vm(name="b", uuid="0-2", suspends=True),
                                vm(name="c", uuid="0-3", suspends=True, stopped="sda")))))
    assert {key[1]: value for key, value in found.items() if key[0] == "idletime_vm_stopped"} == {"b": 0, "c": 1}


def test_more_vms_than_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_facts, "MOST_VMS", 3)
    os.mkdir(tmp_path / state.FOLDER)
    for number in range(5):
        state.write_domain(str(tmp_path), said(str(number), f"0-{number}"))
    there, left_out = Reader(str(tmp_path)).read()
    assert (len(there), left_out) == (3, 2)


# ---- names

def entry(metric: Any) -> str:
    labels = f" by {', '.join(metric.labels)}" if metric.labels else ""
    return f".TP\n.B {metric.name}\n{metric.kind}{labels}.\n{metric.help}\n".replace("-", "\\-")


def test_the_man_page_has_this_table() -> None:
    """IDLETIME_GOLDEN=write writes it."""
    text, the_table = PAGE.read_text(), "".join(map(entry, METRICS))
    found = re.search(r'(?s)(\.\\" the table: tests/test_metrics.py\n)(.*?)(\.\\" end of the table\n)', text)
    assert found
    if os.environ.get("IDLETIME_GOLDEN") == "write":
        PAGE.write_text(text.replace(found.group(0), found.group(1) + the_table + found.group(3)))
    else:
        assert found.group(2) == the_table, "run with IDLETIME_GOLDEN=write"


def test_what_is_exported_is_what_the_table_says() -> None:
    """All names, with their types and labels; none besides."""
    exported = {}
    for family in openmetrics_parser.text_string_to_metric_families(text_of(ALL)):
        for one in family.samples:
            name = one.name.removesuffix("_bucket")
            exported[name] = (family.type, family.documentation, tuple(sorted(one.labels.keys() - {"le"})))
    assert exported == {one.name: (one.kind, one.help, tuple(sorted(one.labels))) for one in METRICS}


def test_the_table_keeps_prometheus_conventions() -> None:
    def wrong(names: Iterable[str]) -> list[str]:
        return [name for name in names if not re.fullmatch(r"idletime_[a-z_]+", name)]

    assert len(BY_NAME) == len(METRICS) and not wrong(BY_NAME)
    for one in METRICS:
        assert (one.kind == "counter") == one.name.endswith("_total"), one.name
        assert (one.kind == "info") == one.name.endswith("_info"), one.name
        assert not re.search(r"_(us|ms|percent|count|sum|bucket)(_|$)", one.name), one.name
        assert len(one.help) > 30 and "\\" not in one.help and set(one.labels) <= {
            "vm", "resource", "device", "class", "by", "state", "event", "cause", "reason", "span", "type", "version", "policy",
            "act", "direction"}, one.name


def test_a_vm_with_more_devices_than_are_shown_has_metrics() -> None:
    """Of those that are shown."""
    many = [device(), *({**device(), "device": f"virtio-disk{number}"} for number in range(100, 200))]
    found = metrics_facts.vm_of("0-1", said(query=[{**resource(), "devices": many}]))
    assert found.misfit == "" and found.resources is not None
    assert [one["device"] for one in found.resources[0]["devices"]] == [device()["device"]]


@pytest.mark.parametrize(("run", "at", "looked", "newer"), [
    (1, 200.0, 100.0, True), (1, 50.0, 100.0, False), (2, 200.0, 100.0, False), (1, 50.0, 4e9, True)])
def test_which_answer_is_newer(run: int, at: float, looked: float, newer: bool) -> None:
    """Also where the clock was set back since the look: else counters would begin anew."""
    assert metrics_look.is_newer((run, [], at), said(looked=looked)) is newer

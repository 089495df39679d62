"""A real Prometheus scrapes a real idletimed with real QEMUs; whoever else reads, or tries to do more than read, changes nothing."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Iterator
from urllib.parse import quote

import pytest

from tests.e2e.libvirt_fixtures import (  # noqa: F401  (fixtures)
    INTERVAL_US, Make, background, domain, expect, foreground, host, module_stack, served, set_policy, shared_disk, start,
)
from tests.framework import paths
from tests.framework.domain import Domain
from tests.framework.idletimed import Idletimed, wait_until
from tests.framework.libvirtd import CONFIG, Libvirtd
from tests.testbed.disk import Disk

PORT, PROMETHEUS_PORT, LOOK_SECONDS = 9713, 9090, 2
SETTINGS = f"[metrics]\nport = {PORT}\nlook-seconds = {LOOK_SECONDS}\n"
PROMETHEUS = paths.BUILD / "prometheus/usr/bin/prometheus"
RULES = paths.ROOT / "libvirt/prometheus/idletime.rules.yml"
DASHBOARDS = sorted((paths.ROOT / "libvirt/grafana").glob("*.json"))
UNKNOWN_HERE = {
    ("idletime-host", "What the foreground pays"), ("idletime-host", "Time without foreground"),
    ("idletime-resource", "Slowdown and budget"), ("idletime-resource", "Idle time, and its forecast"),
    ("idletime-tenants", "Bytes by deadline"), ("idletime-resource", "Block jobs"), ("idletime-tenants", "Idle time by VM"),
    ("idletime-host", "Background VMs as a whole"),
}
"""Panels that may be empty beside an interval that is set, without a block job (test_libvirt_jobs.py has those), and where no
policy stops a VM (test_police.py has one)."""

CONFIGURATION = f"""
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{RULES}]
scrape_configs:
  - job_name: idletime
    static_configs: [{{targets: ["127.0.0.1:{PORT}"]}}]
"""
FETCH = "import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"

BG, FG = ("background", "slow", INTERVAL_US), ("foreground", "slow", INTERVAL_US)


@pytest.fixture(scope="module")
def daemon(module_stack: ExitStack, host: Libvirtd) -> Idletimed:
    """idletimed with a port."""
    (host.run / CONFIG).write_text(SETTINGS)
    return module_stack.enter_context(Idletimed(host))


class Scraper:
    """A Prometheus in the host's namespaces."""

    def __init__(self, host: Libvirtd) -> None:
        assert PROMETHEUS.exists(), "no Prometheus: run 'make prometheus'"
        self.host = host
        (host.run / "prometheus.yml").write_text(CONFIGURATION)
        self.process = host.spawn([
            str(PROMETHEUS), "--config.file=/run/prometheus.yml", "--storage.tsdb.path=/run/prometheus",
            f"--web.listen-address=127.0.0.1:{PROMETHEUS_PORT}"], "prometheus.log")

    def get(self, path: str) -> Any:
        """"data" of the API's answer; None while it does not answer."""
        url = f"http://127.0.0.1:{PROMETHEUS_PORT}/api/v1/{path}"
        result = self.host.call("/usr/bin/python3", "-c", FETCH, url, check=False)
        return json.loads(result.stdout)["data"] if result.returncode == 0 else None

    def values(self, query: str) -> dict[tuple[str, ...], float]:
        """Values of a query, by the labels of ours, sorted by their names."""
        found = self.get(f"query?query={quote(query)}") or {"result": []}
        return {tuple(value for label, value in sorted(one["metric"].items()) if label not in ("instance", "job", "__name__")):
                float(one["value"][1]) for one in found["result"]}


@pytest.fixture(scope="module")
def prometheus(module_stack: ExitStack, host: Libvirtd, daemon: Idletimed) -> Scraper:
    """It scrapes once a second."""
    scraper = Scraper(host)
    module_stack.callback(scraper.process.stop)
    wait_until(lambda: scraper.values('up{job="idletime"}') == {(): 1.0}, "Prometheus scrapes")
    return scraper


@pytest.fixture
def pair(domain: Make, daemon: Idletimed, shared_disk: Disk) -> Iterator[tuple[Domain, Domain]]:
    """A background VM under load beside a foreground one."""
    fg, bg = start(domain, "fg", foreground()), start(domain, "bg", background())
    expect(bg, vda=BG)
    expect(fg, vda=FG)
    bg.guest.load(outstanding=4, seconds=600)
    served(shared_disk, "bg")
    yield fg, bg


@pytest.fixture
def idle_pair(domain: Make, daemon: Idletimed) -> tuple[Domain, Domain]:
    """The same without load: their guests need not have booted."""
    fg, bg = domain("fg", foreground()), domain("bg", background())
    for each, what in ((fg, FG), (bg, BG)):
        each.define()
        each.start()
        expect(each, vda=what)
    return fg, bg


def figures(domain: Domain) -> dict[str, Any]:
    """What query-idletime says of a domain's only resource."""
    (one,) = {state["resource"]["id"]: state["resource"] for state in domain.scheduler().values()}.values()
    return one


def unix(host: Libvirtd) -> Path:
    return host.run / "idletime/.metrics.sock"


def test_a_prometheus_scrapes(prometheus: Scraper, pair: tuple[Domain, Domain]) -> None:
    """Its figures are QEMU's, in order, with types; all rules can be evaluated; no alert but what is so."""
    _, bg = pair
    before = figures(bg)
    of = 'vm="bg",resource="slow"'
    wait_until(lambda: prometheus.values(f'idletime_device_requests_total{{{of},class="background"}}').get(
        ("background", "vda", "slow", "bg"), 0) >= before["background"]["requests"] > 0, "as many requests as QEMU said")
    after = figures(bg)
    assert prometheus.values(f'idletime_device_bytes_total{{{of},class="background"}}')[
        "background", "vda", "slow", "bg"] <= figures(bg)["background"]["bytes"]
    assert prometheus.values(f"idletime_view_interval_seconds{{{of}}}") == {("slow", "bg"): INTERVAL_US / 1e6}
    assert sum(prometheus.values(f"idletime_view_state{{{of}}}").values()) == 1
    assert prometheus.values(f"idletime_device_hold_seconds_bucket{{{of},le='+Inf'}}"), "the histogram's bounds are QEMU's"
    assert prometheus.values("idletime_vm_in_force") == {("bg",): 1, ("fg",): 1}
    assert prometheus.values("idletime_vm_info") == {("domain", "background", "bg"): 1, ("domain", "foreground", "fg"): 1}
    assert prometheus.values("idletime_resource_devices") == {
        ("background", "slow"): 1, ("foreground", "slow"): 1, ("guest", "slow"): 0}
    assert prometheus.values("idletime_daemon_unread_vms") == {(): 0}
    assert prometheus.values("idletime_resource_generations") == {("slow",): 1}
    assert after["collisions"] >= before["collisions"]
    types = prometheus.get("metadata")
    assert types["idletime_device_requests"][0]["type"] == "counter" and types["idletime_device_hold_seconds"][0]["type"] == "histogram"

    def evaluated() -> bool:
        rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        return len(rules) == 16 and all(rule["health"] == "ok" for rule in rules)

    wait_until(evaluated, "all rules are evaluated without an error")
    wait_until(lambda: sum(prometheus.values("idletime:resource_bytes:rate5m").values()) > 0, "a rate is recorded")


def test_dashboards_have_figures(prometheus: Scraper, pair: tuple[Domain, Domain]) -> None:
    """Each panel's query is answered; those about what these two VMs do have series."""
    asked = {(file.stem, panel["title"]): [target["expr"] for target in panel["targets"]]
             for file in DASHBOARDS for panel in json.loads(file.read_text())["panels"]}
    values = {"$instance": f"127.0.0.1:{PORT}", "$resource": "slow", "$__rate_interval": "1m", "$__range": "1h"}

    def answers(expression: str) -> list[Any]:
        for variable, value in values.items():
            expression = expression.replace(variable, value)
        data = prometheus.get(f"query?query={quote(expression)}")
        assert data is not None, f"not answered: {expression}"
        return list(data["result"])

    def empty() -> set[tuple[str, str]]:
        return {panel for panel, expressions in asked.items() if not any(answers(each) for each in expressions)}

    # An interval that is set learns nothing, so that slowdown, budget and spare time are not known; nothing left by deadline.
    wait_until(lambda: empty() <= UNKNOWN_HERE, "the panels have figures")


def test_sums_outlive_vms(prometheus: Scraper, pair: tuple[Domain, Domain], shared_disk: Disk) -> None:
    """A VM that is killed takes nothing along; started again it counts from 0, and the sum goes on."""
    _, bg = pair
    sum_ = 'idletime_resource_requests_total{resource="slow",class="background"}'
    of_device = 'idletime_device_requests_total{vm="bg",class="background"}'

    def value(query: str) -> float:
        return sum(prometheus.values(query).values())

    wait_until(lambda: value(sum_) > 0, "it is counted")
    seen = value(sum_)
    bg.detach()
    bg.dom.destroy()
    wait_until(lambda: not prometheus.values(of_device), "it has left")
    after = value(sum_)
    assert after >= seen
    bg.start().booted()
    bg.guest.load(outstanding=4, seconds=600)
    served(shared_disk, "bg")
    wait_until(lambda: value(sum_) > after, "the sum goes on")
    resets = prometheus.values(f"resets({sum_}[1h])")
    assert set(resets.values()) == {0}, "it never went back"


# ---- others

NOBODY = """
import socket, sys
lines = []
for number in range(200):
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(0.1)
    try:
        line.connect(sys.argv[1])
        line.send([b"GET /metrics HTTP/1.1\\r\\n\\r\\n", b"", b"GET /metr", b"POST /metrics HTTP/1.1\\r\\n\\r\\n"][number % 4])
        lines.append(line)
    except OSError:
        pass
print("open", flush=True)
sys.stdin.read()
"""


def asked(path: Path, request: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(20)
        line.connect(str(path))
        line.sendall(request)
        answer = b""
        while data := line.recv(1 << 16):
            answer += data
        return answer


def as_nobody(request: str) -> list[str]:
    """A program's command line."""
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "/usr/bin/python3", "-c", request]


def test_nobody_changes_and_delays_nothing(host: Libvirtd, daemon: Idletimed, prometheus: Scraper,
                                           idle_pair: tuple[Domain, Domain]) -> None:
    """A user without rights keeps as many lines open as he gets, half of a request on them or a POST: policies take hold
    meanwhile, the port is read, and he cannot take the socket away or be in its place."""
    fg, bg = idle_pair
    assert asked(unix(host), b"POST /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 405")
    wait_until(lambda: b'idletime_vm_in_force{vm="bg"}' in asked(unix(host), b"GET /metrics HTTP/1.1\r\n\r\n"), "it is looked at")
    with subprocess.Popen([*as_nobody(NOBODY), str(unix(host))], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as crowd:
        assert crowd.stdin is not None and crowd.stdout is not None
        assert crowd.stdout.readline() == b"open\n"
        set_policy(bg, foreground())
        expect(bg, vda=FG)
        set_policy(bg, background())
        expect(bg, vda=BG)
        scrapes = prometheus.values("idletime_daemon_scrapes_total")[()]
        wait_until(lambda: prometheus.values("idletime_daemon_scrapes_total")[()] > scrapes + 2, "the port is read")
        crowd.stdin.close()
        assert crowd.wait(30) == 0
    result = subprocess.run([*as_nobody("import os, sys; os.unlink(sys.argv[1])"), str(unix(host))], capture_output=True, check=False)
    assert result.returncode != 0 and b"PermissionError" in result.stderr
    assert b"idletime_vm_in_force" in asked(unix(host), b"GET /metrics HTTP/1.1\r\n\r\n")
    assert prometheus.values("max_over_time(idletime_daemon_tick_age_seconds[5m])")[()] < 10
    expect(fg, vda=FG)


def test_a_qemu_that_hangs(prometheus: Scraper, idle_pair: tuple[Domain, Domain]) -> None:
    """Its figures grow old and say so; those of the others are new; when it goes on, so are its."""
    _, bg = idle_pair
    pid = bg.pid
    age = "time() - idletime_vm_look_timestamp_seconds"
    wait_until(lambda: set(prometheus.values(f"{age} < 8")) == {("bg",), ("fg",)}, "both are asked")
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: set(prometheus.values(f"{age} > 15")) == {("bg",)}, "one grows old", 60)
        assert prometheus.values(f"{age} < 12").keys() == {("fg",)}
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: ("bg",) in prometheus.values(f"{age} < 8"), "it answers again", 60)

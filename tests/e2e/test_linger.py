"""Linger or migrate (003, 2): a background VM beside a busy processor is sent to another host by its idletimed, once that pays.

VMs, what they wait, and the migration are real; what the hosts' kernels say of their processors is played, as both are this machine.
"""

from __future__ import annotations

import os
import re
import signal
from typing import Iterator

import libvirt
import pytest

from tests.e2e.libvirt_fixtures import (  # noqa: F401  (fixtures)
    Make, background, domain, expect, foreground, host, module_stack, other, remove, shared_disk, start,
)
from tests.framework.domain import Domain
from tests.framework.idletimed import Idletimed, answer, virt_idletime, wait_until
from tests.framework.libvirtd import CONFIG, Inside, Libvirtd
from tests.testbed import processors
from tests.testbed.between import network
from tests.testbed.processors import Processor

SECONDS = 180.0
"""For what takes 30 s on a machine that does nothing else."""

MOVED = "urn:idletime:moved:1"


@pytest.fixture
def joined(host: Libvirtd, other: Libvirtd) -> Iterator[None]:  # noqa: F811
    """Both hosts on one network; one is busy, the other idle."""
    with network(host, other), Processor(host, processors.busy), Processor(other, processors.idle):
        yield


@pytest.fixture
def busy(host: Libvirtd) -> Iterator[Inside]:  # noqa: F811
    """Somebody who computes on the first processor, which is all VMs'."""
    one = host.spawn(["taskset", "--cpu-list", "0", "sh", "-c", "while :; do :; done"], "busy.log")
    yield one
    one.stop(signal.SIGKILL)


def daemon(host: Libvirtd, settings: str) -> Idletimed:  # noqa: F811
    (host.folder / "log" / "idletimed.log").unlink(missing_ok=True)
    (host.run / CONFIG).write_text(f"[metrics]\nlook-seconds = 2\n[migrate]\n{settings}")
    return Idletimed(host)


def until(idletimed: Idletimed, text: str) -> str:
    """It says that; the whole line."""
    wait_until(lambda: re.search(text, idletimed.log()) is not None, text, SECONDS)
    found = re.search(f".*(?:{text}).*", idletimed.log())
    assert found
    return found.group()


def test_it_stays_then_moves(host: Libvirtd, other: Libvirtd, domain: Make, joined: None, busy: Inside) -> None:  # noqa: F811
    """While a move takes longer than this is expected to last, it stays; a dry run says what would be done; then it is done. A
    foreground VM beside it stays."""
    bg, fg = start(domain, "lingers", background()), start(domain, "stays", foreground())
    for vm in (bg, fg):
        assert vm.guest is not None
        vm.dom.pinVcpu(0, (True,) + (False,) * ((os.cpu_count() or 1) - 1))
        vm.guest.start("while :; do :; done")
    to = f'to = "{host.uri} {other.uri}"\n'

    with daemon(host, to + "mbytes-per-second = 1\n") as idletimed:
        line_ = until(idletimed, "domain 'lingers' stays: .* a move takes ")
        found = re.search(r"it does (\d+)% of what it would alone, with ([\d.]+) processors, and would do (\d+)% at (\S+); a move takes", line_)
        assert found and int(found[1]) < 80 and float(found[2]) > 0.4 and int(found[3]) > 60 and found[4] == other.uri, line_
    assert not re.search("moves to|would move|domain 'stays'", idletimed.log()), idletimed.log()

    with daemon(host, to + "dry-run = true\n") as idletimed:
        assert "domain 'lingers'" in until(idletimed, f"would move to {re.escape(other.uri)} .dry-run.: it does")
        wait_until(lambda: f"lingers would move to {other.uri} (dry-run): it does" in virt_idletime(host, "explain", "lingers"),
                   "explained", SECONDS)
    assert MOVED not in bg.dom.XMLDesc()

    with daemon(host, to) as idletimed:
        until(idletimed, f"domain 'lingers' moves to {re.escape(other.uri)}: it does")
        until(idletimed, f"domain 'lingers' runs at {re.escape(other.uri)}")
        there = Domain(other, bg.name, bg.policy, bg.devices)
        bg.detach()
        try:
            expect(there, vda=("background", "slow", 30000))
            assert there.dom.state()[0] == libvirt.VIR_DOMAIN_RUNNING and there.dom.isPersistent()
            xml = there.dom.XMLDesc()
            assert MOVED in xml and "class=\"background\"" in xml.replace("'", '"') and "<idletime:job" not in xml
            wait_until(lambda: 'idletime_policy_acts_total{act="move",cause="processor",policy="migrate"} 1.0' in answer(host, "/metrics"),
                       "counted, with its cause", SECONDS)
            assert [one.name() for one in host.connection.listAllDomains()] == ["stays"]
        finally:
            remove(there)

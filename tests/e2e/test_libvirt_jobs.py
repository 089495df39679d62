"""Block jobs through libvirt's own calls, beside a foreground VM on the same disk: held, ended, cancelled, let go, with equal data."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator

import libvirt
import pytest

from tests.e2e.libvirt_fixtures import (  # noqa: F401  (fixtures)
    arena_path, host, idletimed, module_stack, remove, resource, set_policy, shared_folder, snapshot,
    targets,
)
from tests.e2e.test_disk import MS, not_held
from tests.framework import paths
from tests.framework.domain import Domain, disk_xml, policy
from tests.framework.idletimed import Idletimed, answer, virt_idletime, wait_until
from tests.framework.libvirtd import Libvirtd
from tests.testbed.disk import Disk, Model
from tests.testbed.requests import early, of_client

INTERVAL_US = 20000
DISK_BYTES = 192 << 20
"""A stock backup has 64 requests of 1 MiB in flight, so a third of it has begun before anybody hears of it."""

JOB_SECONDS = 120.0
"""A copy has 1536 chunks of 5 ms, some 10 of them in each of the foreground's pauses; the rest is for a busy host."""

PROGRAM_BYTES = 256 << 20
"""The program reads as fast as memory gives it, until its export is attached."""

SLOW = 1 << 20
"""Bytes a second at which a copy begins, so that it has begun only when it is attached."""

JOBS = "<idletime:job class='background'/>"


def its_policy(inner: str = "") -> str:
    return policy("foreground", f"<idletime:interval us='{INTERVAL_US}'/>{resource('vda')}{inner}")


@dataclass
class Pair:
    """Two foreground VMs on one disk: `busy` has load when a test wants it, and a disk more; `copied` has the block jobs."""

    disk: Disk
    other: Disk
    busy: Domain
    copied: Domain

    def attached(self, resource: str = "slow") -> dict[str, dict[str, Any]]:
        """Of each job that is attached to it, what query-idletime says."""
        return {job["id"]: job for one in self.copied.qmp("query-idletime") for job in one["jobs"]
                if one["id"] == f"idletime-{resource}"}

    def exports(self) -> list[dict[str, Any]]:
        """What query-idletime says of NBD exports."""
        return [export for one in self.copied.qmp("query-idletime") for export in one["exports"]]

    def await_attached(self, kind: str) -> dict[str, Any]:
        """Return when the one job of this kind is attached."""
        wait_until(lambda: any(one.startswith(f"{kind}-vda-") for one in self.attached()), f"{kind} is attached")
        (job,) = self.attached().values()
        return job

    def await_held(self) -> None:
        """It waits, and goes on waiting: nothing of it has started in the meantime."""
        wait_until(lambda: any(job["held"] for job in self.attached().values()), "the job is held")

    def info(self) -> dict[str, Any]:
        """libvirt's word for the job; {} without one."""
        return dict(self.copied.dom.blockJobInfo("vda", 0) or {})

    def await_ready(self) -> None:
        wait_until(lambda: (said := self.info()) != {} and 0 < said["end"] == said["cur"], "all is copied", JOB_SECONDS)

    def await_ended(self) -> None:
        wait_until(lambda: self.info() == {}, "the job has ended", JOB_SECONDS)

    def copy(self, to: Path, bytes_per_second: int = 0) -> None:
        self.copied.dom.blockCopy("vda", f"<disk type='file'><source file='{to}'/><driver type='raw'/></disk>",
                                  {libvirt.VIR_DOMAIN_BLOCK_COPY_BANDWIDTH: bytes_per_second} if bytes_per_second else {},
                                  libvirt.VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB)

    def attached_copy(self, to: Path) -> None:
        """One that has copied next to nothing before it is attached, and has no limit then."""
        self.copy(to, SLOW)
        self.await_attached("copy")
        self.copied.dom.blockJobSetSpeed("vda", 0)

    def equal(self, copy: Path) -> None:
        """The copy has the disk's data."""
        there = f"nbd+unix:///compare?socket={self.disk.socket}"
        result = subprocess.run([str(paths.STAGED_IMG), "compare", "-U", there, str(copy)], capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def pair(module_stack: ExitStack, host: Libvirtd, idletimed: Idletimed,  # noqa: F811
         tmp_path_factory: pytest.TempPathFactory) -> Pair:
    image = tmp_path_factory.mktemp("jobs") / "image"
    image.write_bytes(os.urandom(DISK_BYTES))
    disk = module_stack.enter_context(Disk(Model(service_us=5000, size=str(DISK_BYTES)), image=image))
    other = module_stack.enter_context(Disk(Model(service_us=5000, size=str(64 << 20))))
    found = []
    for name, its, more in (("busy", its_policy(resource("vdb", "target")), [disk_xml(other, "busy", "vdb")]),
                            ("copied", its_policy(JOBS), [])):
        domain = Domain(host, name, its, [disk_xml(disk, name), *more])
        module_stack.callback(remove, domain)
        domain.define()
        found.append(domain.start().booted())
    return Pair(disk, other, *found)


@pytest.fixture
def loaded(pair: Pair) -> Iterator[Pair]:
    """The same while the foreground never rests."""
    load = pair.busy.guest.load(outstanding=2, seconds=300)
    pair.disk.wait_for(pair.disk.mark(), lambda log: len(of_client(log, "busy")) > 5)
    yield pair
    load.stop()
    load.result()


@pytest.fixture(autouse=True)
def as_before(pair: Pair) -> Iterator[None]:
    """No job, and its own policy, whatever a test left."""
    yield
    if pair.info():
        pair.copied.dom.blockJobAbort("vda", 0)
    set_policy(pair.copied, its_policy(JOBS))


def virsh(host: Libvirtd, *words: str) -> None:
    """As an operator does it."""
    host.call("virsh", "--connect", host.uri, *words)


def bursts(pair: Pair, seconds: float) -> Any:
    """A foreground that rests 70 ms of each 100."""
    return pair.busy.guest.load(intensity=30, seconds=seconds)


def test_a_copy_waits_for_the_foreground(pair: Pair, host: Libvirtd, shared_folder: Path) -> None:  # noqa: F811
    """blockCopy: nothing of it comes to the disk within a burst, or within the interval after it, but what was promoted."""
    load = bursts(pair, 300)
    pair.attached_copy(shared_folder / "copy")
    mark = pair.disk.mark()
    shown = virt_idletime(host, "jobs", "copied", "--delay", "0.2")
    pair.await_ready()
    job = pair.await_attached("copy")
    wait_until(lambda: 'idletime_job_bytes_total{device="vda",resource="slow",type="copy",vm="copied"}' in answer(host, "/metrics"),
               "metrics show it")
    load.stop()
    load.result()
    log = pair.disk.read(mark)
    foreground, copied = of_client(log, "busy"), of_client(log, "copied")
    assert len(copied) > 50 and len(foreground) > 50
    assert not_held(foreground, copied, INTERVAL_US * 1000) <= sum(job["promotions"].values())
    assert any(line.split()[:3] == ["copied", "vda", "copy"] and "background" in line and "slow" in line
               for line in shown.splitlines()), shown
    pair.copied.dom.blockJobAbort("vda", 0)
    pair.await_ended()
    assert pair.attached() == {}
    pair.equal(shared_folder / "copy")


def test_without_the_element_it_does_not_wait(pair: Pair, shared_folder: Path) -> None:  # noqa: F811
    """The control experiment: the same copy of the same VM is early most of the time."""
    set_policy(pair.copied, its_policy())
    load = bursts(pair, 300)
    pair.disk.wait_for(pair.disk.mark(), lambda log: len(of_client(log, "busy")) > 5)
    mark = pair.disk.mark()
    pair.copy(shared_folder / "copy")
    pair.await_ready()
    load.stop()
    load.result()
    log = pair.disk.read(mark)
    assert len(early(of_client(log, "busy"), of_client(log, "copied"), INTERVAL_US * 1000, 2 * MS)) > 10
    assert pair.attached() == {}


@contextmanager
def named_target(host: Libvirtd, file: Path | str) -> Iterator[None]:  # noqa: F811
    """The operator says that a file is on the resource "target"."""
    folder = host.rules / "resources.d"
    folder.mkdir()
    (folder / "target.toml").write_text(f"[target]\nmatch.path = '{file}'\n")
    try:
        yield
    finally:
        (folder / "target.toml").unlink()
        folder.rmdir()


@pytest.mark.parametrize("named", [True, False])
def test_a_copy_waits_for_the_disk_that_it_writes(pair: Pair, host: Libvirtd, shared_folder: Path, named: bool) -> None:  # noqa: F811
    """The disk that it reads is idle, the other is not. Control experiment: where the operator has not said which that is."""
    copy = shared_folder / "elsewhere"
    load = pair.busy.guest.load(device="/dev/vdb", intensity=30, seconds=300)
    with named_target(host, copy if named else "/nowhere"):
        pair.copy(copy, SLOW)
        wait_until(lambda: pair.attached("target" if named else "slow") != {}, "it is attached")
        pair.other.wait_for(other_mark := pair.other.mark(), lambda log: len(of_client(log, "busy")) > 5)
        mark = pair.disk.mark()
        pair.copied.dom.blockJobSetSpeed("vda", 0)
        pair.await_ready()
        jobs = [*pair.attached("target").values(), *pair.attached().values()]
        shown = virt_idletime(host, "jobs", "copied", "--delay", "0.2")
    load.stop()
    load.result()
    foreground, copied = of_client(pair.other.read(other_mark), "busy"), of_client(pair.disk.read(mark), "copied")
    assert len(copied) > 50 and len(foreground) > 50
    if named:
        assert jobs[0]["background"] == jobs[1]["background"] and "slow, target" in shown, shown
        assert not_held(foreground, copied, INTERVAL_US * 1000) <= sum(jobs[0]["promotions"].values())
    else:
        assert len(early(foreground, copied, INTERVAL_US * 1000, 2 * MS)) > 10
    pair.copied.dom.blockJobAbort("vda", 0)
    pair.await_ended()
    pair.equal(copy)


def test_a_backup(pair: Pair, host: Libvirtd, shared_folder: Path) -> None:  # noqa: F811
    """virsh backup-begin, push mode: libvirt's own long job, during which commands to the monitor pass."""
    load = bursts(pair, 300)
    copy, wish = shared_folder / "backup", shared_folder / "backup.xml"
    wish.write_text(f"<domainbackup mode='push'><disks><disk name='vda' type='file'><target file='{copy}'/>"
                    "<driver type='raw'/></disk></disks></domainbackup>")
    with named_target(host, copy):
        virsh(host, "backup-begin", "copied", str(wish))
        job = pair.await_attached("backup")
        assert job["detaching"] is False
        wait_until(lambda: pair.attached("target").keys() == pair.attached().keys(), "it is held for what it writes")
        pair.await_ended()
    load.stop()
    load.result()
    wait_until(lambda: pair.attached() == {}, "the job is gone")
    pair.equal(copy)


def test_a_pull_backup(pair: Pair, host: Libvirtd, shared_folder: Path) -> None:  # noqa: F811
    """virsh backup-begin, pull mode, read by qemu-img: its requests, which come by an export, wait for the foreground."""
    wish, socket, copy = shared_folder / "pull.xml", shared_folder / "pull.nbd", shared_folder / "pulled"
    wish.write_text(f"<domainbackup mode='pull'><server transport='unix' socket='{socket}'/><disks><disk name='vda' type='file' "
                    f"exportname='vda'><scratch file='{shared_folder}/scratch'/></disk></disks></domainbackup>")
    virsh(host, "backup-begin", "copied", str(wish))
    try:
        wait_until(lambda: pair.exports() != [], "the export is attached")
        assert [one["held"] for one in pair.exports()] == [0] and all(one.startswith("backup-vda-") for one in pair.attached())
        load = bursts(pair, 300)
        mark = pair.disk.mark()
        pair.disk.wait_for(mark, lambda log: len(of_client(log, "busy")) > 5)
        reader = subprocess.Popen([str(paths.STAGED_IMG), "convert", "-f", "raw", "-O", "raw", f"nbd+unix:///vda?socket={socket}",
                                   str(copy)])
        wait_until(lambda: pair.exports()[0]["held"] > 0, "a request of the reader is held")
        shown = virt_idletime(host, "jobs", "copied", "--delay", "0.2")
        wait_until(lambda: 'idletime_job_bytes_total{device="vda",resource="slow",type="export",vm="copied"}' in
                   answer(host, "/metrics"), "metrics show it")
        assert reader.wait(JOB_SECONDS) == 0
        load.stop()
        load.result()
        log = pair.disk.read(mark)
        foreground, copied = of_client(log, "busy"), of_client(log, "copied")
        assert len(copied) > 50 and len(foreground) > 50
        assert not_held(foreground, copied, INTERVAL_US * 1000) <= sum(pair.exports()[0]["promotions"].values())
        assert any(line.split()[:3] == ["copied", "vda", "export"] and "background" in line for line in shown.splitlines()), shown
        pair.equal(copy)
    finally:
        pair.copied.dom.abortJob()
    wait_until(lambda: pair.exports() == [] and pair.attached() == {}, "nothing is left")


def test_a_backup_program(pair: Pair, host: Libvirtd, shared_folder: Path) -> None:  # noqa: F811
    """virtnbdbackup as operators run it, of a qcow2 file: what it reads waits for the foreground, and is equal."""
    program_argv = ("env", f"PATH={paths.STAGED_IMG.parent}:{os.environ['PATH']}", "virtnbdbackup", "--uri", "qemu:///system",
                    "--domain", "copied", "--level", "copy", "--type", "raw", "--include", "vdb")
    data, image, backup = (shared_folder / name for name in ("data", "second.qcow2", "backups"))
    data.write_bytes(os.urandom(PROGRAM_BYTES))
    subprocess.run([paths.STAGED_IMG, "convert", "-f", "raw", "-O", "qcow2", data, image], check=True)
    xml = (f"<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='{image}'/>"
           "<target dev='vdb' bus='virtio'/></disk>")
    pair.copied.dom.attachDeviceFlags(xml, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    pair.copied.guest.run("while [ ! -b /dev/vdb ]; do usleep 10000; done")
    try:
        set_policy(pair.copied, its_policy(resource("vdb") + JOBS))
        load = pair.busy.guest.load(outstanding=2, seconds=300)
        pair.disk.wait_for(pair.disk.mark(), lambda log: len(of_client(log, "busy")) > 5)
        with ThreadPoolExecutor(1) as pool:
            program = pool.submit(host.call, *program_argv, "--output", str(backup), "--scratchdir", str(shared_folder))
            wait_until(lambda: program.done() or any(one["held"] for one in pair.exports()), "a request of the program is held")
            assert not program.done(), program.result()
            load.stop()
            program.result(JOB_SECONDS)
        load.result()
        wait_until(lambda: pair.exports() == [] and pair.attached() == {}, "nothing is left")
        (copy,) = backup.glob("vdb*.data")
        subprocess.run([paths.STAGED_IMG, "compare", "-f", "raw", "-F", "raw", data, copy], check=True)
    finally:
        pair.copied.dom.detachDeviceFlags(xml, libvirt.VIR_DOMAIN_AFFECT_LIVE)
        wait_until(lambda: "vdb" not in targets(pair.copied), "the disk is gone")


def test_a_commit(pair: Pair, host: Libvirtd, shared_folder: Path) -> None:  # noqa: F811
    """What was written since a snapshot goes back into the disk; it has begun at 1 MiB a second."""
    overlay = shared_folder / "overlay"
    snapshot(pair.copied, "vda", overlay)
    pair.copied.guest.run("dd if=/dev/urandom of=/dev/vda bs=1M count=8 && sync", timeout_seconds=120)
    load = bursts(pair, 300)
    virsh(host, "blockcommit", "copied", "vda", "--active", "--bandwidth", "1")  # MiB a second
    pair.await_attached("commit")
    virsh(host, "blockjob", "copied", "vda", "--bandwidth", "0")
    pair.await_ready()
    load.stop()
    load.result()
    virsh(host, "blockjob", "copied", "vda", "--pivot")
    pair.await_ended()
    wait_until(lambda: pair.attached() == {}, "the job is gone")
    written = pair.copied.guest.run("dd if=/dev/vda bs=1M count=8 2>/dev/null | md5sum").text.split()[0]
    image = subprocess.run(["sh", "-c", f"{paths.STAGED_IMG} dd -f raw -O raw bs=1M count=8 "
                            f"'if=nbd+unix:///compare?socket={pair.disk.socket}' of={overlay}.raw && md5sum {overlay}.raw"],
                           capture_output=True, text=True, timeout=120)
    assert image.stdout.split()[0] == written, image.stderr


def test_a_job_is_cancelled_while_it_is_held(loaded: Pair, shared_folder: Path) -> None:  # noqa: F811
    loaded.attached_copy(shared_folder / "copy")
    loaded.await_held()
    began = time.monotonic()
    loaded.copied.dom.blockJobAbort("vda", 0)
    assert time.monotonic() - began < 4  # not at the deadline, of 5 s
    assert loaded.info() == {} and loaded.attached() == {}


def test_a_copy_that_has_a_deadline(loaded: Pair, host: Libvirtd, shared_folder: Path) -> None:  # noqa: F811
    """Beside a foreground that never rests it would take hours. When that is known it is let go, and done in time."""
    now = time.localtime(time.time() + 150)
    by = time.mktime((*now[:5], 0, 0, 0, -1))
    set_policy(loaded.copied, its_policy(JOBS.replace("/>", f" by='{now.tm_hour:02}:{now.tm_min:02}'/>")))
    loaded.attached_copy(shared_folder / "copy")
    loaded.await_held()
    wait_until(lambda: loaded.attached() == {}, "the job is let go", 60)
    shown = virt_idletime(host, "jobs", "copied", "--delay", "0.2")
    assert "urgent" in shown and time.strftime("%H:%M:00", now) in shown, shown
    loaded.await_ready()
    assert time.time() < by
    loaded.copied.dom.blockJobAbort("vda", 0)
    loaded.await_ended()
    loaded.equal(shared_folder / "copy")


def test_a_policy_that_goes_lets_the_job_go(loaded: Pair, host: Libvirtd, shared_folder: Path) -> None:  # noqa: F811
    """Held for as long as the policy says so, beside a foreground that never rests; then all is copied, as in stock QEMU."""
    loaded.attached_copy(shared_folder / "copy")
    loaded.await_held()
    assert loaded.info()["cur"] < loaded.info()["end"]
    set_policy(loaded.copied, its_policy())
    wait_until(lambda: loaded.attached() == {}, "the job is detached")
    loaded.await_ready()
    assert "foreground" in virt_idletime(host, "jobs", "--readonly", "copied", "--delay", "0.1")
    set_policy(loaded.copied, its_policy(JOBS))
    loaded.await_attached("copy")
    loaded.copied.dom.blockJobAbort("vda", 0)
    loaded.await_ended()
    loaded.equal(shared_folder / "copy")


def test_idletimed_comes_while_a_job_runs(loaded: Pair, idletimed: Idletimed, shared_folder: Path) -> None:  # noqa: F811
    """A job whose start nobody heard of is attached by the first look, and stays so when idletimed is killed."""
    idletimed.stop()
    try:
        loaded.copy(shared_folder / "copy", SLOW)
        assert loaded.attached() == {}
        idletimed.start()
        loaded.await_attached("copy")
        idletimed.stop(signal.SIGKILL)
        assert list(loaded.attached()) != []
    finally:
        idletimed.stop()
        idletimed.start()
    loaded.await_held()

"""The agent in real guests, kernels 6.1 and 6.12: marks, refusals, rules, and what it says to the host."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from tests.e2e.conftest import children
from tests.framework import agent, hostend, series
from tests.framework.guest import Guest
from tests.framework.qemu import Boot, Machine
from tests.testbed.attach import DEVICE, attach
from tests.testbed.disk import Disk, Model

SERIAL = "root"
LACKS = ["write-back of buffered writes is not marked: this kernel has no io.prio.class"]
"""What Debian's kernels do not have; all else they do."""

MARKED_GROUP = "/idletime.slice/background"


@dataclass
class Subject:
    """A guest with a running agent, and the host's end of its port."""

    machine: Machine
    agent: agent.AgentGuest
    port: Path

    @property
    def guest(self) -> Guest:
        return self.machine.guest

    def host(self, **options: Any) -> hostend.HostEnd:
        """The host's end; a context manager."""
        return hostend.HostEnd(self.port, self.machine.qmp, devices={SERIAL: DEVICE}, **options)

    def device(self) -> dict[str, Any]:
        """query-idletime of the disk."""
        return self.machine.qmp.execute("query-idletime")[0]["devices"][0]

    def requests(self) -> dict[str, int]:
        """Requests of the disk so far, by class."""
        device = self.device()
        return {name: device[name]["requests"] for name in ("foreground", "background")}

    def group(self, pid: int) -> str:
        """The cgroup of a process."""
        return self.guest.run(f"cat /proc/{pid}/cgroup").text.strip().removeprefix("0::")

    def priority(self, pid: int) -> str:
        """The I/O priority of a process, in ionice's words."""
        return self.guest.run(f"ionice -p {pid}").text.split(":")[0].strip()


KERNELS = ["6.1", "6.12"] if os.environ.get("IDLETIME_FULL") else ["6.1"]
"""6.12 as well: make agent-kernels. What a marked process does on the disk is tested on both anyway (test_agent_disk.py)."""


@pytest.fixture(scope="module", params=KERNELS)
def subject(request: pytest.FixtureRequest, boot: Boot) -> Iterator[Subject]:
    """One guest a kernel for all tests here; each test ends what it starts."""
    before = children()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idletime-")))
        disk = stack.enter_context(Disk(Model(service_us=500)))
        device = {"serial": SERIAL, "num_queues": 2}
        arguments = attach(disk, "guest", folder / "arena", "guest", device=device, interval_us=0)
        arguments += hostend.port_arguments(folder / "port")
        with_agent = agent.boot_with_agent(boot, series.get_series(request.param))
        machine = stack.enter_context(Machine(with_agent, "guest", arguments))
        subject = Subject(machine, agent.AgentGuest(machine.guest), folder / "port")
        subject.agent.start()
        yield subject
    assert children() == before, "these child processes are left"


@pytest.fixture(autouse=True)
def clean(subject: Subject) -> Iterator[None]:
    """No test may leave a mark."""
    yield
    marks = subject.agent.status()["marks"]
    assert (marks["processes"], marks["cgroups"]) == (0, 0), f"marks are left: {marks}"


def dd(count: int = 20) -> str:
    """Direct reads of the disk, as a shell command."""
    return f"dd if=/dev/vda of=/dev/null bs=4096 count={count} iflag=direct"


def grown(subject: Subject, command: str) -> dict[str, int]:
    """The requests, by class, that a command causes."""
    before = subject.requests()
    subject.guest.run(command)
    after = subject.requests()
    return {name: after[name] - before[name] for name in after}


def test_status_says_what_the_kernel_lacks(subject: Subject) -> None:
    """Before the first mark already: each part was tried out."""
    assert subject.agent.status()["lacks"] == LACKS


@pytest.mark.parametrize("user", ["root", "user"])
def test_run(subject: Subject, user: str) -> None:
    """The command gets class and group, its own pid, and gives its exit status."""
    script = "ionice -p $$; cat /proc/$$/cgroup; exit 7"
    result = subject.agent.call("run", "--", "sh", "-c", script, user=user, check=False)
    assert (result.status, result.text.split()) == (7, ["idle", f"0::{MARKED_GROUP}"])
    assert subject.guest.run(agent.as_user(user, "idletime run -- /no/such"), check=False).status == 127
    prune(subject)


def prune(subject: Subject) -> None:
    """The agent forgets ended processes at its next scan; have it scan now."""
    subject.agent.signal("HUP")
    end = "for _ in $(seq 500); do idletime status | grep -q '^marks   0 proc' && exit 0; usleep 20000; done; exit 1"
    subject.guest.run(end)


def test_unmarked_is_foreground_and_run_is_background(subject: Subject) -> None:
    """Each of 20 direct reads counts in its class, none in the other."""
    assert grown(subject, dd()) == {"foreground": 20, "background": 0}
    assert grown(subject, f"idletime run -- {dd()}") == {"foreground": 0, "background": 20}
    assert grown(subject, agent.as_user("root", f"idletime --socket /none run -- {dd()}")) == {"foreground": 0, "background": 20}
    prune(subject)


def test_page_cache_of_marked_work_is_limited(subject: Subject) -> None:
    """Who reads 96 MiB has them in memory afterwards; marked, no more than 32 MiB, the least that is allowed."""
    read = "exec 5</dev/vda; dd if=/dev/vda of=/dev/null bs=1M count=96 2>&1"  # who closes a device last forgets its pages
    cached = "awk '/^(Cached|Buffers):/ {n += $2} END {print n}' /proc/meminfo"
    drop = "echo 3 >/proc/sys/vm/drop_caches"
    before, after = (int(subject.guest.run(f"{command}; {cached}").text.split()[-1]) for command in (drop, read))
    assert after - before > 90 << 10
    subject.guest.run(drop)
    group = f"/sys/fs/cgroup{MARKED_GROUP}"
    script = (f"while grep -q max {group}/memory.high; do usleep 20000; done; {read}; "
              f"awk '/^(in)?active_file/ {{n += $2}} END {{print n}}' {group}/memory.stat")
    held = int(subject.agent.call("run", "--", "sh", "-c", script).text.split()[-1])
    assert 1 << 20 < held < 40 << 20, f"{held >> 20} MiB of page cache"
    prune(subject)


def test_a_mark_takes_effect_on_the_next_request(subject: Subject) -> None:
    """All requests that begin after the answer to `mark` are background, and after `unmark` foreground again."""
    pid = subject.agent.begin("idleload --device /dev/vda --seconds 120")
    for action, mine, other in (("mark", "background", "foreground"), ("unmark", "foreground", "background")):
        subject.agent.call(action, "--pid", str(pid))
        before = subject.requests()
        wait_for(subject, lambda: subject.requests()[mine] > before[mine] + 50)
        # One request may have been on its way when the answer came.
        assert subject.requests()[other] <= before[other] + 1
    subject.agent.end(pid)


def wait_for(subject: Subject, condition: Callable[[], bool]) -> None:
    """Ask again until it is so; each question is a round trip to QEMU."""
    for _ in range(20000):
        if condition():
            return
    raise TimeoutError("it did not come about")


def test_a_mark_ends_at_its_time_of_day(subject: Subject) -> None:
    """`run --by`: marked until the guest's clock says so; the command lives on, as it was before. Without an agent: an error."""
    alone = subject.agent.call("--socket", "/none", "run", "--by", "06:00", "--", "true", check=False)
    assert alone.status == 125 and "--by needs the agent" in alone.text
    before = subject.guest.run("date +%s").text.strip()
    subject.guest.run("date -s 05:00:00")
    pid = subject.agent.begin("idletime run --by 06:00 -- sleep 120")
    # Marked by the agent, and by itself just before it becomes the command.
    subject.guest.run(f"until grep -q sleep /proc/{pid}/comm; do usleep 20000; done; ionice -p {pid} | grep -q idle")
    subject.agent.signal("HUP")
    subject.agent.status()
    assert subject.group(pid) == MARKED_GROUP
    subject.guest.run("date -s 06:00:01")
    subject.agent.signal("HUP")
    subject.guest.run(f"while ionice -p {pid} | grep -q idle; do usleep 20000; done")
    assert subject.group(pid) != MARKED_GROUP and subject.agent.status()["marks"]["processes"] == 0
    subject.guest.run(f"date -s @{before}; kill {pid}")


def test_threads_and_children(subject: Subject) -> None:
    """A mark reaches all threads that there are, and the children that come."""
    pid = subject.agent.begin("idleload --device /dev/vda --outstanding 4 --seconds 120")
    wait_for(subject, lambda: len(subject.guest.run(f"ls /proc/{pid}/task").text.split()) == 5)
    result = subject.agent.call("mark", "--pid", str(pid)).text.splitlines()
    assert result[0] == "1 process, 5 threads"
    tasks = subject.guest.run(f"for t in /proc/{pid}/task/*; do ionice -p ${{t##*/}}; done").text.split()
    assert tasks == ["idle"] * 5
    subject.agent.call("unmark", "--pid", str(pid))
    tasks = subject.guest.run(f"for t in /proc/{pid}/task/*; do ionice -p ${{t##*/}}; done").text
    assert "idle" not in tasks and subject.group(pid) == "/"
    subject.agent.end(pid)


def refused(subject: Subject, user: str, *words: str) -> str:
    """The error of a command that must fail with status 1."""
    result = subject.agent.call(*words, user=user, check=False)
    assert result.status == 1, f"{words} as {user}: status {result.status}, {result.text}"
    return result.text.strip()


def test_refusals(subject: Subject) -> None:
    """The kernel says who asks; users demote their own processes, root speaks for the VM, some are never marked."""
    roots, users = subject.agent.begin("sleep 1000"), subject.agent.begin("sleep 1000", "user")
    subject.guest.run("cp /bin/idleload /run/sshd")
    sshd = subject.agent.begin("/run/sshd --device /dev/vda --intensity 1 --quantum-ms 1000 --seconds 600")
    daemon = int(subject.guest.run("cat /run/agent.pid").text)
    for user, words, message in [
        ("user", ("mark", "--pid", str(roots)), f"uid 1000 may not mark pid {roots} of uid 0: only root may mark processes of others"),
        ("other", ("mark", "--pid", str(users)), f"uid 1001 may not mark pid {users} of uid 1000: only root may mark processes of others"),
        ("user", ("mark", "--cgroup", "/a"), "uid 1000 may not mark cgroups and units: only root may"),
        ("user", ("mark", "--unit", "a"), "uid 1000 may not mark cgroups and units: only root may"),
        ("user", ("vm", "background"), "uid 1000 may not ask the host for anything: only root may"),
        ("user", ("queue", "vda", "0", "background"), "uid 1000 may not ask the host for anything: only root may"),
        ("root", ("mark", "--pid", "1"), "pid 1 is the guest's init: it is never marked"),
        ("root", ("mark", "--pid", "2"), "pid 2 (kthreadd) is a thread of the kernel: these are never marked"),
        ("root", ("mark", "--pid", str(daemon)), f"pid {daemon} is the agent itself: it is never marked"),
        ("root", ("mark", "--pid", str(sshd)), f"pid {sshd} (sshd) is sshd: it is never marked, so that you can still log in"),
        ("root", ("mark", "--pid", "4000000"), "there is no process 4000000"),
        ("root", ("mark", "--cgroup", "/gone"), "there is no cgroup /gone below /sys/fs/cgroup"),
        ("root", ("unmark", "--pid", str(roots)), f"pid {roots} is not marked"),
        ("root", ("queue", "vdz", "0", "background"), "there is no device vdz: see /sys/class/block and /sys/class/net"),
        ("root", ("queue", "vda", "3-2", "background"), 'queue list "3-2": the range 3-2 runs backwards'),
    ]:
        assert refused(subject, user, *words) == f"idletime: {message}"
    subject.agent.call("mark", "--pid", str(users), user="user")
    assert "only root may" in refused(subject, "other", "unmark", "--pid", str(users))
    subject.agent.call("unmark", "--pid", str(users), user="user")
    subject.agent.end(roots, users, sshd)


def test_a_user_keeps_its_limits(subject: Subject) -> None:
    """Who asks to be background is not moved out of a limited cgroup; root may do it."""
    pid = subject.agent.begin("sleep 1000", "user")
    subject.guest.run(
        "echo +pids >/sys/fs/cgroup/cgroup.subtree_control; mkdir -p /sys/fs/cgroup/limited;"
        f"echo 50 >/sys/fs/cgroup/limited/pids.max; echo {pid} >/sys/fs/cgroup/limited/cgroup.procs"
    )
    text = subject.agent.call("mark", "--pid", str(pid), user="user").text
    assert "moving it would free it of pids.max of /limited" in text
    assert (subject.group(pid), subject.priority(pid)) == ("/limited", "idle")
    subject.agent.call("mark", "--pid", str(pid))
    assert subject.group(pid) == MARKED_GROUP
    subject.agent.call("unmark", "--pid", str(pid))
    assert (subject.group(pid), subject.priority(pid)) == ("/limited", "none")
    subject.agent.end(pid)
    subject.guest.run("rmdir /sys/fs/cgroup/limited")


def test_cgroup_and_unit(subject: Subject) -> None:
    """All processes of a group, without moving them; the group gives way, and gets back what it had."""
    subject.guest.run("mkdir -p /sys/fs/cgroup/system.slice/backup.service")
    pids = [subject.agent.begin("sleep 1000") for _ in range(2)]
    for pid in pids:
        subject.guest.run(f"echo {pid} >/sys/fs/cgroup/system.slice/backup.service/cgroup.procs")
    subject.guest.run("echo +cpu >/sys/fs/cgroup/system.slice/cgroup.subtree_control")
    for target in (("--unit", "backup.service"), ("--cgroup", "/system.slice/backup.service")):
        assert subject.agent.call("mark", *target).text.splitlines()[0] == "2 processes, 2 threads"
        assert [subject.priority(pid) for pid in pids] == ["idle", "idle"]
        assert subject.guest.run("cat /sys/fs/cgroup/system.slice/backup.service/cpu.idle").text == "1\n"
        subject.agent.call("unmark", *target)
        assert [subject.priority(pid) for pid in pids] == ["none", "none"]
        assert subject.guest.run("cd /sys/fs/cgroup/system.slice/backup.service; cat cpu.idle cpu.weight").text == "0\n100\n"
    subject.agent.end(*pids)
    subject.guest.run("cd /sys/fs/cgroup/system.slice; rmdir backup.service; cd ..; rmdir system.slice")


def test_rules(subject: Subject) -> None:
    """A rule marks what runs and what starts; a bad file changes nothing and is told by line; a reload takes it back."""
    subject.guest.run("mkdir -p /etc/idletime; cp /bin/idleload /run/worker; printf 'rules:\n  - executable: /run/worker\n' >/etc/idletime/rules.yaml")
    pid = subject.agent.begin("/run/worker --device /dev/vda --intensity 1 --quantum-ms 1000 --seconds 600")
    subject.agent.signal("HUP")
    wait_for(subject, lambda: subject.priority(pid) == "idle")
    subject.guest.run("printf 'rules:\n  - executable: /run/worker\n    colour: red\n' >/etc/idletime/rules.yaml")
    subject.agent.signal("HUP")
    wait_for(subject, lambda: subject.agent.status()["rules"]["error"] != "")
    assert subject.agent.status()["rules"]["error"].startswith('/etc/idletime/rules.yaml:3: "colour" is unknown in a rule')
    assert subject.priority(pid) == "idle"
    subject.guest.run("printf 'rules:\n  - name: all\n    user: root\n' >/etc/idletime/rules.yaml")
    subject.agent.signal("HUP")
    wait_for(subject, lambda: subject.agent.status()["rules"]["refused"] != [])
    assert subject.agent.status()["rules"]["refused"][0]["reason"].endswith("pid 1 is the guest's init: it is never marked")
    wait_for(subject, lambda: subject.priority(pid) == "none")
    subject.guest.run("rm /etc/idletime/rules.yaml")
    subject.agent.signal("HUP")
    subject.agent.end(pid)


def test_vm(subject: Subject) -> None:
    """`vm background` makes the device background in QEMU; the host's policy decides, and the guest hears why."""
    result = subject.agent.call("vm", "background", check=False)
    assert result.status == 3 and "nobody answers on the host" in result.text
    with subject.host() as host:
        host.await_state(lambda state: state["request"]["class"] == "background")
        wait_for(subject, lambda: subject.device()["class"] == "background")
        subject.agent.call("vm", "foreground")
        assert subject.device()["class"] == "guest"
        assert subject.agent.call("vm", "background").text == "granted\n"
        assert subject.device()["class"] == "background"
        subject.agent.call("vm", "foreground")
    with subject.host(control="none") as host:
        assert refused(subject, "root", "vm", "background") == (
            "idletime: the host refused: the policy of this VM has guest control='none'")
        assert subject.device()["class"] == "guest"
        assert subject.agent.status()["host"]["policy"]["control"] == "none"
        subject.agent.call("vm", "foreground")


def test_queues(subject: Subject) -> None:
    """Queues of a device by its name in the guest; what QEMU refuses is told in QEMU's words."""
    with subject.host():
        subject.agent.call("queue", "vda", "1", "background")
        assert subject.device()["background-queues"] == "1"
        granted = subject.agent.status()["host"]["policy"]["granted"]["queues"]
        assert [(entry["device"]["serial"], entry["queues"]) for entry in granted] == [(SERIAL, "1")]
        assert "queue 5 does not exist" in refused(subject, "root", "queue", "/dev/vda", "1,5", "background")
        subject.agent.call("queue", "vda", "1", "foreground")
    subject.machine.qmp.execute("idletime-set", device=DEVICE, background_queues="")


def test_the_host_restarts(subject: Subject) -> None:
    """Each new daemon on the host gets the state without being asked for it, and the request is kept."""
    with subject.host() as host:
        subject.agent.call("vm", "background")
        first = host.await_state(lambda state: state["request"]["class"] == "background")
    for _ in range(3):
        with subject.host() as host:
            again = host.await_state(lambda state: state["request"]["class"] == "background")
            assert (again["session"], again["sequence"]) == (first["session"], first["sequence"])
    with subject.host():
        subject.agent.call("vm", "foreground")


def test_the_agent_restarts(subject: Subject) -> None:
    """After SIGKILL the next agent asks for the same, knows the marks, and undoes them."""
    pid = subject.agent.begin("sleep 1000")
    with subject.host() as host:
        subject.agent.call("vm", "background")
        subject.agent.call("mark", "--pid", str(pid))
        old = host.await_state(lambda state: state["request"]["class"] == "background")["session"]
        subject.agent.stop("KILL")
        subject.agent.start()
        host.await_state(lambda state: state["session"] != old and state["request"]["class"] == "background")
        assert subject.agent.status()["marks"]["processes"] == 1
        subject.agent.call("unmark", "--pid", str(pid))
        assert (subject.group(pid), subject.priority(pid)) == ("/", "none")
        # Ended in good order, it takes its request back itself; the next one asks again.
        subject.agent.stop()
        host.await_state(lambda state: state["request"]["class"] == "foreground")
        wait_for(subject, lambda: subject.device()["class"] == "guest")
        assert subject.guest.run("ls -A /run/idletime/marks; [ ! -d /sys/fs/cgroup/idletime.slice ]").text == ""
        assert table_is(subject, "absent")
        subject.agent.start()
        host.await_state(lambda state: state["request"]["class"] == "background")
        subject.agent.call("vm", "foreground")
    subject.agent.end(pid)


def table_is(subject: Subject, what: str, name: str = "idletime") -> bool:
    """Whether an nftables table is "present" or "absent"."""
    wanted = {"present": name, "absent": f"!{name}"}[what]
    return subject.guest.run(f"IDLETIME_TEST_TABLE='{wanted}' dscp.test -test.run TestKernelTable", check=False).status == 0


def test_network_rules_live_with_the_marks(subject: Subject) -> None:
    """The table is there while something is marked, and gone after the first scan without a mark."""
    rest(subject)
    pid = subject.agent.begin("sleep 1000")
    subject.agent.call("mark", "--pid", str(pid))
    assert table_is(subject, "present")
    subject.agent.call("unmark", "--pid", str(pid))
    rest(subject)
    subject.agent.end(pid)


def rest(subject: Subject) -> None:
    """Have the agent scan now, and wait until its network rules are gone."""
    subject.agent.signal("HUP")
    wait_for(subject, lambda: table_is(subject, "absent"))


def test_a_host_that_talks_rubbish(subject: Subject) -> None:
    """Bad lines get an error, cut and endless ones do no harm, and the next good line works."""
    with subject.host() as host:
        host.await_state(lambda state: True)
        for data, code in [
            (b"rubbish\n", "malformed"), (b'{"version":7,"type":"policy"}\n', "version"), (b"a" * 200_000 + b"\n", "too-long"),
        ]:
            # At most one error a second comes, so ask until this one does.
            host.errors.clear()
            while not host.errors or host.errors[-1]["code"] != code:
                host.send_raw(data)
                try:
                    host.await_error(timeout_seconds=1.5)
                except TimeoutError:
                    continue
                else:
                    break
        host.send_raw(b'{"version":1,"type":"poli')
    with subject.host() as host:
        host.await_state(lambda state: True)
        assert subject.agent.call("vm", "background").text == "granted\n"
        subject.agent.call("vm", "foreground")
        assert host.garbage == []


def test_init_script(subject: Subject) -> None:
    """Start, status, reload and stop without systemd, each twice."""
    subject.agent.stop()
    subject.guest.run("mkdir -p /var/log; sed 's,@PREFIX@/sbin,/bin,' /bin/idletime-agent.init >/run/init; chmod +x /run/init")
    for action, status in [("status", 3), ("reload", 1), ("start", 0), ("start", 0), ("status", 0), ("reload", 0), ("restart", 0),
                           ("stop", 0), ("stop", 0), ("status", 3), ("nonsense", 2)]:
        result = subject.guest.run(f"/run/init {action}", check=False)
        assert result.status == status, f"{action}: {result.text}"
    subject.agent.start()


def test_memory(subject: Subject) -> None:
    """After all of the above: less than 20 MiB resident."""
    kib = int(subject.guest.run("sed -n 's/VmRSS:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/$(cat /run/agent.pid)/status").text)
    assert kib < 20 * 1024


def test_packets_are_marked(subject: Subject) -> None:
    """DSCP of datagrams that really were sent, both families, with and without rules."""
    text = subject.guest.run("IDLETIME_TEST_CGROUP=/sys/fs/cgroup dscp.test -test.v -test.run Marks").text
    assert "--- PASS: TestKernelMarksPackets/udp4" in text and "--- PASS: TestKernelMarksPackets/udp6" in text


def test_answers_inherit_the_class(subject: Subject) -> None:
    """A server that marks nothing answers background with background, by the agent's option; who asks inherits nothing."""
    text = subject.guest.run("IDLETIME_TEST_CGROUP=/sys/fs/cgroup dscp.test -test.v -test.run Inherit").text
    for name in "AnswersInherit/udp4", "AnswersInherit/udp6", "WhoAsksInheritsNothing":
        assert f"--- PASS: TestKernel{name}" in text
    assert table_is(subject, "absent", "idletime-inherit")
    subject.agent.stop()
    for end in "TERM", "KILL":
        subject.agent.start("--inherit-dscp")
        assert table_is(subject, "present", "idletime-inherit")
        subject.agent.stop(end)
        assert table_is(subject, "present" if end == "KILL" else "absent", "idletime-inherit")
    subject.agent.start()
    assert table_is(subject, "absent", "idletime-inherit")


MARKS = int(os.environ.get("IDLETIME_MARKS", 300))
"""One takes 10 ms under TCG: IDLETIME_MARKS=10000 is for a run by hand."""


def test_many_marks_leave_nothing(subject: Subject) -> None:
    """Marks and unmarks of a process: its priority, group, our files and descriptors are as before."""
    subject.agent.stop()
    command = f"IDLETIME_TEST_CGROUP=/sys/fs/cgroup IDLETIME_TEST_MARKS={MARKS} marks.test -test.v -test.run Kernel"
    text = subject.guest.run(command, timeout_seconds=60 + MARKS / 10).text
    subject.agent.start()
    assert "--- PASS: TestKernelManyMarksLeaveNothing" in text and "--- PASS: TestKernelChildren" in text

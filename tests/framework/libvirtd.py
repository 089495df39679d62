"""A private libvirtd: its own mounts, processes, network and host name; the machine's own libvirt is not touched.

    folder/run    is /run             sockets, state, arenas
    folder/rules  is /etc/idletime    rules.d, resources.d
    folder/etc    is /etc/libvirt     configuration and hooks
    folder/lib    is /var/lib/libvirt
    folder/cache  is /var/cache/libvirt
    folder/log    is /var/log/libvirt

All processes live in one PID namespace: when its first process is killed, the kernel
ends every QEMU, daemon and hook in it. Two of these are two hosts on one machine.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Sequence

import libvirt

from tests.framework import paths
from tests.framework.process import Process, tail
from tests.framework.qemu import Boot, stock_qemu

START_SECONDS = 60.0
"""libvirtd answers within a second; its first look at a QEMU takes another; the rest is for a busy host."""

POLL_SECONDS = 0.02

MOUNTS = {
    "run": "/run", "etc": "/etc/libvirt", "lib": "/var/lib/libvirt",
    "cache": "/var/cache/libvirt", "log": "/var/log/libvirt",
}

CONFIG = "idletimed.toml"
STAGE, GUEST, STOCK = "/run/stage", "/run/guest", "/run/stock"
"""Where QEMU, the guest's kernel and a QEMU without our changes are seen from inside: places that the user of QEMU may reach."""

# SIGCHLD ignored: the kernel reaps what is orphaned, so that libvirtd sees an ended QEMU as gone.
INIT = """
set -e
folder=$1 name=$2 stage=$3 guest=$4 accel=$5 stock=$6
mkdir -p "$folder/run/stage" "$folder/run/stock" "$folder/run/guest" "$folder/run/channel" "$folder/run/lock"
mount --bind "$stage" "$folder/run/stage"
[ ! -d "$stock" ] || mount --bind "$stock" "$folder/run/stock"
# Our folder need not be in this machine's /etc, and shall not be made there.
mkdir "$folder/over"
mount -t tmpfs over "$folder/over"
mkdir "$folder/over/upper" "$folder/over/work"
mount -t overlay over -o "lowerdir=/etc,upperdir=$folder/over/upper,workdir=$folder/over/work" /etc
mkdir -p /etc/idletime
mount --bind "$guest" "$folder/run/guest"
for pair in run:/run rules:/etc/idletime etc:/etc/libvirt lib:/var/lib/libvirt cache:/var/cache/libvirt log:/var/log/libvirt; do
    mount --rbind "$folder/${pair%%:*}" "${pair#*:}"
done
# A KVM that does not work (see accel.py) can hang the QEMU that libvirt asks for its capabilities.
if [ "$accel" != kvm ] && [ -e /dev/kvm ]; then
    touch "$folder/no-kvm"
    mount --bind "$folder/no-kvm" /dev/kvm
fi
hostname "$name"
ip link set lo up
chown libvirt-qemu: /run/channel
touch /run/ready
exec env --ignore-signal=CHLD sleep infinity
"""


class LibvirtdError(RuntimeError):
    """A private libvirtd did not start or answer; the text holds what it said."""


def quiet_libvirt() -> None:
    """Errors are exceptions here; the library shall not print them as well."""
    libvirt.registerErrorHandler(lambda _context, _error: None, None)


@dataclass
class Inside:
    """A process in the namespaces of a Libvirtd; nsenter is our child, and the program is nsenter's."""

    process: Process
    pid: int

    def running(self) -> bool:
        """Whether the program has not ended yet."""
        return self.process.running()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the program itself; nsenter stops with it, and has to be continued with it."""
        if self.running():
            if number == signal.SIGCONT:
                self.process.kill(number)
            os.kill(self.pid, number)

    def wait(self, timeout_seconds: float = START_SECONDS) -> int:
        """The program's exit status."""
        status = self.process.wait(timeout_seconds)
        self.process.stop()
        return status

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout_seconds: float = START_SECONDS) -> int | None:
        """End the program by a signal and wait until it is gone; its exit status. May be called twice."""
        if self.process.pidfd < 0:
            return None
        self.send(number)
        return self.wait(timeout_seconds)


@dataclass
class Libvirtd:
    """A context manager: enter starts virtlogd and libvirtd, leave ends all that runs inside."""

    boot: Boot
    name: str = "host1"
    user: str = "libvirt-qemu"
    hook: bool = False
    """Whether libvirt finds our hook; it looks for hooks only when it starts."""
    config: str = ""
    """idletimed.toml, for hook and daemon."""
    folder: Path = field(init=False)
    connection: Any = field(init=False, default=None)
    init_pid: int = field(init=False, default=0)

    def start(self) -> Libvirtd:
        """Start; returns when libvirtd answers. On an error nothing is left."""
        self.folder = Path(tempfile.mkdtemp(prefix="idletime-"))
        self.folder.chmod(0o755)
        self._closers: list[Any] = [lambda: shutil.rmtree(self.folder)]
        try:
            self._make_namespaces()
            self.start_virtlogd()
            self.start_libvirtd()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End everything inside, then remove the folder. May be called twice."""
        self.disconnect()
        while self._closers:
            self._closers.pop()()

    def __enter__(self) -> Libvirtd:
        return self.start()

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    # ---- what tests use

    @property
    def run(self) -> Path:
        """The instance's /run, seen from outside."""
        return self.folder / "run"

    @property
    def uri(self) -> str:
        """For connections from outside."""
        return f"qemu+unix:///system?socket={self.run}/libvirt/libvirt-sock"

    @property
    def emulator(self) -> str:
        """The path of the tested QEMU, seen from inside."""
        return f"{STAGE}/bin/{self.boot.qemu.name}"

    @property
    def rules(self) -> Path:
        """The instance's /etc/idletime, seen from outside."""
        return self.folder / "rules"

    @property
    def stock_emulator(self) -> str | None:
        """The path of a QEMU without our changes, seen from inside; None where there is none."""
        path = stock_qemu()
        if path is None or paths.BUILD not in path.parents:
            return path and str(path)
        return f"{STOCK}/bin/{path.name}"

    def inside_argv(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` in the namespaces."""
        target = str(self.init_pid)
        return ["nsenter", "--target", target, "--mount", "--pid", "--net", "--uts", "--ipc", "--wd=/", "--", *argv]

    def call(self, *argv: str, check: bool = True, timeout_seconds: float = 60, **more: Any) -> Any:
        """Run a program inside to its end; the result is that of subprocess.run, with text."""
        result = subprocess.run(
            self.inside_argv(argv), capture_output=True, text=True, timeout=timeout_seconds, **more
        )
        if check and result.returncode != 0:
            raise LibvirtdError(f"{' '.join(argv)}: status {result.returncode}\n{result.stdout}{result.stderr}")
        return result

    def spawn(self, argv: Sequence[str], log: str) -> Inside:
        """Start a program inside; its output goes to folder/log/`log`."""
        process = Process(self.inside_argv(argv), self.folder / "log" / log)
        process.name = Path(argv[0]).name
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        end = time.monotonic() + START_SECONDS
        while process.running() and time.monotonic() < end:
            # nsenter's child, once it has become the program.
            pids = children.read_text().split()
            if pids and Path(f"/proc/{pids[0]}/comm").read_text().strip() not in ("nsenter", "setpriv"):
                return Inside(process, int(pids[0]))
            time.sleep(POLL_SECONDS)
        raise process.error("did not start")

    def start_virtlogd(self) -> None:
        """virtlogd keeps the logs and must outlive libvirtd, as on a host."""
        self.virtlogd = self.spawn(["virtlogd"], "virtlogd.log")
        self._closers.append(self.virtlogd.stop)

    def start_libvirtd(self) -> None:
        """Start libvirtd and connect to it."""
        self.libvirtd = self.spawn(["libvirtd"], "libvirtd.log")
        self._closers.append(lambda: self.libvirtd.stop(signal.SIGKILL))
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                self.connection = libvirt.open(self.uri)
                return
            except libvirt.libvirtError as error:
                if not self.libvirtd.running() or time.monotonic() > end:
                    raise self.libvirtd.process.error(f"does not answer ({error})") from None
                time.sleep(POLL_SECONDS)

    def stop_libvirtd(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End libvirtd; guests go on."""
        self.disconnect()
        self.libvirtd.stop(number)

    def disconnect(self) -> None:
        """Give up our connection."""
        if self.connection is not None:
            try:
                self.connection.close()
            except libvirt.libvirtError:
                pass  # libvirtd may be gone
            self.connection = None

    def log(self) -> str:
        """What libvirtd said last."""
        return tail(self.folder / "log" / "libvirtd.log", 4000)

    # ---- how it is made

    def _make_namespaces(self) -> None:
        missing = [path for path in MOUNTS.values() if not Path(path).is_dir()]
        if missing:
            raise LibvirtdError(f"{', '.join(missing)} not there: is libvirt-daemon-system installed (`make deps`)?")
        self._configure()
        argv = ["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--mount-proc", "--kill-child",
                "sh", "-c", INIT, "init", str(self.folder), self.name,
                str(self.boot.qemu.parents[1].resolve()), str(self._guest_folder()), self.boot.accel,
                str(paths.BUILD / "unpatched" / "stage")]
        self._namespaces = Process(argv, self.folder / "init.log")
        self._closers.append(self._end_namespaces)
        end = time.monotonic() + START_SECONDS
        while not (self.run / "ready").exists():
            if not self._namespaces.running() or time.monotonic() > end:
                raise self._namespaces.error("no namespaces; this needs root")
            time.sleep(POLL_SECONDS)
        pid = self._namespaces.pid
        self.init_pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def _end_namespaces(self) -> None:
        """The first process of a PID namespace takes all others along; --kill-child ends it with unshare."""
        self._namespaces.kill()
        self._namespaces.stop()
        end = time.monotonic() + START_SECONDS
        while self.init_pid and Path(f"/proc/{self.init_pid}").exists():
            if time.monotonic() > end:
                raise LibvirtdError(f"pid {self.init_pid}: the namespaces of {self.name} do not end")
            time.sleep(POLL_SECONDS)

    def _guest_folder(self) -> Path:
        """A folder that holds kernel and initramfs."""
        return Path(os.path.commonpath([self.boot.kernel.resolve(), self.boot.initramfs.resolve()]))

    def guest_path(self, path: Path) -> str:
        """A file of the guest folder as seen from inside."""
        return f"{GUEST}/{path.resolve().relative_to(self._guest_folder())}"

    def _configure(self) -> None:
        for name in (*MOUNTS, "rules"):
            (self.folder / name).mkdir()
        # What the package installs there, without its network and its users' guests.
        for part in ("images", "qemu", "boot"):
            (self.folder / "lib" / part).mkdir()
        shutil.chown(self.folder / "lib" / "qemu", self.user)
        (self.folder / "etc" / "hooks" / "qemu.d").mkdir(parents=True)
        if self.hook:
            self._install_hook()
        (self.folder / "etc" / "libvirtd.conf").write_text(
            f'host_uuid = "{uuid.uuid4()}"\nauth_unix_rw = "none"\nauth_unix_ro = "none"\n'
            'log_outputs = "3:stderr"\nmax_clients = 100\n'
        )
        # No cgroups and no security driver: what the testing machine offers of them differs.
        (self.folder / "etc" / "qemu.conf").write_text(
            f'user = "{self.user}"\ngroup = "{self.user}"\ndynamic_ownership = 1\nremember_owner = 0\n'
            'security_driver = "none"\ncgroup_controllers = []\nnamespaces = []\n'
        )
        (self.folder / "etc" / "virtlogd.conf").write_text('log_outputs = "3:stderr"\n')
        (self.folder / "etc" / "virtlockd.conf").touch()

    def _install_hook(self) -> None:
        hook = self.folder / "etc" / "hooks" / "qemu.d" / "idletime"
        text = (paths.ROOT / "libvirt" / "hook" / "idletime").read_text()
        for name, value in (("@PYTHONDIR@", str(paths.ROOT / "libvirt")), ("@CONFIG@", f"/run/{CONFIG}")):
            text = text.replace(name, value)
        hook.write_text(text)
        (self.run / CONFIG).write_text(self.config)
        hook.chmod(0o755)

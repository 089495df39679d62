"""The real unit on a real systemd, in a guest on Debian's kernel, with the AppArmor profile in force: an initramfs is added to the
agent's, which has this machine's systemd."""

from __future__ import annotations

import gzip
import re
import stat
import subprocess
from pathlib import Path

import pytest

from tests.framework import accel, agent, kernel, modules, paths
from tests.framework.initramfs import Entry, pack
from tests.observer import apparmor, run
from tests.observer.test_unit import UNIT

LIMIT_SECONDS = 400.0
"""Boot, test and end take 40 s under TCG; more on a busy host."""

TESTS = """
b=/usr/bin/busybox d=/run/idletime/.observers
for module in /modules/*; do $b insmod $module; done
$b dd if=/dev/zero of=/tmp/file bs=1M count=16; $b losetup /dev/loop0 /tmp/file
$b mkdir -p $d /run/idletime/sda /run/idletime/eth0; $b chmod 700 $d
$b chown 1000:1000 /run/idletime/sda /run/idletime/eth0; $b chmod 700 /run/idletime/sda /run/idletime/eth0
echo /none >$d/sda.list
echo "OBSERVE=\\"--arena /run/idletime/sda --disk /dev/loop0 --background-cgroups $d/sda.list\\"" >$d/sda.env
echo "OBSERVE=\\"--arena /run/idletime/eth0 --uplink lo --old-kernel\\"" >$d/eth0.env
$b ip link set lo up
cat /profile >/sys/kernel/security/apparmor/.replace
for one in sda eth0; do
    systemctl start idletime-observer@$one.service
    n=0; while [ ! -S /run/idletime/$one/observer ] && [ $n -lt 300 ]; do n=$((n + 1)); sleep 0.2; done
    pid=$(systemctl show --value -p MainPID idletime-observer@$one.service)
    echo "$one: $(cat /proc/$pid/attr/current)"
    while read -r line; do case $line in CapEff*|CapBnd*|NoNewPrivs*|Seccomp:*) echo "$one: $line";; esac; done </proc/$pid/status
done
$b dd if=/dev/loop0 of=/dev/null bs=4k count=64 iflag=direct; $b ping -c 3 127.0.0.1
sleep 1; /show /run/idletime/sda; /show /run/idletime/eth0
systemctl kill -s KILL idletime-observer@sda.service
n=0; while ! /show /run/idletime/sda && [ $n -lt 300 ]; do n=$((n + 1)); sleep 0.2; done
echo "restarts: $(systemctl show --value -p NRestarts idletime-observer@sda.service)"
systemctl stop idletime-observer@sda.service idletime-observer@eth0.service
for one in sda eth0; do
    echo "$one: $(systemctl show --value -p Result idletime-observer@$one.service)"; [ ! -e /run/idletime/$one/observer ] && echo "$one: gone"
    cat $d/$one.log
done
$b dmesg | while read -r line; do case $line in *DENIED*) echo "$line";; esac; done
echo "all said"
"""


def programs(show: Path) -> dict[str, bytes]:
    """Names in the guest, which has one folder /usr/lib: the programs and their libraries."""
    found = {"usr/bin/idletime-observer": run.PROGRAM, "usr/bin/busybox": Path("/bin/busybox"), "show": show}
    text = subprocess.run(["ldd", str(run.PROGRAM)], check=True, capture_output=True, text=True).stdout
    for library in re.findall(r"=> (/\S+) \(0x", text):
        found["usr/lib/" + re.sub(r"^/(usr/)?lib/", "", library)] = Path(library)
    return {name: path.read_bytes() for name, path in found.items()}


@pytest.mark.skipif(bool(apparmor.missing()), reason=str(apparmor.missing()))
def test_the_unit(tmp_path: Path) -> None:
    """It observes in arenas of QEMU's user, a disk and an uplink, is started again when it was killed, ends cleanly."""
    show = tmp_path / "show"
    overlay = paths.ROOT / "qemu-patches" / "overlay"
    subprocess.run(["cc", "-O2", f"-I{overlay}", str(Path(__file__).with_name("show.c")), "-o", str(show)], check=True)
    boot, ours = accel.prepare(), kernel.get_kernel()
    unit = UNIT.read_text().replace("@BINDIR@", "/usr/bin").encode()
    loads = modules.resolve(ours.modules, ["loop", "sch_ingress", "cls_bpf"])
    files = {**programs(show), "profile": apparmor.profile(), "tests": TESTS.encode(), "etc/systemd/system/idletime-observer@.service": unit,
             **{f"modules/{number:02}-{name}": data for number, (name, data) in enumerate(loads)}}
    folders = sorted({str(parent) for name in files for parent in Path(name).parents} - {"."})
    added = pack([*(Entry(name, stat.S_IFDIR | 0o755) for name in folders),
                  *(Entry(name, stat.S_IFREG | 0o755, data) for name, data in files.items())])
    image, serial = tmp_path / "image", tmp_path / "serial"
    image.write_bytes((agent.build("systemd-guest") / "systemd-guest.gz").read_bytes() + gzip.compress(added, 1))
    command = [
        str(boot.qemu), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "q35", "-accel", boot.accel,
        "-cpu", "max", "-m", "1024", "-serial", f"file:{serial}", "-kernel", str(ours.image), "-initrd", str(image),
        "-append", "console=ttyS0 panic=-1 quiet",
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, stdin=subprocess.DEVNULL)
    said = serial.read_text(errors="replace").replace("\r", "")
    assert result.returncode == 0, result.stderr
    assert "all said" in said, said
    for line in ("loop0 in_service 0 started 64 bytes 262144 unpaired 0 healed 0", "restarts: 1", "sda: NoNewPrivs:\t1",
                 "sda: Seccomp:\t2", "sda: CapEff:\t000000000000000b", "eth0: CapEff:\t000000000000100b", "sda: gone", "eth0: gone",
                 "sda: success", "eth0: success", "sda: idletime-observer (enforce)",
                 "eth0: idletime-observer (enforce)"):
        assert line in said, f"{line!r} is not in {said}"
    counted = re.search(r"lo in_service 0 started (\d+)", said)
    assert counted and int(counted.group(1)) > 0, said
    assert "DENIED" not in said

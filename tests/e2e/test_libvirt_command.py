"""virt-idletime on a real libvirtd: domains that run as virt-install would have made them become background and
foreground, and stock again, with nothing but their metadata changed; what is said to whom."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, Callable, Iterator

import libvirt
import pytest
from lxml import etree

from tests.e2e.libvirt_fixtures import domain, host, module_stack, shared_disk  # noqa: F401  (fixtures)
from tests.framework.domain import Domain
from tests.framework.idletimed import PYTHON, Idletimed, virt_idletime, wait_until
from tests.framework.libvirtd import Libvirtd

Make = Callable[..., Domain]

RESOURCES = '[slow]\ninterval-us = 30000\nmatch.path = "*"\n[nbd]\nmatch.host = "*"\n'
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
ETC = Path("/etc/idletime")


@pytest.fixture(scope="module")
def etc(host: Libvirtd) -> Iterator[Path]:  # noqa: F811
    """/etc/idletime of this host only."""
    made = not ETC.exists()
    ETC.mkdir(exist_ok=True)
    folder = host.folder / "idletime"
    (folder / "rules.d").mkdir(parents=True)
    host.call("mount", "--bind", str(folder), str(ETC))
    yield folder
    host.call("umount", str(ETC))
    if made:
        ETC.rmdir()


@pytest.fixture
def idletimed(host: Libvirtd, etc: Path) -> Iterator[Idletimed]:  # noqa: F811
    with Idletimed(host) as daemon:
        yield daemon


def told(host: Libvirtd, *arguments: str) -> Any:  # noqa: F811
    return json.loads(virt_idletime(host, *arguments, "--json"))


def run(host: Libvirtd, *arguments: str, who: list[str] | None = None) -> Any:  # noqa: F811
    return host.call(*(who or []), *PYTHON, "idletime", *arguments, check=False)


def but_metadata(dom: Any) -> str:
    """All that libvirt keeps of a domain, secrets too, without its metadata."""
    flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
    root = etree.fromstring(dom.XMLDesc(flags))
    for metadata in root.findall("metadata"):
        root.remove(metadata)
    return str(etree.tostring(root, method="c14n", with_comments=True))


def plain(make: Make, name: str) -> Domain:
    """A domain that knows nothing of us, booted."""
    result = make(name)
    result.define()
    return result.start().booted()


def test_running_domains_there_and_back(host: Libvirtd, idletimed: Idletimed, domain: Make) -> None:  # noqa: F811
    bg, fg = plain(domain, "bg"), plain(domain, "fg")
    before = [but_metadata(one.dom) for one in (bg, fg)]
    done = run(host, "mark", "b*", "--disk", "vda=slow", "--set", "interval-us=30000", "--dry-run")
    assert done.stdout == "bg: would change no policy of its own to background, now and at each start (vda on slow)\n"
    assert bg.scheduler() == {}
    done = run(host, "mark", "b*", "--disk", "vda=slow", "--set", "interval-us=30000")
    assert (done.returncode, done.stdout) == (0, "bg: background, now and at each start (vda on slow); in force\n"), done.stderr
    assert run(host, "enable", "fg", "--disk", "vda=slow").returncode == 0
    assert [one["class"] for each in (bg, fg) for one in each.scheduler().values()] == ["background", "foreground"]
    assert [but_metadata(one.dom) for one in (bg, fg)] == before
    held_and_explained(host, bg, fg)
    as_nobody(host)
    done = run(host, "unmark", "bg")
    assert (done.returncode, done.stdout) == (
        0, "bg: no policy of its own, now and at each start; so it is not attached; in force\n"), done.stderr
    assert run(host, "disable", "fg").returncode == 0
    assert bg.scheduler() == {} == fg.scheduler()
    assert "urn:idletime:policy" not in bg.dom.XMLDesc(0) + bg.dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    assert [but_metadata(one.dom) for one in (bg, fg)] == before


def held_and_explained(host: Libvirtd, bg: Domain, fg: Domain) -> None:  # noqa: F811
    """While a foreground reads without pause, a background is held, and the foreground is named."""
    assert bg.guest is not None and fg.guest is not None
    fg.guest.load(outstanding=1, seconds=60)
    bg.guest.load(outstanding=4, seconds=60)
    seen: list[Any] = []

    def held_by_foreground() -> bool:
        (one,) = told(host, "explain", "bg")["devices"]
        seen[:] = [one]
        return bool(one["held"] and one["verdict"] in ("foreground", "interval") and one["foreground"])

    wait_until(held_by_foreground, "the background is held")
    assert seen[0]["foreground"][0].startswith("fg/")
    (resource,) = [one for one in told(host, "resources") if one["name"] == "slow"]
    assert (resource["foreground"], resource["background"], resource["domains"]) == (1, 1, ["bg", "fg"])
    (status,) = told(host, "status", "bg")
    assert status["in_force"] is True and status["devices"][0]["background_requests"] is not None


def as_nobody(host: Libvirtd) -> None:  # noqa: F811
    """Whom libvirt lets look only: what idletimed has seen; nothing fails, and nothing can be changed."""
    done = run(host, "-c", "qemu:///system", "status", "bg", "--json", "-r", who=NOBODY)
    assert done.returncode == 0, done.stderr
    (status,) = json.loads(done.stdout)
    assert status["in_force"] is True and status["figures_at"] and status["devices"][0]["class_now"] == "background"
    for command in (["list"], ["explain", "bg"], ["resources"], ["mark", "bg", "-n"]):
        done = run(host, "-c", "qemu:///system", *command, who=NOBODY)
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    done = run(host, "-c", "qemu:///system", "doctor", "-r", who=NOBODY)
    assert done.returncode in (0, 1, 2) and "bg: what its QEMU knows was not asked" in done.stdout


def test_without_idletimed(host: Libvirtd, etc: Path, domain: Make) -> None:  # noqa: F811
    """The policy is written, and it is said that nobody carries it out; when idletimed comes it is in force."""
    late = plain(domain, "late")
    done = run(host, "mark", "late", "--disk", "vda=slow")
    assert done.returncode == 5
    assert "late: written, not in force: idletimed does not run; remedy: systemctl start idletimed" in done.stderr
    done = run(host, "doctor")
    assert done.returncode == 2 and "error: idletimed does not run" in done.stdout
    with Idletimed(host):
        wait_until(lambda: bool(late.scheduler()), "what was marked is attached")
        assert run(host, "mark", "late").stdout == \
            "late: nothing to change: background (vda on slow); in force\n"


def test_all_of_a_host(host: Libvirtd, idletimed: Idletimed, etc: Path, domain: Make) -> None:  # noqa: F811
    """One command makes all that runs foreground, one takes that back; those that have a policy keep it."""
    (etc / "resources.d").mkdir(exist_ok=True)
    (etc / "resources.d" / "10.toml").write_text(RESOURCES)
    one, two = plain(domain, "one"), plain(domain, "two")
    assert run(host, "mark", "two").returncode == 0
    done = run(host, "enable", "--all", "-n")
    assert "write /etc/idletime/rules.d/90-enable-all.toml" in done.stdout and not list((etc / "rules.d").iterdir())
    done = run(host, "enable", "--all")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [[device["class"] for device in each.scheduler().values()] for each in (one, two)] == [["foreground"], ["background"]]
    assert "by the default: no rule fits; /etc/idletime/rules.d/90-enable-all.toml line 3 says so" in \
        virt_idletime(host, "explain", "one")
    assert "one  " in run(host, "list").stdout
    assert run(host, "disable", "--all").returncode == 0
    assert one.scheduler() == {} and two.scheduler()
    (etc / "resources.d" / "10.toml").unlink()


def test_a_qemu_that_hangs(host: Libvirtd, idletimed: Idletimed, domain: Make) -> None:  # noqa: F811
    """It is said, and keeps nobody waiting: of the others all is told."""
    hangs, _well = plain(domain, "hangs"), plain(domain, "well")
    assert run(host, "mark", "hangs", "well", "--disk", "vda=slow").returncode == 0
    os.kill(hangs.pid, signal.SIGSTOP)
    try:
        found = {one["name"]: one for one in told(host, "status")}
        assert any("its QEMU does not answer" in each for each in found["hangs"]["problems"]) and not found["well"]["problems"]
        assert found["well"]["devices"][0]["class_now"] == "background"
        done = run(host, "jobs")
        assert done.returncode == 0 and "of hangs is not known" in done.stderr
        assert "hangs: its QEMU does not answer" in run(host, "doctor").stdout
    finally:
        os.kill(hangs.pid, signal.SIGCONT)
    assert not told(host, "status", "hangs")[0]["problems"]


def test_doctor(host: Libvirtd, idletimed: Idletimed, domain: Make) -> None:  # noqa: F811
    """On a host where all is as it should be but for its /run, which is not on tmpfs everywhere; then with a fault."""
    well = plain(domain, "well")
    assert run(host, "mark", "well", "--disk", "vda=slow").returncode == 0
    done = run(host, "doctor", "--json")
    found = [one for one in json.loads(done.stdout)["found"] if one["severity"] != "note"]
    assert {one["check"] for one in found} <= {"run-dir"} and done.returncode == bool(found), done.stdout
    os.chmod(host.run / "idletime", 0o755)
    try:
        done = run(host, "doctor")
        assert done.returncode == 1 and "0755 lets everybody open it" in done.stdout
    finally:
        os.chmod(host.run / "idletime", 0o711)
    assert well.scheduler()

"""virt-idletime on a real libvirtd: what it says about requests that are held, and domains that it has not started."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

from tests.e2e.libvirt_fixtures import (  # noqa: F401  (fixtures)
    background, domain, foreground, host, module_stack, shared_disk,
)
from tests.framework import paths
from tests.framework.domain import Domain
from tests.framework.idletimed import virt_idletime, wait_until
from tests.framework.libvirtd import Libvirtd

Make = Callable[..., Domain]


def applied(host: Libvirtd, make: Make, name: str, its_policy: str) -> Domain:
    """Define, apply, start, boot: no idletimed, no hook's help."""
    result = make(name, its_policy)
    result.define()
    virt_idletime(host, "apply", name)
    return result.start().booted()


def told(host: Libvirtd, *arguments: str) -> Any:
    return json.loads(virt_idletime(host, *arguments, "--json"))


def test_explain(host: Libvirtd, domain: Make) -> None:
    """While a foreground reads without pause, a background is held, and the foreground is named."""
    bg, fg = applied(host, domain, "bg", background()), applied(host, domain, "fg", foreground())
    assert bg.guest is not None and fg.guest is not None
    fg.guest.load(outstanding=1, seconds=60)
    bg.guest.load(outstanding=4, seconds=60)
    seen: list[Any] = []

    def held_by_foreground() -> bool:
        (one,) = told(host, "explain", "bg")["devices"]
        seen[:] = [one]
        return one["held"] and one["verdict"] in ("foreground", "interval") and one["foreground"]

    wait_until(held_by_foreground, "the background is held")
    assert seen[0]["foreground"][0].startswith("fg/")
    assert "nothing of it is ever held" in virt_idletime(host, "explain", "fg")
    (resource,) = [one for one in told(host, "resources") if one["name"] == "slow"]
    assert (resource["foreground"], resource["background"], resource["domains"]) == (1, 1, ["bg", "fg"])
    (status,) = told(host, "status", "bg")
    assert status["in_force"] is True
    assert status["devices"][0]["background_requests"] is not None


def test_a_domain_that_runs_without_a_resource(host: Libvirtd, domain: Make, tmp_path: Path) -> None:
    """It cannot get one live: said, with exit status 5; after the next start it is in force."""
    late = domain("late")
    late.define()
    late.start().booted()
    done = host.call("env", "PYTHONPATH=" + str(paths.ROOT / "libvirt"), "/usr/bin/python3", "-m", "idletime", "set",
                     "late", "--disk", "vda", "resource=slow", check=False)
    assert done.returncode == 3  # no policy to change
    (tmp_path / "late.xml").write_text(background())
    done = host.call("env", "PYTHONPATH=" + str(paths.ROOT / "libvirt"), "/usr/bin/python3", "-m", "idletime", "apply",
                     "late", "--policy", str(tmp_path / "late.xml"), check=False)
    assert (done.returncode, "restart the domain" in done.stderr) == (5, True), done.stderr
    assert told(host, "status", "late")[0]["in_force"] is False
    late.detach()
    late.dom.destroy()
    late.start().booted()
    assert told(host, "status", "late")[0]["in_force"] is True


def test_golden_domains_pass_through_libvirt(host: Libvirtd) -> None:
    """All domains of libvirt/tests: compiled and undone, through libvirt's own parser and writer."""
    done = subprocess.run([sys.executable, paths.ROOT / "libvirt/tests/roundtrip.py", host.uri, host.emulator],
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

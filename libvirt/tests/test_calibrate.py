# SPDX-License-Identifier: GPL-2.0-or-later
"""What of a host's disks is nobody's work: from looks that are played, and by the command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from idletime import calibrate, domains
from idletime.cli.main import main
from idletime.hostd import usage
from idletime.hostd.usage import Access, Usage
from idletime.police.facts import Cpus, Reading

DISK = "disk sda"
STEP = 0.25


def looks(nobodys: Sequence[int], vm: int = 5, unsure: int = 0) -> list[Usage]:
    """One a quarter of a second: what nobody did meanwhile, and a VM beside it; what came while libvirt was asked."""
    found, whole, own = [], 1000, 10
    for number, count in enumerate((0, *nobodys)):
        whole, own = whole + count + vm, own + vm
        reading = Reading(number * STEP, Cpus(2, float(number), float(number)), {"a": 0.0}, {DISK: whole}, {DISK: {"a": own}})
        found.append(Usage({}, reading, {DISK: unsure}))
    return found


def noise(nobodys: Sequence[int], **more: int) -> calibrate.Noise | None:
    return calibrate.noise(DISK, calibrate.rests(looks(nobodys, **more)).get(DISK, []))


def test_a_steady_rest() -> None:
    """Eight a second, whatever the VM does."""
    for vm in (0, 500):
        found = noise([2] * 200, vm=vm)
        assert found is not None and (found.mean, found.quiet, found.most) == pytest.approx((8, 8, 8))
        assert calibrate.quiet_per_second([found]) == 8


def test_one_burst_in_a_minute_is_no_rule() -> None:
    """Five windows of 236 have it: more than one in a hundred, so it is one; of 2,396 they are not."""
    burst = [*[1] * 120, 50, *[1] * 119]
    found = noise(burst)
    assert found is not None and found.most == pytest.approx(54 / 1.25) and found.quiet == found.most
    found = noise(burst + [1] * 2160)
    assert found is not None and found.quiet == pytest.approx(4) and found.most == pytest.approx(54 / 1.25)


def test_what_may_have_been_a_vms_does_not_count() -> None:
    found = noise([2] * 200, unsure=1)
    assert found is not None and found.mean == 0


def test_too_little() -> None:
    assert noise([2] * 10) is None and calibrate.quiet_per_second([]) == 0


def test_a_look_that_came_to_nothing() -> None:
    some = looks([2] * 100)
    some[50] = Usage({}, None)
    assert len(calibrate.rests(some)[DISK]) == 98


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Access, ...]]:
    """One VM; nobody does 20 accesses a second beside it."""
    there = {"a": (Access("disk", "vda", host=("sda",)),)}
    played = iter(looks([5] * 100))
    monkeypatch.setattr(domains, "connect", lambda *_args, **_more: object())
    monkeypatch.setattr(calibrate, "shared", lambda *_: there)
    monkeypatch.setattr(usage, "look", lambda *_: next(played))
    monkeypatch.setattr(calibrate, "LOOK_SECONDS", STEP)
    monkeypatch.setattr("time.sleep", lambda _: None)
    return there


def run(tmp_path: Path, *words: str) -> int:
    return main(["--settings", str(tmp_path / "none.toml"), "calibrate", "--seconds", "10", *words])


def test_the_command_says_what_to_write(host: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path) == 0
    said = capsys.readouterr().out
    assert "disk sda" in said and "quiet-per-second = 4 is in force" in said and "\nquiet-per-second = 20\n" in said
    (tmp_path / "none.toml").write_text("[suspend]\nquiet-per-second = 25\n")


def test_as_json_and_where_it_is_enough(host: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none.toml").write_text("[suspend]\nquiet-per-second = 25\n")
    assert run(tmp_path, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["quiet_per_second"], said["in_force"], said["devices"][0]["device"]) == (20, 25, "disk sda")


def test_a_host_without_such_a_vm(host: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host.clear()
    assert run(tmp_path) == 1 and "no running VM has a disk" in capsys.readouterr().err

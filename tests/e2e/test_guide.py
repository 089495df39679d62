"""docs/guide.md, command by command, on a libvirtd with idletimed and three VMs that boot real guests; and what it says has happened."""

from __future__ import annotations

import json
import os
import stat
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Callable, Iterator

import pytest

from tests.e2e.libvirt_fixtures import host, module_stack  # noqa: F401  (fixtures)
from tests.framework import guide, paths
from tests.framework.domain import Domain
from tests.framework.guide import Command, File
from tests.framework.idletimed import PYTHON, Idletimed, wait_until
from tests.framework.libvirtd import Libvirtd

GUIDE = paths.ROOT / "docs" / "guide.md"
FOREVER_SECONDS = 3600
NAMES = ("web", "ci-runner-1", "ci-runner-2")
STOCK = "stock"
BIN = "/run/bin"


def _image(host: Libvirtd, name: str) -> str:  # noqa: F811
    """A disk in a file where libvirt keeps images: its resource is found out."""
    with (host.folder / "lib" / "images" / f"{name}.img").open("wb") as file:
        file.truncate(16 << 20)
    return ("<disk type='file' device='disk'><driver name='qemu' type='raw' cache='none'/>"
            f"<source file='/var/lib/libvirt/images/{name}.img'/><target dev='vda' bus='virtio'/></disk>")


def _programs(host: Libvirtd) -> None:  # noqa: F811
    """virt-idletime, as a user calls it."""
    program = host.run / "bin" / "virt-idletime"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec {' '.join(PYTHON)} idletime \"$@\"\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


@pytest.fixture(scope="module")
def vms(module_stack: ExitStack, host: Libvirtd) -> Iterator[dict[str, Domain]]:  # noqa: F811
    """Three VMs that run before idletimed does."""
    for folder in ("rules.d", "resources.d"):
        (host.rules / folder).mkdir(exist_ok=True)
    _programs(host)
    made = {name: Domain(host, name, "", [_image(host, name)]) for name in NAMES}
    for each in made.values():
        each.define()
        each.start().booted()
    module_stack.enter_context(Idletimed(host))
    yield made
    for each in made.values():
        each.detach()


def _class(vm: Domain) -> str:
    """What QEMU does with its disk."""
    return next((state["class"] for state in vm.scheduler().values()), STOCK)


Expected = dict[str, str]

AFTER: dict[str, Expected] = {
    "virt-idletime enable --all": dict.fromkeys(NAMES, "foreground"),
    "virt-idletime mark --dry-run 'ci-*'": dict.fromkeys(NAMES, "foreground"),
    "virt-idletime mark 'ci-*'": {"web": "foreground", "ci-runner-1": "background", "ci-runner-2": "background"},
    "virt-idletime unmark ci-runner-2": {"web": "foreground", "ci-runner-1": "background", "ci-runner-2": "foreground"},
    "virt-idletime mark --class guest ci-runner-2": {"ci-runner-2": "guest"},
    "virt-idletime disable --all": dict.fromkeys(NAMES, STOCK),
}
"""The classes that QEMU has after a command of the page."""

AFTER_FILE: dict[str, Expected] = {"/etc/idletime/rules.d/50-ci.toml": {"web": "foreground", "ci-runner-1": "background", "ci-runner-2": "background"}}

REMOVE_ARENA = "rm -r /run/idletime/sda"

PRINTS: dict[str, Callable[[str], bool]] = {
    "virt-idletime status": lambda text: "ci-runner-1" in text or "disable" in text,
    "virt-idletime explain ci-runner-1": lambda text: text.startswith("ci-runner-1: background, by its own policy"),
}


def _expect(vms: dict[str, Domain], expected: Expected, after: str) -> None:
    wait_until(lambda: all(_class(vms[name]) == device_class for name, device_class in expected.items()),
               f"after {after}: {expected}, not { {name: _class(vm) for name, vm in vms.items()} }")


def _run(host: Libvirtd, step: Command) -> str:  # noqa: F811
    done = host.call("sh", "-c", f"PATH={BIN}:$PATH; {step.text}", check=False)
    assert done.returncode in step.statuses, f"{GUIDE.name}, {step.line}: {step.text}\nended with {done.returncode}\n{done.stdout}{done.stderr}"
    return str(done.stdout)


def _arena(host: Libvirtd) -> Path:  # noqa: F811
    """Of the disk that all have: the page calls it sda."""
    (resource,) = json.loads(_run(host, Command("", "virt-idletime resources --json")))
    return host.run / "idletime" / resource["name"]


def _lose_arena(host: Libvirtd) -> Path:  # noqa: F811
    """Damage it, while both read; `status` says that it is lost."""
    arena = _arena(host)
    os.truncate(arena / "foreground", 0)
    wait_until(lambda: "lost" in _run(host, Command("", "virt-idletime status ci-runner-1")).split(), "status says lost")
    return arena


def _participants(host: Libvirtd) -> tuple[int, int]:  # noqa: F811
    (resource,) = json.loads(_run(host, Command("", "virt-idletime resources --json")))
    return resource["foreground"], resource["background"]


def _await_arena(host: Libvirtd, arena: Path, expected: tuple[int, int]) -> None:  # noqa: F811
    """All have moved to a new arena. On the background board is there who is background now; before, who ever was."""
    seen: list[tuple[int, int]] = []

    def all_there() -> bool:
        seen[:] = [_participants(host)]
        foreground, background = seen[0]
        return foreground == expected[0] and bool(background)

    try:
        wait_until(all_there, "participants in a new arena")
    except AssertionError:
        raise AssertionError(f"{expected} participants were there, {seen} are: {list(arena.glob('*'))}") from None


def _write(host: Libvirtd, file: File) -> None:  # noqa: F811
    (host.rules / Path(file.path).relative_to("/etc/idletime")).write_text(file.text)


def test_the_guide(host: Libvirtd, vms: dict[str, Domain]) -> None:  # noqa: F811
    """From a host of running VMs to one without Idletime."""
    done: list[str] = []
    for vm in vms.values():
        assert vm.guest is not None
        vm.guest.load(intensity=10, outstanding=1, seconds=FOREVER_SECONDS)
    for step in guide.steps(GUIDE.read_text()):
        if isinstance(step, File):
            _write(host, step)
            _expect(vms, AFTER_FILE.get(step.path, {}), step.path)
            done.append(step.path)
            continue
        if step.text == REMOVE_ARENA:
            before, arena = _participants(host), _lose_arena(host)
            step = replace(step, text=f"rm -r /run/idletime/{arena.name}")
            done.append(REMOVE_ARENA)
        text = _run(host, step)
        if done[-1:] == [REMOVE_ARENA]:
            _await_arena(host, arena, before)
        done.append(step.text)
        _expect(vms, AFTER.get(step.text, {}), step.text)
        if step.text in PRINTS and "virt-idletime disable --all" not in done:
            assert PRINTS[step.text](text), text
    assert {*AFTER, *AFTER_FILE, *PRINTS, REMOVE_ARENA} <= set(done)


def test_the_readme_shows_what_status_prints(host: Libvirtd, vms: dict[str, Domain]) -> None:  # noqa: F811
    """The columns of the sample are those that are printed."""
    _run(host, Command("", "virt-idletime mark ci-runner-1"))
    head = _run(host, Command("", "virt-idletime status")).splitlines()[0].split()
    shown = [line.split() for line in (paths.ROOT / "README.md").read_text().splitlines()]
    assert head in shown


PAGE = """
```sh
one
  # no command
```

Text.

1. In a list:

   <!-- may end with 3 -->
   ```sh
   two --three
   ```

<!-- not run: dangerous -->
```sh
four
```

```toml
# /etc/idletime/rules.d/a.toml
x = 1
```

```toml
x = 2
```

```text
five
```
"""


def test_the_extractor() -> None:
    """Commands with their statuses, files; what is not run, or is no command, is left out."""
    assert guide.steps(PAGE) == [
        Command("line 3", "one"), Command("line 13", "two --three", frozenset({0, 3})),
        File("/etc/idletime/rules.d/a.toml", "# /etc/idletime/rules.d/a.toml\nx = 1\n"),
    ]

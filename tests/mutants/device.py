"""The device code: one object compiled and linked into a QEMU of its own, which the machine tests run.

The build tree of `make qemu` is read, never written, except for the test programs, which tests/machine/run builds too.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from tests.framework import paths
from tests.mutants import confine
from tests.mutants.trial import MACHINE, SetupError, Trial, digest, fingerprint, measured

OVERLAY = paths.ROOT / "qemu-patches" / "overlay"
QEMU = paths.BUILD / "qemu"
OBJ = QEMU / "obj"
FOLDER = paths.BUILD / "mutants" / "device"
PATTERNS = ("idletime/gate/*.c", "idletime/resource/*.c", "idletime/device/*.c", "idletime/hold/*.c", "idletime/work/*.c", "idletime/monitor/*.c",
            "hw/block/virtio-blk-idletime*.c", "hw/scsi/scsi-idletime*.c", "hw/net/virtio-net-idletime*.c", "net/idletime-*.c")
PROGRAM = "qemu-system-x86_64"
SCSI = "scsi"
KINDS = {"net": "net-", "scsi": SCSI, "block": ""}
"""Folders of devices, and how the names of their tests begin."""
BOTH = paths.ROOT / "tests" / "machine" / "both"
"""Tests that run with disks of virtio-scsi, too, as tests/machine/run does it."""
# Output, dependencies and debug information are ours; each may have a word after it.
_WORDS_LEFT_OUT = {"-MD": 0, "-MQ": 1, "-MF": 1, "-o": 1, "-c": 1, "-g": 0, "ccache": 0}


class Device:
    """The machine tests (qtest) on a QEMU with the mutant in it."""

    folder = FOLDER
    fingerprint = ""

    def __init__(self) -> None:
        self._all: list[Trial] = []

    def files(self) -> list[str]:
        return [str(path.relative_to(OVERLAY)) for pattern in PATTERNS for path in sorted(OVERLAY.glob(pattern))]

    def prepare(self) -> None:
        if not (OBJ / "build.ninja").exists() or not paths.STAGED_QEMU.exists():
            raise SetupError("QEMU is not built: run 'make qemu' first")
        for file in (path for path in OVERLAY.rglob("*") if path.is_file()):
            there = QEMU / "src" / file.relative_to(OVERLAY)
            if not there.exists() or there.read_bytes() != file.read_bytes():
                raise SetupError(f"the built QEMU is not that of {file.relative_to(paths.ROOT)}: run 'make qemu' first")
        names = [path.name for path in sorted((OVERLAY / "tests" / "qtest").glob("idletime-*-test.c"))]
        programs = [OBJ / "tests" / "qtest" / name.removesuffix(".c") for name in names]
        env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
        env |= {"CCACHE_BASEDIR": str(paths.ROOT), "CCACHE_NOHASHDIR": "1"}
        built = subprocess.run(["ninja", "-C", str(OBJ), *(str(p.relative_to(OBJ)) for p in programs)],
                               capture_output=True, text=True, env=env)
        if built.returncode != 0:
            raise SetupError(f"the machine tests do not build:\n{built.stdout[-2000:]}")
        env = self._base_env()
        trials = [Trial(MACHINE, self._name(p), (str(p), "--tap"), digest(p, paths.STAGED_QEMU), env) for p in programs]
        both = BOTH.read_text().split()
        trials += [replace(one, name=f"{SCSI}:{one.name}", env={**env, "IDLETIME_DISK": SCSI}) for one in trials if one.name in both]
        self._all = measured(trials, FOLDER / "baseline.json", self._without_mutant)
        self.fingerprint = fingerprint(trials)

    @staticmethod
    def _name(program: Path) -> str:
        return program.name.removeprefix("idletime-").removesuffix("-test")

    @staticmethod
    def _base_env() -> dict[str, str]:
        env = {"QTEST_QEMU_IMG": str(paths.STAGED_IMG), "IDLETIME_RACE_SEED": "1"}
        stock = paths.BUILD / "unpatched" / "stage" / "bin" / PROGRAM
        return env | ({"IDLETIME_QEMU_UNPATCHED": str(stock)} if stock.exists() else {})

    @staticmethod
    def _without_mutant(trial: Trial) -> confine.Result:
        return confine.run(trial.argv, FOLDER, 600, {**trial.env, "QTEST_QEMU_BINARY": str(paths.STAGED_QEMU)})

    @cached_property
    def _commands(self) -> dict[str, tuple[list[str], str]]:
        """By file: how it is compiled, and its object below OBJ."""
        found = {}
        for entry in json.loads((OBJ / "compile_commands.json").read_text()):
            words, kept = iter(shlex.split(entry["command"])), []
            for word in words:
                if word in _WORDS_LEFT_OUT:
                    for _ in range(_WORDS_LEFT_OUT[word]):
                        next(words)
                else:
                    kept.append(word)
            found[entry["file"].removeprefix("../src/")] = (kept, entry["output"])
        return found

    @cached_property
    def _link_command(self) -> list[str]:
        argv = ["ninja", "-C", str(OBJ), "-t", "compdb", "-x", "c_LINKER_RSP"]
        text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        text = text[text.index("["):]
        command = next(entry["command"] for entry in json.loads(text) if entry["output"] == PROGRAM)
        words = shlex.split(command)
        at = words.index("-o")
        # The fast linker where there is one; without debug information it takes a second.
        fast = ["-fuse-ld=gold"] if shutil.which("ld.gold") else []
        return [*words[:at], *words[at + 2:], "-Wl,-s", *fast]

    def compile(self, file: str, text: str, target: Path) -> bool:
        command, _ = self._commands[file]
        # The file's own folder: that of the tree, which has trace.h as well.
        folder = (QEMU / "src" / file).parent
        argv = [*command, "-w", "-Werror=implicit-function-declaration", "-x", "c", "-iquote", str(folder), "-c",
                "-o", str(target), "-"]
        return subprocess.run(argv, input=text.encode(), cwd=OBJ, capture_output=True).returncode == 0

    def link(self, file: str, text: str, place: Path, stage: str) -> bool:
        stage_folder = place / "stage"
        (stage_folder / "bin").mkdir(parents=True)
        # QEMU looks for its firmware relative to its program.
        (stage_folder / "share").symlink_to(paths.STAGED_QEMU.parents[1] / "share")
        if not self.compile(file, text, place / "mutant.o"):
            return False
        _, replaced = self._commands[file]
        words = [str(place / "mutant.o") if word == replaced else word for word in self._link_command]
        argv = [*words, "-o", str(stage_folder / "bin" / PROGRAM)]
        return subprocess.run(argv, cwd=OBJ, capture_output=True).returncode == 0

    def env(self, place: Path, stage: str) -> dict[str, str]:
        return {"QTEST_QEMU_BINARY": str(place / "stage" / "bin" / PROGRAM)}

    def trials(self, file: str) -> list[Trial]:
        """Code of one kind of device is not reached by the tests of another; the rest is by all."""
        kind = Path(file).parent.name
        able = [t for t in self._all if kind not in KINDS or self._kind(t) == kind]
        return sorted(able, key=lambda t: (not self._is_named_after(t, file), t.seconds))

    @staticmethod
    def _kind(trial: Trial) -> str:
        return next((kind for kind, prefix in KINDS.items() if trial.name.startswith(prefix)), "block")

    @staticmethod
    def _is_named_after(trial: Trial, file: str) -> bool:
        return any(word in Path(file).stem.split("-") for word in trial.name.split("-") if word != "net")

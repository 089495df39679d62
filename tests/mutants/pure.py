"""The pure rooms: their objects in one shared library, so that a mutant costs one compilation and one link."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from tests.framework import paths
from tests.mutants import confine
from tests.mutants.trial import GOLDEN, SANITIZED, UNIT, SetupError, Trial, digest, fingerprint, measured

ROOMS = ("core", "arena", "learner", "packet", "uplink")
OVERLAY = paths.ROOT / "qemu-patches" / "overlay"
FOLDER = paths.BUILD / "mutants" / "pure"
SIMULATOR = FOLDER / "sim" / "shared" / "idletime-sim"
FLAVOUR = {UNIT: "plain", SANITIZED: "sanitized", GOLDEN: "plain"}
# The same random numbers in each run; a sanitizer's finding ends the program.
ENV = {"IDLETIME_SEED": "1", "ASAN_OPTIONS": "hard_rss_limit_mb=2000:detect_leaks=1"}


def _make(room: str, *words: str) -> str:
    fragment = {"unit": "unit.mk", "sim": "sim.mk"}[room]
    build = FOLDER if room == "unit" else FOLDER / "sim"
    argv = ["make", "-s", "-C", str(paths.ROOT / "tests" / room), "-f", f"../mutants/{fragment}", f"BUILD={build}",
            f"ROOMS_LIBRARY={FOLDER}/plain", *words]
    result = subprocess.run(argv, capture_output=True, text=True)
    if result.returncode != 0:
        raise SetupError(f"the tests do not build: {shlex.join(argv)}\n{result.stderr[-2000:]}")
    return result.stdout.strip()


def _symbols(path: Path, *options: str) -> set[str]:
    text = subprocess.run(["nm", "-P", "--extern-only", *options, str(path)], capture_output=True, text=True, check=True).stdout
    return {line.split()[0].split("@")[0] for line in text.splitlines() if line}


class Pure:
    """The unit tests, plain and with sanitizers, and the simulator's golden files."""

    folder = FOLDER
    fingerprint = ""

    def __init__(self) -> None:
        self._command: dict[str, list[str]] = {}
        self._all: list[Trial] = []
        self._reach: dict[str, set[str]] = {}

    def files(self) -> list[str]:
        return [str(path.relative_to(OVERLAY)) for room in ROOMS for path in sorted((OVERLAY / "idletime" / room).glob("*.c"))]

    def prepare(self) -> None:
        _make("unit", "-j2", "shared")
        _make("sim", "shared")
        for flavour in ("plain", "sanitized"):
            self._command[flavour] = shlex.split(_make("unit", f"say-compile-{flavour}"))
        programs = _make("unit", "say-programs").split()
        cases = [line.split(maxsplit=1) for line in _make("sim", "say-cases").splitlines()]
        trials = [self._program(stage, name) for stage in (UNIT, SANITIZED) for name in programs]
        trials += [self._case(name, "".join(options)) for name, *options in cases]
        self._all = measured(trials, FOLDER / "baseline.json", self._without_mutant)
        self.fingerprint = fingerprint(trials)
        self._reach = self._reaches()

    @staticmethod
    def _program(stage: str, name: str) -> Trial:
        folder = FOLDER / FLAVOUR[stage]
        program = folder / "shared" / name
        return Trial(stage, name, (str(program), "--tap"), digest(program, folder / "librooms.so"), ENV)

    @staticmethod
    def _case(name: str, options: str) -> Trial:
        golden = paths.ROOT / "tests" / "sim" / "golden" / f"{name}.txt"
        version = digest(SIMULATOR, FOLDER / "plain" / "librooms.so", golden)
        return Trial(GOLDEN, name, (str(SIMULATOR), *shlex.split(options)), version, ENV, golden)

    def _without_mutant(self, trial: Trial) -> confine.Result:
        env = {**trial.env, "LD_LIBRARY_PATH": str(FOLDER / FLAVOUR[trial.stage])}
        return confine.run(trial.argv, FOLDER, 600, env, trial.stage == SANITIZED)

    def compile(self, file: str, text: str, target: Path) -> bool:
        return self._compile(file, text, target, "plain")

    def _compile(self, file: str, text: str, target: Path, flavour: str) -> bool:
        # From standard input: equal code gives equal objects, whatever the file's name.
        argv = [*self._command[flavour], "-x", "c", "-iquote", str((OVERLAY / file).parent), "-c", "-o", str(target), "-"]
        return subprocess.run(argv, input=text.encode(), cwd=paths.ROOT / "tests" / "unit", capture_output=True).returncode == 0

    def link(self, file: str, text: str, place: Path, stage: str) -> bool:
        flavour = FLAVOUR[stage]
        folder = place / flavour
        if (folder / "librooms.so").exists():
            return True
        folder.mkdir(parents=True, exist_ok=True)
        if not self._compile(file, text, folder / "mutant.o", flavour):
            return False
        objects = [str(folder / "mutant.o" if path == self._object(file, flavour) else path)
                   for path in (self._object(other, flavour) for other in self.files())]
        argv = [*self._command[flavour], "-shared", "-Wl,-Bsymbolic", "-o", str(folder / "librooms.so"), *objects]
        return subprocess.run(argv, cwd=paths.ROOT / "tests" / "unit", capture_output=True).returncode == 0

    @staticmethod
    def _object(file: str, flavour: str) -> Path:
        return FOLDER / flavour / "rooms" / Path(file).relative_to("idletime").with_suffix(".o")

    def env(self, place: Path, stage: str) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": str(place / FLAVOUR[stage])}

    def trials(self, file: str) -> list[Trial]:
        return sorted((t for t in self._all if file in self._reach[t.argv[0]]),
                      key=lambda t: (not self._is_named_after(t, file), t.seconds))

    @staticmethod
    def _is_named_after(trial: Trial, file: str) -> bool:
        path = Path(file)
        return any(word in trial.name for word in (path.stem, path.parent.name))

    def _reaches(self) -> dict[str, set[str]]:
        """By program: the files whose code it can reach, from its undefined symbols through those of the objects."""
        objects = {file: self._object(file, "plain") for file in self.files()}
        homes = {name: file for file, path in objects.items() for name in _symbols(path, "--defined-only")}
        needs = {file: {homes[name] for name in _symbols(path, "--undefined-only") if name in homes}
                 for file, path in objects.items()}
        result = {}
        for program in {trial.argv[0] for trial in self._all}:
            found: set[str] = set()
            new = {homes[name] for name in _symbols(Path(program), "--dynamic", "--undefined-only") if name in homes}
            while new:
                found |= new
                new = set().union(*(needs[file] for file in new)) - found
            result[program] = found
        return result

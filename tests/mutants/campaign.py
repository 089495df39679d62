"""A run: choose mutants, sort out what is none, judge the others on all processors."""

from __future__ import annotations

import queue
import random
import shutil
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Iterator, Sequence

from tests.framework import paths
from tests.mutants import confine, record
from tests.mutants.record import EQUIVALENT, GOLDEN, INVALID, JUDGED, KILLED, SURVIVED, VALID, Record
from tests.mutants.source import Mutant, flatten, mutants_of, mutated
from tests.mutants.trial import GOLDEN as GOLDEN_STAGE, SANITIZED, STAGES, Bench, SetupError, Trial, digest

OVERLAY = paths.ROOT / "qemu-patches" / "overlay"


def clock(seconds: float) -> str:
    """Minutes and seconds, e.g. 4:05."""
    return f"{round(seconds) // 60}:{round(seconds) % 60:02d}"


class Campaign:
    """The mutants of some files, a sample of them or all; `result` has what was found."""

    def __init__(self, bench: Bench, files: Sequence[str], sample: int | None, seed: int, jobs: int) -> None:
        self.bench, self.files, self.sample, self.seed, self.jobs = bench, list(files), sample, seed, jobs
        self.text = {file: (OVERLAY / file).read_text() for file in files}
        self.result: dict[Mutant, Record] = {}
        """Of the mutants that count."""
        self.left_out: Counter[str] = Counter()
        self.ended_early = False
        self._code: dict[str, str] = {}
        self._kills: Counter[tuple[str, str, str]] = Counter()
        self._work = bench.folder / "work"
        self._places: queue.SimpleQueue[Path] = queue.SimpleQueue()

    def run(self) -> None:
        """All of it. May be interrupted and begun again."""
        shutil.rmtree(self._work, ignore_errors=True)
        for number in range(self.jobs):
            self._places.put(self._work / str(number))
        self._pool = ThreadPoolExecutor(self.jobs)
        try:
            self._choose()
            self._judge_all()
        except KeyboardInterrupt:
            self.ended_early = True
        finally:
            self._pool.shutdown(cancel_futures=True)
            shutil.rmtree(self._work, ignore_errors=True)

    # ---- which mutants count

    def _candidates(self) -> list[Mutant]:
        found = [mutant for file in self.files for mutant in mutants_of(file, self.text[file])]
        if self.sample is not None:
            random.Random(self.seed).shuffle(found)
        return found

    def _choose(self) -> None:
        """Compile in order until the sample is full; what is not new code does not count."""
        for file in self.files:
            self._code[file] = self._object("\n".join(flatten(self.text[file])), file)
        candidates = self._candidates()
        wanted = len(candidates) if self.sample is None else self.sample
        seen: set[tuple[str, str]] = set()
        last = time.monotonic()
        for mutant, known in self._compiled(candidates):
            if known.outcome in (INVALID, EQUIVALENT):
                self.left_out[known.outcome] += 1
            elif (mutant.file, known.object) in seen:
                self.left_out["the same code as another"] += 1
            else:
                seen.add((mutant.file, known.object))
                self.result[mutant] = known
            if time.monotonic() - last > 5:
                last = time.monotonic()
                self._say(f"compiling: {len(self.result)} of {wanted} found")
            if len(self.result) == wanted:
                break

    def _compiled(self, candidates: Sequence[Mutant]) -> Iterator[tuple[Mutant, Record]]:
        """The candidates in order, compiled some at a time."""
        step = 8 * self.jobs
        for begin in range(0, len(candidates), step):
            some = candidates[begin:begin + step]
            yield from zip(some, self._pool.map(self._compile, some))

    def _object(self, text: str, file: str) -> str:
        """The hash of the object, empty where there is none."""
        place = self._places.get()
        try:
            place.mkdir(parents=True, exist_ok=True)
            target = place / "mutant.o"
            return digest(target) if self.bench.compile(file, text, target) else ""
        finally:
            self._places.put(place)

    def _compile(self, mutant: Mutant) -> Record:
        code = self._code[mutant.file]
        known = record.load(mutant, code, self.bench.fingerprint)
        if known is None:
            found = self._object(mutated(self.text[mutant.file], mutant), mutant.file)
            known = Record(INVALID if not found else EQUIVALENT if found == code else VALID, code, found)
            record.save(mutant, known)
        return known

    # ---- what the tests say

    def _judge_all(self) -> None:
        for mutant, known in self.result.items():
            if known.outcome == KILLED:
                self._kills[(mutant.file, *known.by.split(" ", 1))] += 1
        todo = [mutant for mutant, known in self.result.items() if known.outcome not in JUDGED]
        self._say(f"{len(self.result)} mutants; {len(self.result) - len(todo)} were judged before, {len(todo)} are left")
        running = {self._pool.submit(self._judge, mutant): mutant for mutant in todo}
        begin = time.monotonic()
        while running:
            for done in wait(running, return_when=FIRST_COMPLETED)[0]:
                mutant = running.pop(done)
                self.result[mutant] = done.result()
                self._progress(mutant, len(todo) - len(running), len(todo), time.monotonic() - begin)

    def _judge(self, mutant: Mutant) -> Record:
        place = self._places.get()
        begin = time.monotonic()
        try:
            killer = self._killer(mutant, place)
        finally:
            shutil.rmtree(place, ignore_errors=True)
            self._places.put(place)
        outcome = SURVIVED if killer is None else GOLDEN if killer.stage == GOLDEN_STAGE else KILLED
        found = Record(outcome, self._code[mutant.file], self.result[mutant].object, self.bench.fingerprint,
                       killer.path if killer else "", round(time.monotonic() - begin, 2))
        record.save(mutant, found)
        return found

    def _killer(self, mutant: Mutant, place: Path) -> Trial | None:
        """The first program that notices it; those that noticed changes of the same file most often come first."""
        text = mutated(self.text[mutant.file], mutant)
        trials = self.bench.trials(mutant.file)
        for stage in STAGES:
            of_stage = sorted((t for t in trials if t.stage == stage),
                              key=lambda t: -self._kills[(mutant.file, t.stage, t.name)] / (t.seconds + 0.1))
            if of_stage and not self.bench.link(mutant.file, text, place, stage):
                raise SetupError(f"{mutant.file}:{mutant.line}: compiles, but cannot be linked ({stage}): no test can judge it")
            for trial in of_stage:
                # Twice: a test that once fails on a busy machine has noticed nothing.
                if self._noticed(trial, place) and self._noticed(trial, place):
                    self._kills[(mutant.file, stage, trial.name)] += 1
                    return trial
        return None

    def _noticed(self, trial: Trial, place: Path) -> bool:
        env = {**trial.env, **self.bench.env(place, trial.stage)}
        return trial.noticed(confine.run(trial.argv, place, trial.limit_seconds, env, trial.stage == SANITIZED))

    # ---- progress

    def _progress(self, mutant: Mutant, done: int, total: int, seconds: float) -> None:
        found = self.result[mutant]
        left = seconds / done * (total - done)
        what = f"{found.outcome}{' by ' + found.by if found.by else ''}"
        self._say(f"{done}/{total}, {clock(left)} left: {mutant.file}:{mutant.line} {what}")

    @staticmethod
    def _say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

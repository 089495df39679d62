"""Run the tests of life, faults, neighbours and the observer in random order with random seeds: python3 -m tests.soak --hours 0.5.

One line a scenario; the failed ones leave their output in the folder (--output, build/soak). At the end, and after Ctrl-C,
the reliability table of all that the ledger there holds. Exit status 1 if a scenario failed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.framework import paths
from tests.report import reliability

LEDGER = "ledger.jsonl"
LIMIT_SECONDS = 900
"""For one scenario on a loaded machine."""

RACE_STEPS = 1500

E2E = {
    "test_life.py": ["test_events_under_load[main-loop]", "test_events_under_load[iothread]",
                     "test_stop_and_cont_hundred_times", "test_unbind_and_bind", "test_unplug_and_plug",
                     "test_system_reset[system_reset]", "test_system_reset[guest reboot]"],
    "test_migration.py": [f"test_migration[{way}-{threads}]" for threads in ("main-loop", "iothread") for way in
                          ("patched to patched", "patched to unpatched", "unpatched to patched")] + ["test_savevm_and_loadvm"],
    "test_faults.py": ["test_server_killed_and_restarted", *(f"test_errors[{policy}]" for policy in
                                                            ("report", "stop", "enospc"))],
    "test_power.py": ["test_power_cut[patched]", "test_power_cut[stock]"],
    "test_arena.py": ["test_full_filesystem", "test_read_only"],
    "test_inversion.py": ["test_fsync_beside_held_writes[guest]", "test_fsync_beside_held_writes[background]",
                          "test_lock_kept_across_a_held_read"],
    "test_neighbours.py": ["test_killed_foreground_holds_nobody", "test_stopped_foreground_leaves_promotions",
                           "test_lost_arena[delete]", "test_lost_arena[truncate]", "test_lost_arena[scribble]"],
    "test_random_neighbours.py": ["test_random_signals"],
    "test_observer.py": ["test_killed_observer_lets_go", "test_deleted_arena", "test_removed_device",
                         "test_declared_arena_without_observer_is_blind"],
}
OBSERVER = {
    "test_disk.py": ["test_in_service_is_zero_whenever_it_is_idle", "test_cgroups_come_and_go_while_it_runs",
                     "test_it_starts_in_the_middle_of_a_load", "test_background_is_in_service_of_all"],
    "test_life.py": ["test_killed_under_load_and_started_again", "test_an_arena_that_goes_and_comes_back",
                     "test_its_arena_goes_under_load", "test_its_file_is_cut_under_load", "test_the_device_disappears"],
}
FOLDERS = {"e2e": E2E, "observer": OBSERVER}
RACES = ["race", "scsi:race"]
SCENARIOS = [f"{folder}/{file}::{test}" for folder, files in FOLDERS.items() for file, tests in files.items()
             for test in tests] + RACES * 2


def command(scenario: str) -> list[str]:
    """What runs it."""
    if scenario in RACES:
        return [str(paths.ROOT / "tests" / "machine" / "run"), scenario]
    return [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", f"{paths.ROOT}/tests/{scenario}"]


def missing(scenarios: list[str]) -> str:
    """What pytest says of tests that are not there (they were renamed, say); "" if all are."""
    said = ""
    for folder in FOLDERS:  # apart: files of the same name are in both
        tests = [f"{paths.ROOT}/tests/{scenario}" for scenario in scenarios if scenario.startswith(f"{folder}/")]
        if tests:
            argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--no-header", *tests]
            done = subprocess.run(argv, cwd=paths.ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            said += "" if done.returncode == 0 else done.stdout + done.stderr
    return said


def wait(child: subprocess.Popen[bytes]) -> int:
    """The exit status; a scenario that takes too long, or is interrupted with us, is asked to clean up."""
    try:
        return child.wait(LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        return end(child)
    except KeyboardInterrupt:
        end(child)
        raise


def end(child: subprocess.Popen[bytes]) -> int:
    """Ctrl-C for it and all that it started; by force if that does not help."""
    os.killpg(child.pid, signal.SIGINT)
    try:
        return child.wait(60) or 1
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        return child.wait()


def interrupt(number: int, frame: object) -> None:
    """SIGTERM, and SIGINT in the background, end us as Ctrl-C does."""
    raise KeyboardInterrupt


def run(scenario: str, seed: int, number: int, folder: Path) -> bool:
    """Run one scenario; tells whether it passed, and keeps its output if not."""
    log = folder / f"{number:04}.log"
    environment = os.environ | {
        "IDLETIME_SEED": str(seed), "IDLETIME_LEDGER": str(folder / LEDGER), "IDLETIME_RACE_SEED": str(seed),
        "IDLETIME_RACE_STEPS": str(RACE_STEPS), "IDLETIME_REPETITIONS": "5", "IDLETIME_ROUNDS": "20", "IDLETIME_POWER_STATES": "40",
        "IDLETIME_KILLS": "10",
        "IDLETIME_LOGS": str(folder / "machine"),
    }
    begin = time.monotonic()
    with log.open("w") as output:
        status = wait(subprocess.Popen(command(scenario), cwd=paths.ROOT, env=environment, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT, start_new_session=True))
    if status == 0:
        log.unlink()
        if scenario in RACES:
            reliability.note_race(folder / "machine" / f"{scenario}.log", folder / LEDGER)
    verdict = "ok    " if status == 0 else f"FAILED ({log})"
    print(f"{verdict} {time.monotonic() - begin:5.0f} s  seed {seed:10}  {scenario}", flush=True)
    return status == 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m tests.soak", description=__doc__.split(":")[0])
    parser.add_argument("--hours", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    parser.add_argument("--only", choices=sorted({scenario.split("/")[0] for scenario in SCENARIOS}), help="scenarios of one kind")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "soak")
    arguments = parser.parse_args()
    scenarios = [scenario for scenario in SCENARIOS if scenario.split("/")[0] == (arguments.only or scenario.split("/")[0])]
    if gone := missing(scenarios):
        raise SystemExit(f"error: tests/soak names tests that cannot be run:\n{gone}")
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, interrupt)
    folder: Path = arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    dice = random.Random(arguments.seed)
    print(f"soak of {arguments.hours} h, seed {arguments.seed}", flush=True)
    end, number, failed = time.monotonic() + arguments.hours * 3600, 0, 0
    deck: list[str] = []
    try:
        while time.monotonic() < end:
            # Every scenario once before any comes again.
            deck = deck or dice.sample(scenarios, len(scenarios))
            number += 1
            failed += not run(deck.pop(), dice.randrange(2**31), number, folder)
    except KeyboardInterrupt:
        print("stopped")
    print(f"{number} scenarios, {failed} failed\n")
    print(reliability.table(folder / LEDGER))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

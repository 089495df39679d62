"""Run a program that may do anything: a time limit, limits of memory and files, a PID namespace and a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Mapping, Sequence

# A shell is the namespace's first process: that one ignores signals, such as the one of abort().
_NAMESPACE = ["unshare", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child"]
_SHELL = ["sh", "-c", '"$@"; exit $?', "sh"]
# No core dumps; files of 1 GB; a mutant that allocates without end is ended.
_LIMITS = ["prlimit", "--core=0", "--fsize=1000000000"]
_MEMORY = "--as=8000000000"


@dataclass(frozen=True)
class Result:
    """How a program ended."""

    status: int
    timed_out: bool
    output: str

    @property
    def passed(self) -> bool:
        return self.status == 0 and not self.timed_out


@lru_cache
def _namespace() -> tuple[str, ...]:
    """The way into a PID namespace that this user has, or none: then a program's group is ended instead."""
    for argv in (_NAMESPACE, [*_NAMESPACE, "--user", "--map-current-user"]):
        if subprocess.run([*argv, "true"], capture_output=True).returncode == 0:
            return tuple(argv)
    return ()


def run(argv: Sequence[str], place: Path, limit_seconds: float, env: Mapping[str, str], sanitized: bool = False) -> Result:
    """Run to the end or the limit. Temporary files go to place/tmp, which is emptied; nothing outlives the call."""
    tmp = place / "tmp"
    shutil.rmtree(tmp, ignore_errors=True)
    tmp.mkdir(parents=True)
    # The sanitizers reserve more addresses than there are.
    limits = _LIMITS if sanitized else [*_LIMITS, _MEMORY]
    command = ["setpriv", "--pdeathsig", "KILL", "--", *_namespace(), *_SHELL, *limits, *argv]
    with (place / "output").open("w+b") as output:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                 env={**os.environ, **env, "TMPDIR": str(tmp)}, start_new_session=True)
        timed_out = False
        try:
            child.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            if child.returncode is None:
                os.killpg(child.pid, 9)
                child.wait()
    text = (place / "output").read_bytes()[-1_000_000:].decode(errors="replace")
    shutil.rmtree(tmp, ignore_errors=True)
    return Result(child.returncode, timed_out, text)

"""A load in a guest that knows what it must read: idleverify, detached from the control channel."""

from __future__ import annotations

import json
from typing import Any

from tests.framework.guest import COMMAND_SECONDS, Guest, GuestError

OUT, STATUS, PID = "/run/verify.out", "/run/verify.status", "/run/verify.pid"


def start(guest: Guest, device: str = "/dev/vda", **options: object) -> None:
    """Begin idleverify; it goes on in the guest wherever that is, until end()."""
    words = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in {"seconds": 3000, **options}.items())
    guest.run(
        f"rm -f {STATUS}; {{ idleverify device --device {device} {words} & echo $! >{PID}; wait $!; echo $? >{STATUS}; }}"
        f" >{OUT} 2>&1 &"
    )


def running(guest: Guest) -> bool:
    """Whether it still runs: broken data end it."""
    return guest.run(f"test -e {STATUS}", check=False).status != 0


def end(guest: Guest, timeout_seconds: float = 4 * COMMAND_SECONDS) -> dict[str, Any]:
    """Ask for the end: it reads back all that it wrote. Returns its report; wrong data are an error."""
    guest.run(f"kill -TERM $(cat {PID})", check=False)
    result = guest.run(f"while ! [ -s {STATUS} ]; do usleep 50000; done; cat {OUT}; exit $(cat {STATUS})",
                       timeout_seconds, check=False)
    if result.status != 0:
        raise GuestError(f"the verifying load ended with {result.status}: {result.text.strip()}")
    return json.loads(result.text.splitlines()[-1])

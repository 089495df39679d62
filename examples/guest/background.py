#!/usr/bin/env python3
"""Mark this process as background for a block of work, through the agent's socket.

    python3 background.py [COMMAND [ARGUMENT...]]

Needs nothing but Python. The protocol is in guest-agent/PROTOCOL.md.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import Any, Iterator

SOCKET = os.environ.get("IDLETIME_SOCKET", "/run/idletime/agent.sock")


def call(request: dict[str, Any], path: str = SOCKET) -> dict[str, Any]:
    """One request to the agent, and its result; a refusal is a PermissionError with the agent's words."""
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(15)
        channel.connect(path)
        channel.sendall(json.dumps({"version": 1, "id": 1, **request}).encode() + b"\n")
        with channel.makefile("rb") as lines:
            reply = json.loads(lines.readline())
    if not reply["ok"]:
        raise PermissionError(f"{reply['error']['code']}: {reply['error']['message']}")
    return reply["result"]


@contextmanager
def background() -> Iterator[list[str]]:
    """Everything in this block is background: all threads of this process, and what it starts.

    Gives the list of what this guest's kernel cannot mark. Without an agent the
    block runs as usual.
    """
    me = {"target": {"pid": os.getpid()}}
    try:
        result = call({"type": "mark", **me})
    except (FileNotFoundError, ConnectionError) as error:
        yield [f"nothing is marked: no agent answers ({error})"]
        return
    try:
        yield result["lacks"]
    finally:
        call({"type": "unmark", **me})


if __name__ == "__main__":
    with background() as lacks:
        for lack in lacks:
            print(f"background.py: {lack}", file=sys.stderr)
        status = subprocess.run(sys.argv[1:] or ["true"]).returncode
    sys.exit(status)

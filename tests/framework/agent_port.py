"""The guest's end of the port org.idletime.agent.0, played by the shell of a test guest."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

from tests.framework.domain import Domain
from tests.framework.idletimed import wait_until

FIND = (
    "for n in /sys/class/virtio-ports/*/name; do "
    "[ $(cat $n) = org.idletime.agent.0 ] && p=/dev/${n#/sys/class/virtio-ports/} && p=${p%/name}; done; "
)


@dataclass
class AgentPort:
    """Opens the port once and keeps it open; what the host says goes into a file."""

    domain: Domain
    sequence: int = 0
    session: str = "test-session"

    def open(self) -> AgentPort:
        """Begin to listen, and say nothing yet."""
        # Linux refuses a second open of a port, so one process has it and takes what is to be said from a pipe.
        hear, say = "cat <&5 >>/run/heard; usleep 20000", "cat /run/say >&5"
        script = FIND + f"mkfifo /run/say; exec 5<>$p; while :; do {hear}; done & while :; do {say}; done"
        assert self.domain.guest is not None
        self.domain.guest.start(script)
        self.domain.guest.run("while [ ! -p /run/say ]; do usleep 10000; done")
        return self

    def say(self, data: bytes) -> None:
        """Write bytes into the port."""
        text = base64.b64encode(data).decode()
        assert self.domain.guest is not None
        self.domain.guest.run(f"echo '{text}' | base64 -d >/run/say")

    def ask(self, device_class: str, queues: list[dict[str, Any]] | None = None) -> int:
        """Send a state; returns its sequence."""
        self.sequence += 1
        message = {"version": 1, "type": "state", "session": self.session, "sequence": self.sequence,
                   "request": {"class": device_class, "queues": queues or []}}
        self.say(json.dumps(message).encode() + b"\n")
        return self.sequence

    def heard(self) -> list[dict[str, Any]]:
        """All messages of the host so far."""
        assert self.domain.guest is not None
        lines = self.domain.guest.read("/run/heard").split(b"\n")[:-1]
        return [json.loads(line) for line in lines if line]

    def answer(self, sequence: int) -> dict[str, Any]:
        """The last policy that answers this state."""
        found: list[dict[str, Any]] = []

        def there() -> bool:
            found[:] = [message for message in self.heard() if message["type"] == "policy"
                        and (message["answers"] or {}).get("sequence") == sequence]
            return bool(found)

        wait_until(there, f"the host answers state {sequence}")
        return found[-1]

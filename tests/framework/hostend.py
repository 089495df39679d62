"""The host's end of the agent's port, as guest-agent/PROTOCOL.md says: a stand-in for idletimed in the tests.

It really asks QEMU: a granted class is set with idletime-set, so that what a
guest reads as "granted" is in force.
"""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any, Callable, Mapping

from tests.framework.lines import Lines
from tests.framework.qmp import CommandError, Qmp

CHANNEL = "org.idletime.agent.0"
MAX_LINE = 65536
NOTHING: dict[str, Any] = {"class": "foreground", "queues": []}


def port_arguments(path: Path) -> list[str]:
    """QEMU's options for the agent's port, whose host end is a socket at `path`."""
    return [
        "-chardev", f"socket,id=agent,path={path},server=on,wait=off",
        "-device", f"virtserialport,chardev=agent,name={CHANNEL}",
    ]


class HostEnd:
    """A context manager: enter connects to the port and answers; leave hangs up, as a daemon that ends.

    `devices` maps serials of the guest's disks to ids of QEMU's devices;
    `base` is the class of the VM by the host's policy.
    """

    _sessions = itertools.count(1)

    def __init__(
        self, path: Path, qmp: Qmp, control: str = "demote", devices: Mapping[str, str] | None = None, base: str = "guest",
    ) -> None:
        self._path, self._qmp, self.control, self._base = path, qmp, control, base
        self._devices = dict(devices or {})
        self.states: list[dict[str, Any]] = []
        self.errors: list[dict[str, Any]] = []
        self.garbage: list[bytes] = []
        self._news = threading.Condition()

    def __enter__(self) -> HostEnd:
        self.session = f"host-{next(self._sessions)}"
        self._channel = socket.socket(socket.AF_UNIX)
        self._channel.connect(str(self._path))
        self._lines = Lines(self._channel, self._take)
        self.send_raw(b"\n")
        self.send(self._policy(None))
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()

    def send_raw(self, data: bytes) -> None:
        """Put bytes on the line."""
        self._channel.sendall(data)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message."""
        self.send_raw(json.dumps(message).encode() + b"\n")

    def await_state(self, condition: Callable[[dict[str, Any]], bool], timeout_seconds: float = 60) -> dict[str, Any]:
        """The last state, once it fulfils a condition."""
        return self._await(lambda: self.states[-1] if self.states and condition(self.states[-1]) else None, timeout_seconds)

    def await_error(self, timeout_seconds: float = 60) -> dict[str, Any]:
        """The first error that the guest has sent and that was not asked for yet."""
        return self._await(lambda: self.errors.pop(0) if self.errors else None, timeout_seconds)

    def _await(self, look: Callable[[], Any], timeout_seconds: float) -> Any:
        end = time.monotonic() + timeout_seconds
        with self._news:
            while (found := look()) is None:
                if not self._news.wait(end - time.monotonic()):
                    raise TimeoutError(f"the agent said nothing of the kind within {timeout_seconds} s: {self.states[-1:]}")
        return found

    def _take(self, line: bytes) -> None:
        if len(line) > MAX_LINE or not line.endswith(b"\n"):
            self.garbage.append(line)
            return
        if not line.strip():
            return
        message = json.loads(line)
        if message["type"] == "state":
            policy = self._policy(message)
        with self._news:
            (self.states if message["type"] == "state" else self.errors).append(message)
            self._news.notify_all()
        if message["type"] == "state":
            self.send(policy)

    def _policy(self, state: Mapping[str, Any] | None) -> dict[str, Any]:
        request = state["request"] if state else NOTHING
        granted, refused = self._decide(request)
        answers = {"session": state["session"], "sequence": state["sequence"]} if state else None
        return {
            "version": 1, "type": "policy", "session": self.session, "answers": answers,
            "host": {"name": "stand-in", "version": "0"}, "control": self.control, "class": None,
            "granted": granted, "refused": refused,
            "devices": [{"device": {"serial": serial}, "class": self._base, "background_queues": ""} for serial in self._devices],
            "a field of a later version": True,
        }

    def _decide(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        granted, refused = {"class": "foreground", "queues": []}, []
        if request["class"] == "background":
            problem = self._apply_class("background")
            if problem:
                refused.append({"what": "class", **problem})
            else:
                granted["class"] = "background"
        else:
            self._apply_class(self._base)
        for entry in request["queues"]:
            problem = self._apply_queues(entry)
            if problem:
                refused.append({"what": "queues", **entry, **problem})
            else:
                granted["queues"].append(entry)
        return granted, refused

    def _refusal(self) -> dict[str, str] | None:
        if self.control == "none":
            return {"code": "control-none", "reason": "the policy of this VM has guest control='none'"}
        return None

    def _apply_class(self, device_class: str) -> dict[str, str] | None:
        if device_class == "background" and (refusal := self._refusal()):
            return refusal
        for device in self._devices.values():
            self._qmp.execute("idletime-set", device=device, **{"class": device_class})
        return None

    def _apply_queues(self, entry: Mapping[str, Any]) -> dict[str, str] | None:
        device = self._devices.get(entry["device"].get("serial", ""))
        if refusal := self._refusal():
            return refusal
        if device is None:
            return {"code": "unknown-device", "reason": "no disk of this VM has that serial"}
        try:
            self._qmp.execute("idletime-set", device=device, background_queues=entry["queues"])
        except CommandError as error:
            return {"code": "no-such-queue", "reason": str(error)}
        return None

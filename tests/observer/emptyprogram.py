"""A program that does nothing, at a tracepoint: what the kernel's run-time statistics count for themselves."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from types import TracebackType
from typing import Self

SYSCALL = 321
"""bpf(2) on x86-64."""
PROG_LOAD, RAW_TRACEPOINT_OPEN = 5, 17
RAW_TRACEPOINT = 17
"""A type of programs."""
INSTRUCTIONS = struct.pack("<BBhi", 0xB7, 0, 0, 0) + struct.pack("<BBhi", 0x95, 0, 0, 0)
"""r0 = 0; exit"""

_bpf = ctypes.CDLL(None, use_errno=True).syscall


def _call(command: int, attributes: bytes) -> int:
    descriptor = int(_bpf(SYSCALL, command, ctypes.c_char_p(attributes), len(attributes)))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), f"bpf({command}) {os.strerror(ctypes.get_errno())}")
    return descriptor


class EmptyProgram:
    """A context manager: it runs at each event, like ("block_rq_issue")."""

    def __init__(self, tracepoint: str) -> None:
        self._tracepoint = tracepoint

    def __enter__(self) -> Self:
        code, licence, name = (ctypes.create_string_buffer(text) for text in (INSTRUCTIONS, b"GPL", self._tracepoint.encode()))
        load = struct.pack("<IIQQ", RAW_TRACEPOINT, 2, ctypes.addressof(code), ctypes.addressof(licence))
        self.program = _call(PROG_LOAD, load)
        self.link = _call(RAW_TRACEPOINT_OPEN, struct.pack("<QII", ctypes.addressof(name), self.program, 0))
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self.link)
        os.close(self.program)

    def descriptor(self) -> Path:
        """Of its statistics."""
        return Path(f"/proc/self/fdinfo/{self.program}")

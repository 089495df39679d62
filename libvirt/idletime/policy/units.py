# SPDX-License-Identifier: GPL-2.0-or-later
"""Values of attributes: text to number, with what is wrong and what to write instead. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

HOUR_US = 3_600_000_000
HOUR_MS = 3_600_000
MAX_REQUEST_BYTES = 1 << 30
MAX_PERCENT = 1000  # QEMU's limit of budget-percent
MAX_RATE_BPS = 1_000_000_000_000  # QEMU's limit of rate-bps
PIECE = 4096  # QEMU cuts requests at multiples of this

_DURATION = {"ms": 1, "s": 1000, "min": 60_000}
_RATE = {"bit": 1, "kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9}
_SIZE = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class BadValue(ValueError):
    """Text is not a value of this kind; its text says what is wrong."""


@dataclass(frozen=True)
class Form:
    """A kind of value. read raises BadValue; expected is the end of the sentence "write ..."."""

    read: Callable[[str], Any]
    expected: str


def _number(text: str, low: int, high: int) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise BadValue("is not a whole number")
    return _within(int(text), low, high)


def _within(number: int, low: int, high: int) -> int:
    if number < low:
        raise BadValue(f"is less than {low}")
    if number > high:
        raise BadValue(f"is more than {high}")
    return number


def number(low: int, high: int, what: str) -> Form:
    return Form(lambda text: _number(text, low, high), f"{what} from {low} to {high}")


def one_of(*values: str) -> Form:
    def read(text: str) -> str:
        if text not in values:
            raise BadValue("is not known")
        return text
    return Form(read, " or ".join(f"'{value}'" for value in values))


def _scaled(text: str, scale: dict[str, int]) -> int:
    match = re.fullmatch(r"([0-9]{1,12})([A-Za-z]+)", text)
    if not match:
        raise BadValue("is not a number with a unit")
    if match.group(2) not in scale:
        raise BadValue(f"has the unknown unit '{match.group(2)}'")
    return int(match.group(1)) * scale[match.group(2)]


def _scaled_or_zero(text: str, zero: str, scale: dict[str, int], most: int, span: str) -> int:
    """A number with a unit; the word for zero is 0, as QEMU reads it."""
    if text == zero:
        return 0
    value = _scaled(text, scale)
    if not 0 < value <= most:
        raise BadValue(f"is not within {span}")
    return value


def duration_ms(text: str) -> int:
    return _scaled_or_zero(text, "never", _DURATION, HOUR_MS, "1 ms and an hour")


def rate_bps(text: str) -> int:
    return _scaled_or_zero(text, "unknown", _RATE, MAX_RATE_BPS, "1 bit and 1000 Gbit a second")


def request_bytes(text: str) -> int:
    value = _scaled(text, _SIZE)
    if value % PIECE:
        raise BadValue(f"is not a multiple of {PIECE} bytes")
    if not PIECE <= value <= MAX_REQUEST_BYTES:
        raise BadValue("is not within 4 KiB and 1 GiB")
    return value


def memory_bytes(text: str) -> int:
    value = _scaled(text, _SIZE)
    if value < 1 << 20:
        raise BadValue("is less than 1 MiB")
    if value % 1024:
        raise BadValue("is not a multiple of 1 KiB")
    return value


def percent(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,4}%", text):
        raise BadValue("is not a whole number of percent")
    return _within(int(text[:-1]), 0, MAX_PERCENT)


def time_of_day(text: str) -> str:
    if not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", text):
        raise BadValue("is no time of day")
    return text


def _list(text: str, high: int) -> str:
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", part)
        if not match:
            raise BadValue(f"has '{part}', which is no number and no range")
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        if last > high:
            raise BadValue(f"has {last}, which is more than {high}")
        if first > last:
            raise BadValue(f"has the range '{part}', which ends before it begins")
    return text


def resource_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", text):
        raise BadValue("cannot be the name of a resource")
    return text


def _text(text: str) -> str:
    if not text or len(text) > 255 or re.search(r"[\s'\"<>&]", text):
        raise BadValue("is empty, too long, or has white space or quotes")
    return text


CLASS = one_of("foreground", "background", "guest")
ENFORCE = one_of("interval", "suspend", "rate", "auto")
INTERVAL = number(0, HOUR_US, "a whole number of microseconds")
BUDGET = Form(percent, "a whole number of percent from 0% to 1000%, such as 5%")
DURATION = Form(duration_ms, "a time from 1ms to 60min with unit ms, s or min, such as 5s, or 'never'")
REQUEST = Form(request_bytes, "a size from 4KiB to 1GiB that is a multiple of 4KiB, with unit B, KiB, MiB or GiB")
MEMORY = Form(memory_bytes, "a size of at least 1MiB with unit KiB, MiB, GiB or TiB, such as 512MiB")
QUEUES = Form(lambda text: _list(text, 1023), "a list of queue numbers from 0 to 1023, such as 2-3,6")
DSCP = Form(lambda text: _list(text, 63), "a list of code points from 0 to 63, such as 1,8")
RATE = Form(rate_bps, "bits a second from 1bit to 1000Gbit with unit bit, kbit, Mbit or Gbit, such as 100Mbit, "
                      "or 'unknown'")
RESOURCE = Form(resource_name, "'auto', 'none', or a name of at most 63 letters, digits, '.', '_' and '-', "
                               "the first one a letter or digit")
TIME = Form(time_of_day, "a time of day from 00:00 to 23:59, such as 06:00")
TARGET = Form(_text, "a target name such as vda, a MAC address, or an alias")

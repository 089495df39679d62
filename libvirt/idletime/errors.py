# SPDX-License-Identifier: GPL-2.0-or-later
"""What can be wrong, in one form: where, what, and what to do about it."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Severity(str, enum.Enum):
    """How bad a finding is. An error refuses; a warning says that something is left out; a note explains."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Kind(str, enum.Enum):
    """What a finding is about; decides the exit code."""

    SYNTAX = "syntax"  # not XML, or not the schema
    FIT = "fit"  # a sound policy that does not fit this domain or host
    LIVE = "live"  # cannot be changed while the domain runs
    SETTINGS = "settings"  # a file below /etc/idletime, which was left out


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong or worth knowing.

    line is of the XML that was given, or of file where that is said (1-based), or None. element is as a user reads it, such as
    "disk target='vda'". message names the offending value, remedy says what to do; both are one line.
    """

    severity: Severity
    kind: Kind
    message: str
    remedy: str = ""
    element: str = ""
    line: int | None = None
    file: str = ""

    def __str__(self) -> str:
        """One line: "error: line 4: disk target='vdz': no such disk; remedy: ..."."""
        parts = [self.severity.value]
        where = f"{self.file} " if self.file else ""
        if self.line is not None or where:
            parts.append((where + (f"line {self.line}" if self.line is not None else "")).strip())
        if self.element:
            parts.append(self.element)
        parts.append(self.message)
        return ": ".join(parts) + (f"; remedy: {self.remedy}" if self.remedy else "")


class IdletimeError(Exception):
    """Base of all errors that this package raises on purpose; its text is fit for a user."""


class PolicyError(IdletimeError):
    """The policy is wrong or does not fit. findings has at least one error, and all that was found with it."""

    def __init__(self, findings: Iterable[Finding]):
        self.findings = tuple(findings)
        super().__init__("\n".join(str(finding) for finding in self.findings))

    @property
    def kind(self) -> Kind:
        """Kind of the first error."""
        return next(f.kind for f in self.findings if f.severity is Severity.ERROR)


def printable(text: str) -> str:
    """A text of somebody else's, without what a terminal obeys."""
    return "".join(one if one.isprintable() else "?" for one in text)


class MonitorError(IdletimeError):
    """QEMU or libvirt refused a monitor command. reason is the QMP error class, or "libvirt". What QEMU says of it may hold
    what a terminal obeys, and is made plain."""

    def __init__(self, message: str, reason: str = "libvirt"):
        self.reason = reason
        super().__init__(printable(message))


class Exit(enum.IntEnum):
    """Exit codes of virt-idletime, the hook and idletimed's one-shot commands."""

    OK = 0
    FAILED = 1  # libvirt, QEMU or the host refused
    USAGE = 2  # wrong command line
    POLICY = 3  # the policy is not valid (Kind.SYNTAX)
    FIT = 4  # the policy does not fit the domain or the host (Kind.FIT)
    PENDING = 5  # written, but not (all) in force now (Kind.LIVE)
    NO_DOMAIN = 6  # no such domain
    SETTINGS = 7  # done, but a file below /etc/idletime was left out (Kind.SETTINGS)

"""The survivors that are known: the file `accepted`, a block each.

    idletime/uplink/clock.c
    - the statement as it is
    + the statement as the mutant has it
    = equivalent: why no test can tell, or: accepted: why none should

White space does not matter. What is equivalent does not count; what is accepted counts as a survivor.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.mutants.source import Mutant

FILE = Path(__file__).parent / "accepted"


class AcceptedError(ValueError):
    """The file is not as described."""


def _plain(text: str) -> str:
    return " ".join(text.split())


@dataclass(frozen=True)
class Accepted:
    """One block."""

    file: str
    before: str
    after: str
    reason: str

    @property
    def equivalent(self) -> bool:
        return self.reason.startswith("equivalent:")

    def matches(self, mutant: Mutant) -> bool:
        """Whether it is about this mutant."""
        return (self.file, self.before, self.after) == (mutant.file, _plain(mutant.before), _plain(mutant.after))


def read(path: Path = FILE) -> list[Accepted]:
    """All blocks; the line that is wrong is named."""
    found: list[Accepted] = []
    file = before = after = ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        mark, rest = line[:2], _plain(line[2:])
        if not line.strip() or line.startswith("#"):
            continue
        if mark == "- ":
            before = rest
        elif mark == "+ ":
            after = rest
        elif mark == "= " and rest.startswith(("equivalent: ", "accepted: ")) and file and before and after:
            found.append(Accepted(file, before, after, rest))
            before = after = ""
        elif mark.strip() and line[1] not in " " and line.endswith(".c"):
            file = line.strip()
        else:
            raise AcceptedError(f"{path}:{number}: not a file, '- ', '+ ' or '= equivalent: ' or '= accepted: ': {line}")
    return found

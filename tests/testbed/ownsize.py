"""How large the file on a disk of one's own may be: given, or asked; checked before anything is built or written.

    python3 -m tests.testbed.ownsize FOLDER [SIZE]      prints bytes; asks on stderr

Needs nothing but Python, so that `make demo` can ask before it installs and builds for minutes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.testbed import ownfile
from tests.testbed.ownfile import PlaceError

SUGGESTED_BYTES = 4 << 30
"""More than what most drives keep in memory, and written in half a minute."""

USAGE, FAILED = 2, 1


def _answer(prompt: str) -> str:
    print(prompt, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise PlaceError("no answer; give SIZE, such as SIZE=4G")
    return line.strip()


def _ask(folder: Path) -> int:
    """From who sits at the terminal, until it fits."""
    free = ownfile.room(folder)
    suggested = max(ownfile.LEAST_BYTES, min(SUGGESTED_BYTES, free // 2))
    suggested -= suggested % ownfile.CHUNK_BYTES
    print(f"{folder} can spare {ownfile.words_of(free)}. A file is written there, read, and gone afterwards; it should be larger than\n"
          "what the drive or its controller keeps in memory.", file=sys.stderr)
    while True:
        answer = _answer(f"How large may it be? [{ownfile.words_of(suggested)}] ")
        try:
            size = ownfile.bytes_of(answer) if answer else suggested
            ownfile.check_size(folder, size)
            return size
        except PlaceError as error:
            print(f"  {error}", file=sys.stderr)


def size_of(folder: Path, wanted: str) -> int:
    """What was given, else what is asked; without a terminal it has to be given."""
    ownfile.check_folder(folder)
    if not wanted and not sys.stdin.isatty():
        raise PlaceError(f"the size of the file is not given, and nobody is at a terminal to be asked: make demo DISK={folder} SIZE=4G")
    if not wanted:
        return _ask(folder)
    size = ownfile.bytes_of(wanted)
    ownfile.check_size(folder, size)
    return size


def main() -> int:
    """Exit status: 0, FAILED, USAGE."""
    if len(sys.argv) not in (2, 3):
        print("usage: python3 -m tests.testbed.ownsize FOLDER [SIZE]", file=sys.stderr)
        return USAGE
    try:
        print(size_of(Path(sys.argv[1]), "".join(sys.argv[2:])))
        return 0
    except (PlaceError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return FAILED


if __name__ == "__main__":
    sys.exit(main())

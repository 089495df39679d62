"""A ledger of what tests saw happen: one JSON line an event kind, for the README's reliability table."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def note(kind: str, events: int, **figures: Any) -> None:
    """Append to the file $IDLETIME_LEDGER, if that is set; `figures` such as verified_bytes, longest_hold_ms, bound_ms."""
    path = os.environ.get("IDLETIME_LEDGER")
    if path:
        with Path(path).open("a") as ledger:
            ledger.write(json.dumps({"kind": kind, "events": events, **figures}) + "\n")

# SPDX-License-Identifier: GPL-2.0-or-later
"""Files that are replaced as a whole: who reads them sees what was, or what is."""

from __future__ import annotations

import contextlib
import os
import tempfile


def write(path: str, text: str) -> None:
    """Replace a file by rename, readable by all. Raises OSError; then the file is as it was, and nothing else is left."""
    descriptor, temporary = tempfile.mkstemp(prefix=".", dir=os.path.dirname(path))
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o644)
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise

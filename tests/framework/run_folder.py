"""The temporary files of a test run: all are below one folder, which goes with the run, however that ends."""

from __future__ import annotations

import atexit
import os
import subprocess
import tempfile
from pathlib import Path

# It has a pipe's read end, we have the only write end. What we started may still write when we are killed.
_CLEANER = "trap '' HUP INT TERM; read end; for try in 1 2 3 4 5; do rm -rf --one-file-system -- \"$0\" && exit; sleep 0.2; done"


def guard() -> Path:
    """Move all temporary files of this process, and of those that it starts, into a folder that outlives none of them.

    A cleaner of its own session removes it when this process is gone, also after SIGKILL.
    """
    folder = Path(tempfile.mkdtemp(prefix="idletime-"))
    folder.chmod(0o711)  # QEMUs of libvirt have another user
    cleaner = subprocess.Popen(["sh", "-c", _CLEANER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True, cwd="/")
    tempfile.tempdir = str(folder)
    os.environ["TMPDIR"] = str(folder)
    atexit.register(cleaner.communicate)
    return folder

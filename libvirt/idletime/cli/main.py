# PYTHON_ARGCOMPLETE_OK
# SPDX-License-Identifier: GPL-2.0-or-later
"""Entry point: errors become one line each on standard error, and an exit code."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ..errors import Exit, IdletimeError, Kind, PolicyError
from ..hostd.settings import Settings, SettingsError, load
from .arguments import parser

_CODES = {Kind.SYNTAX: Exit.POLICY, Kind.FIT: Exit.FIT, Kind.LIVE: Exit.PENDING}


def main(arguments: list[str] | None = None) -> int:
    """Run one command. Returns the exit code (errors.Exit)."""
    top = parser()
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete
        argcomplete.autocomplete(top)
    options = top.parse_args(arguments)
    from .. import domains  # late: --help and completion stay fast
    from . import commands
    options.settings, options.settings_wrong = _settings(options.settings_file)
    options.run_dir = options.run_dir or options.settings.run_dir
    try:
        with domains.translated(f"do {options.run}"):
            return int(commands.RUN[options.run](options))
    except PolicyError as error:
        for finding in error.findings:
            print(finding, file=sys.stderr)
        return int(_CODES[error.kind])
    except IdletimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return int(getattr(error, "code", Exit.FAILED))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(Exit.FAILED)
    except KeyboardInterrupt:
        return 130


def _settings(file: Path) -> tuple[Settings, str]:
    """The host's settings, and what is wrong with them: that is said, and is no reason not to look."""
    try:
        return load(file), ""
    except SettingsError as error:
        print(f"warning: {error}; going on with the defaults", file=sys.stderr)
        return Settings(), str(error)


if __name__ == "__main__":
    sys.exit(main())

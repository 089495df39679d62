# SPDX-License-Identifier: GPL-2.0-or-later
"""What the operator set: /etc/idletime/idletimed.toml. The daemon and the hook read the same file.

A missing file is all defaults. A wrong one is an error for the daemon, which says so and ends; the hook says so
and goes on with the defaults, for a domain must not fail to start because of a slip in there.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

FILE = Path("/etc/idletime/idletimed.toml")
ACTIONS = ("refuse", "warn")


class SettingsError(ValueError):
    """The file cannot be used; the text names file, name, value and remedy."""


@dataclass(frozen=True)
class Settings:
    """The defaults are the documentation's."""

    uri: str = "qemu:///system"
    on_misfit: str = "refuse"  # a policy that is wrong, or does not fit domain or host
    on_uncompiled: str = "refuse"  # a policy that is not in the XML that starts
    compile_on_define: bool = True
    owner: str = ""  # of arenas, "user:group"; empty is the user that the domain's QEMU has
    run_dir: str = "/run/idletime"
    resync_seconds: int = 300  # all domains are looked at again, were an event ever lost


def load(file: Path = FILE) -> Settings:
    """Read the file. Raises SettingsError."""
    try:
        data = tomllib.loads(file.read_text())
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{file}: {error}") from error
    values = {name.replace("-", "_"): value for name, value in data.items()}
    known = {field.name: type(field.default) for field in fields(Settings)}
    for name, value in values.items():
        _check(file, name, value, known)
    return Settings(**values)


def _check(file: Path, name: str, value: Any, known: dict[str, type[Any]]) -> None:
    shown = name.replace("_", "-")
    if name not in known:
        names = ", ".join(each.replace("_", "-") for each in known)
        raise SettingsError(f"{file}: there is no setting '{shown}'; use {names}")
    if type(value) is not known[name]:
        raise SettingsError(f"{file}: {shown} is {value!r}: it must be of type {known[name].__name__}")
    if name.startswith("on_") and value not in ACTIONS:
        raise SettingsError(f"{file}: {shown} is '{value}': use {' or '.join(ACTIONS)}")
    if name == "resync_seconds" and not 10 <= int(value) <= 86400:
        raise SettingsError(f"{file}: {shown} is {value}: use 10 to 86400")

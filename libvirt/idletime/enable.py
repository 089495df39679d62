# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's default for domains of which nothing else speaks: one file of ours below /etc/idletime/rules.d."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from . import whole
from .conf.rules import FOLDER, NOT_ATTACHED, Rules
from .errors import Exit, IdletimeError

NAME = f"{FOLDER}/90-enable-all.toml"
CLASS = "foreground"

TEXT = f"""# Made by "virt-idletime enable --all", taken away by "virt-idletime disable --all".
# Domains of which neither their own policy nor a rule speaks: {CLASS}.
default = "{CLASS}"
"""


class DefaultRefused(IdletimeError):
    """Another file says something else; the text names it."""

    code = Exit.SETTINGS


@dataclass(frozen=True)
class Step:
    """What is to be done with our file: text to write, None to remove it; done: nothing, it is so already."""

    text: str | None
    done: bool = False


def enable(rules: Rules) -> Step:
    """What makes foreground the default. Pure. Raises DefaultRefused."""
    said = rules.default.class_.value if rules.default else NOT_ATTACHED
    if not rules.default_place:
        return Step(TEXT)
    if said == CLASS:
        return Step(TEXT, done=True)
    raise DefaultRefused(f"{rules.default_place} says default = \"{said}\"; remedy: write default = \"{CLASS}\" there")


def disable(rules: Rules, there: bool) -> Step:
    """What takes the default away. there: whether our file is there. Pure. Raises DefaultRefused."""
    if there:
        return Step(None)
    if rules.default is None:
        return Step(None, done=True)
    raise DefaultRefused(f"{rules.default_place} says default = \"{rules.default.class_.value}\", which is not from "
                         "'virt-idletime enable --all'; remedy: take the line out there")


def there(root: str = "") -> bool:
    return os.path.lexists(root + NAME)


def act(step: Step, root: str = "") -> None:
    """Write or remove our file, as a whole. Raises OSError."""
    if step.done:
        return
    file = root + NAME
    if step.text is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file)
        return
    os.makedirs(os.path.dirname(file), 0o755, exist_ok=True)
    whole.write(file, step.text)

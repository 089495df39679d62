# SPDX-License-Identifier: GPL-2.0-or-later
"""The live view in the terminal: a strip a resource, a row a device, and the keys. A change is the command that would make it.

Context: the terminal's loop is one thread; looks and commands are others, which hand over what they have by a pipe.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import urwid

from ..errors import printable
from ..policy.model import Class
from . import model, table
from .model import DeviceRow, Model
from .sample import Pace, Sampler

Act = Callable[[Sequence[str]], tuple[bool, str]]
"""Runs a command of virt-idletime: whether it did not fail, and what it said."""

_COLOURS = (
    ("head", "standout", ""), ("title", "bold", ""), ("F", "black", "dark green"), ("P", "black", "brown"),
    ("B", "black", "dark cyan"), ("L", "white", "dark red"), ("foreground", "dark green", ""), ("background", "dark cyan", ""),
    ("guest", "dark magenta", ""), ("selected", "standout", ""), ("note", "brown", ""), ("question", "bold", ""),
)

HELP = "q quit   up/down select   c class   i interval   s sort   space pause"
_CLASSES: Mapping[str, str] = {"b": "background", "g": "guest", "f": "foreground", "u": "unmark"}
_ASK_CLASS = "class of {}: b background, g guest, f foreground, u its own policy away, other keys: leave it"
LEARNED = "auto"
_ASK_INTERVAL = f"interval of {{}} in us, or {LEARNED} to have it learned (Enter, or Esc): "
_BUSY = "..."
_CONFIRM = "y: do it, other keys: leave it"


def command(row: DeviceRow, class_: str, interval_us: str = "") -> list[str]:
    """The command that makes a VM so. Pure."""
    values = []
    if interval_us:  # a number is in force only where none is learned
        learned = interval_us == LEARNED
        values = ["--set", "auto=on"] if learned else ["--set", f"interval-us={interval_us}", "--set", "auto=off"]
    if class_ == "unmark":
        return ["disable" if row.of_vm == Class.FOREGROUND.value else "unmark", row.uuid]
    if class_ == Class.FOREGROUND.value:
        return ["enable", row.uuid, *values]
    return ["mark", row.uuid, "--class", class_, *values]


def _raise(error: Exception) -> None:
    raise error


@dataclass
class Prompt:
    """A question at the foot, and who takes the answer: a key, or a line where one is asked for. Without an answer it stays."""

    text: str
    answer: Callable[[str], None] | None
    line: str | None = None


class View:
    """run() returns when the user has left."""

    def __init__(self, sampler: Sampler, delay: float, act: Act, aligned: table.Aligned, colours: bool) -> None:
        self._sampler, self._act, self._aligned, self._pace = sampler, act, aligned, Pace(delay)
        self._model: Model | None = None  # of the last look
        self._shown: Model | None = None
        self._prompt: Prompt | None = None
        self._wait, self._order, self._paused, self._said = delay, 0, False, ""
        self._posted: deque[model.Look | Callable[[], None]] = deque()
        self._left = threading.Event()
        self._top, self._head, self._foot = urwid.Text("", wrap="clip"), urwid.Text("", wrap="clip"), urwid.Text("")
        self._rows = urwid.SimpleFocusListWalker([])
        frame = urwid.Frame(urwid.ListBox(self._rows), urwid.Pile([self._top, urwid.AttrMap(self._head, "head")]), self._foot)
        screen = urwid.raw_display.Screen()
        if not colours:
            screen.set_terminal_properties(colors=1)
        self._loop = urwid.MainLoop(frame, _COLOURS, screen, handle_mouse=False, input_filter=self._keys)
        self._pipe = self._loop.watch_pipe(self._take)

    def run(self) -> None:
        threading.Thread(target=self._look, daemon=True).start()
        try:
            self._loop.run()
        finally:
            self._left.set()

    # ---- other threads

    def _look(self) -> None:
        try:
            while not self._left.is_set():
                self._post(self._sampler.look())
                self._left.wait(self._wait)
        except Exception as error:  # a fault of ours: it ends the view, with its trace
            self._post(partial(_raise, error))

    def _post(self, what: model.Look | Callable[[], None]) -> None:
        self._posted.append(what)
        os.write(self._pipe, b".")

    def _take(self, _data: bytes) -> bool:
        while self._posted:
            what = self._posted.popleft()
            if isinstance(what, model.Look):
                self._model = model.after(self._model, what)
                self._wait = self._pace.wait_seconds()
            else:
                what()
        self._draw()
        return True

    def _run(self, arguments: Sequence[str], then: Callable[[bool, str], None]) -> None:
        """A command, in a thread; the view goes on meanwhile, and keys but q do nothing."""
        def act() -> None:
            done = self._act(arguments)
            self._post(lambda: then(*done))
        self._ask(_BUSY, None)
        threading.Thread(target=act, daemon=True).start()

    # ---- keys

    def _keys(self, keys: list[str], _raw: Any) -> list[str]:
        return [key for key in keys if not self._key(key)]

    def _key(self, key: str) -> bool:
        """Whether it was one of ours."""
        if key == "window resize":
            return False
        if self._prompt is not None and self._prompt.answer is not None:
            self._answered(self._prompt, self._prompt.answer, key)
        elif key in ("q", "Q"):
            raise urwid.ExitMainLoop
        elif self._prompt is not None:
            return True
        elif key == "s":
            self._order = (self._order + 1) % len(model.ORDERS)
        elif key == " ":
            self._paused = not self._paused
        elif key in ("c", "i") and (row := self._selected()) is not None:
            (self._class if key == "c" else self._interval)(row)
        else:
            return False
        self._draw()
        return True

    def _answered(self, prompt: Prompt, answer: Callable[[str], None], key: str) -> None:
        if prompt.line is not None and key not in ("enter", "esc"):
            prompt.line = prompt.line[:-1] if key == "backspace" else prompt.line + key if len(key) == 1 else prompt.line
            return
        self._prompt = None
        answer(key if prompt.line is None or key == "esc" else prompt.line)

    def _ask(self, text: str, answer: Callable[[str], None] | None, line: bool = False) -> None:
        self._prompt = Prompt(text, answer, "" if line else None)
        self._draw()

    def _selected(self) -> DeviceRow | None:
        """The device that is selected, if it is a VM's."""
        focus = self._rows.focus if self._rows else None
        row = self._rows[focus].row if focus is not None else None
        return row if row is not None and row.uuid else None

    def _class(self, row: DeviceRow) -> None:
        def chosen(key: str) -> None:
            if key in _CLASSES:
                self._confirm(command(row, _CLASSES[key]))
        self._ask(_ASK_CLASS.format(row.vm), chosen)

    def _interval(self, row: DeviceRow) -> None:
        def chosen(line: str) -> None:
            if line and line != "esc":
                self._confirm(command(row, row.of_vm, line))
        if not row.of_vm:
            self._said = f"{row.vm} has no policy, so no interval; give it a class first"
            return
        self._ask(_ASK_INTERVAL.format(row.vm), chosen, line=True)

    def _confirm(self, arguments: list[str]) -> None:
        """What it would come to, as --dry-run says; then the same in earnest."""
        def chosen(key: str) -> None:
            if key == "y":
                self._run(arguments, self._say)

        def planned(well: bool, said: str) -> None:
            if well:
                self._ask(f"{said}\n{_CONFIRM}", chosen)
            else:
                self._say(well, said)
        self._run([*arguments, "--dry-run"], planned)

    def _say(self, _well: bool, said: str) -> None:
        self._said, self._prompt = said, None

    # ---- drawing

    def _draw(self) -> None:
        self._shown = self._shown if self._paused else self._model
        if self._shown is not None:
            columns, rows = self._loop.screen.get_cols_rows()
            self._top.set_text(self._resources(self._shown, columns, rows))
            self._list(model.ordered(self._shown.devices, model.ORDERS[self._order]), columns)
        prompt = self._prompt
        said = f"{self._said}\n" if self._said else ""
        self._foot.set_text(("question", prompt.text + (prompt.line or "")) if prompt else said + HELP)

    def _resources(self, now: Model, columns: int, rows: int) -> list[Any]:
        """Title, notes, and two lines a resource: figures, and as much of the strip as there is room for."""
        of = f"{now.seconds:.1f} s" if now.seconds else "the first look"
        text: list[Any] = [("title", f"{len(now.look.vms)} VMs, rates of {of}, sorted by {model.ORDERS[self._order]}"
                                     f"{', PAUSED' if self._paused else ''}"), "\n"]
        text += [("note", f"{note}\n") for note in now.look.notes]
        most = max(2, rows // 6)
        shown = model.busiest(now.resources, most)
        lines = table.fitting(self._aligned, table.RESOURCES, [table.resource(one) for one in shown], columns)
        room = max(0, min(model.SECONDS, columns - 2))
        text += [("head", lines[0]), "\n"]
        for line, one in zip(lines[1:], shown, strict=True):
            cells = one.strip[model.SECONDS - room:]
            text += [f"{printable(line)}\n  ", *((letter, "".join(same)) for letter, same in groupby(cells)), "\n"]
        if len(now.resources) > most:
            text.append(f"and {len(now.resources) - most} more, which --batch shows\n")
        return [*text, table.LEGEND, "\n"]

    def _list(self, rows: list[DeviceRow], columns: int) -> None:
        """The rows in place, so that the selected device stays selected, wherever it goes."""
        focus = self._rows.focus if self._rows else None
        key = self._rows[focus].row.key if focus is not None else None
        lines = table.fitting(self._aligned, table.DEVICES, [table.device(one) for one in rows], columns)
        self._head.set_text(lines[0])
        widgets = []
        for line, one in zip(lines[1:], rows, strict=True):
            text = urwid.SelectableIcon(printable(line), len(line) + 1)  # without a cursor
            text.set_layout("left", "clip")
            widget = urwid.AttrMap(text, one.class_, "selected")
            widget.row = one
            widgets.append(widget)
        self._rows[:] = widgets
        if widgets:
            self._rows.set_focus(next((at for at, one in enumerate(rows) if one.key == key), 0))

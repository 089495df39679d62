"""Tables of figures as text: for a file of a set width, or for a terminal that may be wider."""

from __future__ import annotations

import io
import shutil
from typing import Sequence

from rich import box
from rich.console import Console
from rich.table import Table


def table(columns: Sequence[str], space: int = 1, first_width: int = 0) -> Table:
    """No rows yet. The first column has words and at least this width, the others have figures; `space` between them."""
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, space, 0, 0))
    for number, title in enumerate(columns):
        result.add_column(title, justify="right" if number else "left", no_wrap=True, min_width=0 if number else first_width)
    return result


def text(rows: Table, notes: Sequence[str], columns: int, terminal: bool = False) -> str:
    """The table and the notes below it; `columns` wide, or as wide as a wider terminal."""
    width = max(shutil.get_terminal_size((columns, 25)).columns, columns) if terminal else columns
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=False)
    console.print(rows)
    for note in notes:
        console.print(note, highlight=False, soft_wrap=not terminal)
    return file.getvalue()

"""What commands print: tables and lines on stdout, or one JSON object; steps on stderr."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from crtexport.errors import printable

_PIPED_WIDTH = 200  # wide enough that tables keep their lines whole in files and logs


class Output:
    """Where a command's words go.

    With ``as_json`` only :meth:`result` reaches stdout. ``verbosity`` is -1 (results only in JSON,
    else nothing), 0, or 1 (every step). Text from models can't drive the terminal.
    """

    def __init__(self, *, as_json: bool = False, verbosity: int = 0) -> None:
        self.as_json = as_json
        self.verbosity = verbosity
        width = None if sys.stdout.isatty() else _PIPED_WIDTH
        self._out = Console(markup=False, highlight=False, emoji=False, width=width)
        self._err = Console(stderr=True, markup=False, highlight=False, emoji=False)

    @property
    def silent(self) -> bool:
        """True where words on stdout are unwanted."""
        return self.as_json or self.verbosity < 0

    def line(self, text: str = "") -> None:
        """One line for a reader."""
        if not self.silent:
            self._out.print(Text(printable(text, keep_newlines=True)), soft_wrap=True)

    def raw(self, text: str) -> None:
        """Text that is the command's whole result, byte for byte, even with ``-q``."""
        sys.stdout.write(text if text.endswith("\n") else text + "\n")

    def table(
        self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]
    ) -> None:
        """A table; integers stand to the right with their thousands grouped."""
        if self.silent:
            return
        listed = [tuple(row) for row in rows]
        table = Table(
            title=Text(printable(title)), title_justify="left", box=None, pad_edge=False,
            title_style="bold", header_style="bold",
        )
        for index, column in enumerate(columns):
            numeric = any(isinstance(row[index], int) for row in listed)
            table.add_column(column, justify="right" if numeric else "left", overflow="fold")
        for row in listed:
            table.add_row(*(Text(_cell(value)) for value in row))
        self._out.print(table)
        self._out.print()

    def result(self, data: dict[str, Any]) -> None:
        """The command's result as JSON, if that is wanted."""
        if self.as_json:
            sys.stdout.write(json.dumps(data, indent=2) + "\n")

    @contextlib.contextmanager
    def steps(self) -> Iterator[Callable[[str], None]]:
        """A function that shows the step at hand: live on a terminal, as lines with ``-v``."""
        if self.verbosity > 0:
            yield lambda step: self._err.print(Text(printable(step)))
        elif self.verbosity == 0 and self._err.is_terminal:
            with self._err.status("") as status:
                yield lambda step: status.update(Text(printable(step)))
        else:
            yield lambda _: None


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return printable(str(value))

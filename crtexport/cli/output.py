"""What commands print: tables and lines on stdout, or one JSON object; steps on stderr."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rich.columns import Columns
from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from crtexport.errors import printable

_PIPED_WIDTH = 200  # wide enough that tables keep their lines whole in files and logs
_LONG = 64 << 20  # bytes that take long enough to write to show it


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
    def steps(self) -> Iterator[Steps]:
        """What shows the step at hand: live on a terminal, as lines with ``-v``."""
        if self.verbosity > 0:
            yield Steps(lambda step: self._err.print(Text(printable(step))))
        elif self.verbosity == 0 and self._err.is_terminal:
            with Progress(
                SpinnerColumn(), TextColumn("{task.description}", markup=False), _LongBar(),
                console=self._err, transient=True,
            ) as bars:
                task = bars.add_task("", total=None)
                yield Steps(
                    lambda step: bars.update(task, description=printable(step), total=None),
                    lambda done, total: bars.update(task, completed=done, total=total),
                )
        else:
            yield Steps(lambda _: None)


class Steps:
    """Called with the name of each step; :meth:`written` with how far a long one is."""

    def __init__(
        self, show: Callable[[str], None], bar: Callable[[int, int], None] | None = None
    ) -> None:
        self._show, self._bar = show, bar

    def __call__(self, step: str) -> None:
        self._show(step)

    def written(self, done: int, total: int) -> None:
        """``done`` of ``total`` bytes; a bar on terminals, where they take their time."""
        if self._bar is not None and total >= _LONG:
            self._bar(done, total)


class _LongBar(ProgressColumn):
    """A bar with bytes and remaining time, where it is known how much there is to do."""

    def render(self, task: Task) -> RenderableType:
        if task.total is None:
            return Text()
        parts = (BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
        return Columns([part.render(task) for part in parts])


def named(modules: Iterable[str]) -> dict[str, Any]:
    """The models of a package for JSON: ``modules`` and, where it is one, ``module``."""
    names = list(modules)
    return {"modules": names, **({"module": names[0]} if len(names) == 1 else {})}


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return printable(str(value))

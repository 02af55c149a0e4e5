"""Output with Rich: lines, tables and progress bars."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence

from rich.columns import Columns
from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from crtexport.support.errors import printable

_PIPED_WIDTH = 200  # wide enough that tables keep their lines whole in files and logs


class Terminal:
    """Stdout and stderr. Control characters in names from models are escaped."""

    def __init__(self) -> None:
        width = None if sys.stdout.isatty() else _PIPED_WIDTH
        self._out = Console(markup=False, highlight=False, emoji=False, width=width)
        self._err = Console(stderr=True, markup=False, highlight=False, emoji=False)

    def line(self, text: str) -> None:
        """Writes one line to stdout."""
        self._out.print(Text(printable(text, keep_newlines=True)), soft_wrap=True)

    def step(self, text: str) -> None:
        """Writes one line to stderr."""
        self._err.print(Text(printable(text)))

    def table(
        self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]
    ) -> None:
        """Writes a table to stdout; integers are right-aligned with their thousands grouped."""
        table = Table(
            title=Text(printable(title)), title_justify="left", box=None, pad_edge=False,
            title_style="bold", header_style="bold",
        )
        for index, column in enumerate(columns):
            numeric = any(isinstance(row[index], int) for row in rows)
            table.add_column(column, justify="right" if numeric else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(_cell(value)) for value in row))
        self._out.print(table)
        self._out.print()

    @contextlib.contextmanager
    def progress(
        self,
    ) -> Iterator[tuple[Callable[[str], None], Callable[[int, int, str], None]]]:
        """Yields a function that shows the current step on stderr, and one that shows its progress.
        """
        with Progress(
            SpinnerColumn(), TextColumn("{task.description}", markup=False), _LongBar(),
            console=self._err, transient=True,
        ) as bars:
            task = bars.add_task("", total=None, unit="")
            yield (
                lambda step: bars.update(task, description=printable(step), total=None),
                lambda done, total, unit: bars.update(
                    task, completed=done, total=total, unit=unit
                ),
            )


class _LongBar(ProgressColumn):
    """A progress bar with counts and remaining time, for steps whose length is known."""

    def render(self, task: Task) -> RenderableType:
        if task.total is None:
            return Text()
        unit = task.fields["unit"]
        count = DownloadColumn(binary_units=True) if unit == "bytes" else MofNCompleteColumn()
        parts = (BarColumn(), count, TimeRemainingColumn())
        words = [] if unit == "bytes" else [Text(unit)]
        return Columns([*(part.render(task) for part in parts), *words])


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return printable(str(value))

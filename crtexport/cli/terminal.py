"""What is drawn with Rich on terminals: tables and bars of progress."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence

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


class Terminal:
    """Stdout and stderr."""

    def __init__(self) -> None:
        self._out = Console(markup=False, highlight=False, emoji=False)
        self._err = Console(stderr=True, markup=False, highlight=False, emoji=False)

    def table(
        self, title: str, columns: Sequence[str], cells: Iterable[Sequence[str]],
        right: Sequence[bool],
    ) -> None:
        """A table on stdout; those columns that are so stand to the ``right``."""
        table = Table(
            title=Text(title), title_justify="left", box=None, pad_edge=False,
            title_style="bold", header_style="bold",
        )
        for column, aligned in zip(columns, right, strict=True):
            table.add_column(column, justify="right" if aligned else "left", overflow="fold")
        for row in cells:
            table.add_row(*map(Text, row))
        self._out.print(table)
        self._out.print()

    @contextlib.contextmanager
    def progress(self) -> Iterator[tuple[Callable[[str], None], Callable[[int, int], None]]]:
        """What shows a step on stderr while it lasts, and what shows how far it is."""
        with Progress(
            SpinnerColumn(), TextColumn("{task.description}", markup=False), _LongBar(),
            console=self._err, transient=True,
        ) as bars:
            task = bars.add_task("", total=None)
            yield (
                lambda step: bars.update(task, description=printable(step), total=None),
                lambda done, total: bars.update(task, completed=done, total=total),
            )


class _LongBar(ProgressColumn):
    """A bar with bytes and remaining time, where it is known how much there is to do."""

    def render(self, task: Task) -> RenderableType:
        if task.total is None:
            return Text()
        parts = (BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
        return Columns([part.render(task) for part in parts])

"""Output of commands: tables and lines on stdout, or one JSON object; steps on stderr."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from crtexport.support.errors import printable

if TYPE_CHECKING:
    from crtexport.cli.terminal import Terminal

_LONG = 64 << 20  # bytes from which on writing takes long enough for a progress bar


class Output:
    """Writes a command's messages and result.

    With ``as_json`` only :meth:`result` reaches stdout. ``verbosity`` is -1 (results only in JSON,
    else nothing), 0, or 1 (every step). Control characters in names from models are escaped.
    """

    def __init__(self, *, as_json: bool = False, verbosity: int = 0) -> None:
        self.as_json = as_json
        self.verbosity = verbosity

    @property
    def silent(self) -> bool:
        """Returns True if no text may be printed on stdout (with ``-q`` or ``--json``)."""
        return self.as_json or self.verbosity < 0

    @functools.cached_property
    def _terminal(self) -> Terminal:
        # Importing Rich takes a good part of a small export, which may print nothing.
        from crtexport.cli.terminal import Terminal  # noqa: PLC0415

        return Terminal()

    def line(self, text: str = "") -> None:
        """Writes one line of text, unless :attr:`silent`."""
        if not self.silent:
            self._terminal.line(text)

    def notes(self, lines: Iterable[str]) -> None:
        """Writes notes to stderr, also with ``--json``: facts that the result doesn't contain."""
        for line in lines if self.verbosity >= 0 else ():
            sys.stderr.write(f"note: {printable(line)}\n")

    def raw(self, text: str) -> None:
        """Writes text that is the command's whole result, byte for byte, even with ``-q``."""
        sys.stdout.write(text if text.endswith("\n") else text + "\n")

    def table(
        self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]
    ) -> None:
        """Writes a table; integers are right-aligned with their thousands grouped."""
        if not self.silent:
            self._terminal.table(title, columns, [tuple(row) for row in rows])

    def result(self, data: dict[str, Any]) -> None:
        """Writes the command's result as JSON, if that is wanted."""
        if self.as_json:
            sys.stdout.write(json.dumps(data, indent=2) + "\n")

    @contextlib.contextmanager
    def steps(self) -> Iterator[Steps]:
        """Yields a display of the current step: live on a terminal, as lines with ``-v``."""
        if self.verbosity > 0:
            yield Steps(self._terminal.step)
        elif self.verbosity == 0 and sys.stderr.isatty():
            with self._terminal.progress() as (show, bar):
                yield Steps(show, bar)
        else:
            yield Steps(lambda _: None)


class Steps:
    """Called with the name of each step; :meth:`written` and :meth:`counter` with the progress of
    a long one."""

    def __init__(
        self, show: Callable[[str], None], bar: Callable[[int, int, str], None] | None = None
    ) -> None:
        self._show, self._bar = show, bar

    def __call__(self, step: str) -> None:
        self._show(step)

    def written(self, done: int, total: int) -> None:
        """Shows ``done`` of ``total`` bytes; a bar on terminals, where they take long."""
        if self._bar is not None and total >= _LONG:
            self._bar(done, total, "bytes")

    def counter(self, unit: str) -> Callable[[int, int], None]:
        """Returns a function that shows how many ``unit`` of all are done; a bar on terminals,
        where there are several."""

        def counted(done: int, total: int) -> None:
            if self._bar is not None and total > 1:
                self._bar(done, total, unit)

        return counted


def named(modules: Iterable[str]) -> dict[str, Any]:
    """Returns the models of a package for JSON: ``modules`` and, where it is one, ``module``."""
    names = list(modules)
    return {"modules": names, **({"module": names[0]} if len(names) == 1 else {})}

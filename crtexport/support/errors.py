"""The errors that users see: the problem, its location, and a hint what to do.

Libraries raise these and never print or exit; only :mod:`crtexport.cli` turns them into
text on stderr and an exit code.
"""

from __future__ import annotations

from collections.abc import Sequence

_LONGEST = 500  # characters of a place that errors quote
_KEPT = 100


class CrtExportError(Exception):
    """Bad input or a request that can't be met.

    ``location`` leads from the outside in: file, then node, tensor or key. ``problem`` is one
    sentence. ``hint`` says what the user can do. Formatting happens late, in ``str()``.
    """

    exit_code = 2

    def __init__(
        self, problem: str, *, location: Sequence[str] | str = (), hint: str | None = None
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.location: tuple[str, ...] = (
            (location,) if isinstance(location, str) else tuple(location)
        )
        self.hint = hint

    def within(self, *outer: str) -> CrtExportError:
        """Returns the same error (same class) with ``outer`` put in front of its location."""
        self.location = (*outer, *self.location)
        return self

    def __str__(self) -> str:
        where = " → ".join(_shortened(printable(part)) for part in self.location if part)
        text = f"{where}: {printable(self.problem, keep_newlines=True)}" if where else printable(
            self.problem, keep_newlines=True
        )
        return f"{text}\n  hint: {printable(self.hint, keep_newlines=True)}" if self.hint else text


class ToolMissingError(CrtExportError):
    """A program or package that this verb needs is not installed."""

    exit_code = 3


class RunFailedError(CrtExportError):
    """The firmware, a build or a comparison ran and failed."""

    exit_code = 1


class Terminated(BaseException):
    """Raised when the system asks the program to end (SIGTERM); only the program's outermost frame
    handles it."""


def printable(text: str, *, keep_newlines: bool = False) -> str:
    """Returns ``text`` with control characters escaped: a model's names can't drive a terminal."""
    if text.isprintable():
        return text
    return "".join(
        ch if ch.isprintable() or (keep_newlines and ch == "\n") else ch.encode(
            "unicode_escape", "backslashreplace"
        ).decode("ascii")
        for ch in text
    )


def _shortened(text: str) -> str:
    """Returns ``text`` without its middle if it is so long that it would hide the problem behind
    it."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_KEPT]} … {text[-_KEPT:]} ({len(text):,} characters)"

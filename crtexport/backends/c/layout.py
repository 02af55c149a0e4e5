"""Breaks long C statements into lines, outside of as many parentheses as possible."""

from __future__ import annotations

import re
from collections.abc import Iterator

from crtexport.backends.c.literals import LINE

# A break comes before a binary operator, after a comma, or after an assignment's sign.
_BREAK = re.compile(r"(?<=,) | (?=[-+*/&|^<>=!?:]+ )|(?<= =) ")


def folded(line: str, indent: str) -> Iterator[str]:
    """Yields ``line``, a statement without strings or comments, indented, in lines of LINE
    characters.

    Breaks are where the fewest parentheses are open; a line that has no such place stays long.
    """
    further = indent + "    "
    while len(indent) + len(line) > LINE:
        place = _best_break(line, LINE - len(indent))
        if place is None:
            break
        yield indent + line[:place]
        indent, line = further, line[place + 1 :]
    yield indent + line


def _best_break(line: str, room: int) -> int | None:
    """Returns the position of the last break with the fewest open parentheses within ``room``
    characters; None if there is no break."""
    best: tuple[int, int] | None = None
    for match in _BREAK.finditer(line, 0, room + 1):
        before = line[: match.start()]
        depth = sum(map(before.count, "([")) - sum(map(before.count, ")]"))
        if best is None or depth <= best[0]:
            best = (depth, match.start())
    return None if best is None else best[1]

"""Short texts of large results: a line for prompts and logs, a table for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from crtexport.support.errors import printable

_LONGEST = 80


def line(kind: str, *facts: object) -> str:
    """``<Exported digits for host: 3 files>``: ``facts`` one after the other, each cut to a length
    that a line can hold, empty ones left out."""
    words = " ".join(_cut(str(fact)) for fact in facts if str(fact))
    return f"<{kind} {words}>" if words else f"<{kind}>"


def count(number: int, of: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{number:,} {of}{'' if number == 1 else 's'}"


def sizes(byte_counts: Mapping[str, int]) -> str:
    """``constants 5,832 B, workspace 640 B``, without what takes no bytes."""
    return ", ".join(f"{name} {size:,} B" for name, size in byte_counts.items() if size)


def table(
    title: str, rows: Iterable[Iterable[object]], heads: Iterable[object] = ()
) -> str:
    """Returns an HTML table for a notebook; numbers are to the right, with separators."""
    head = "".join(f"<th>{_text(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return (
        f"<table><caption>{_text(title)}</caption>"
        f"{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"
    )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _text(value: object) -> str:
    return escape(printable(_cut(str(value))))


def _cell(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f'<td style="text-align:right">{value:,}</td>'
    return f"<td>{'-' if value is None else _text(value)}</td>"

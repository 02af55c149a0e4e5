"""Numbers and names as pages show them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from crtexport.support.errors import printable

_LONGEST = 48
_OPERATOR = re.compile(r"(?<=\d) \([A-Z0-9_]+\)$")
_CHARACTER = 6.4
"""Width of a character of labels in pictures, at most, where they have 11 pixels."""


def grouped(value: int | None) -> str:
    """Returns an integer with its thousands apart; a dash for what isn't known."""
    return "–" if value is None else f"{value:,}"


def percent(part: float | None, total: float | None) -> str:
    """Returns how much of ``total`` a part is."""
    if part is None or not total:
        return "–"
    share = 100 * part / total
    return f"{share:.1f} %" if share >= 0.05 or not part else "< 0.1 %"


def real(value: float) -> str:
    """Returns a real number in a few digits."""
    return f"{value:.4g}"


def shape(dtype: str, sizes: Iterable[int]) -> str:
    """Returns a type with its shape."""
    return f"{dtype} {'×'.join(map(str, sizes))}".strip()


def short(name: str) -> str:
    """Returns a name with both its ends, in characters that can be shown."""
    text = printable(name)
    if len(text) <= _LONGEST:
        return text
    start = _LONGEST // 3
    return f"{text[:start]}…{text[start + 1 - _LONGEST:]}"


def without_type(name: str) -> str:
    """Returns the name of a .tflite file's operator without its type, as in "operator 3"."""
    return _OPERATOR.sub("", name)


def joined(operators: str) -> str:
    """Returns the operators of a node that stands for several; of many the first and the last."""
    parts = operators.split(" + ")
    return operators if len(parts) <= 3 else f"{parts[0]} … {parts[-1]} ({len(parts)})"


def fitting(text: str, width: float) -> str:
    """Returns a label as far as there is room for it, "" where that is no use."""
    room = int((width - 8) / _CHARACTER)
    if len(text) <= room:
        return text
    return f"{text[: room - 1]}…" if room >= 5 else ""

"""Sizes of memories as people write them."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB|K|M)?")
_UNITS = {
    None: 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
    "K": 1 << 10, "M": 1 << 20,  # as in linker scripts
}


def parse_size(value: object) -> object:
    """Returns the bytes of ``256KiB``, ``4MiB``, ``1GiB``, ``512B``, of ``256K`` or ``4M`` as in
    linker scripts, or a plain number. Raises ValueError."""
    if not isinstance(value, str):
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError("a size is a whole number of bytes, or text such as 256KiB or 4MiB")
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError(
            f"{value!r} is no size; write bytes, or a number with B, KiB, MiB or GiB, as in 256KiB"
        )
    return int(match[1]) * _UNITS[match[2]]


def format_size(size: int) -> str:
    """Returns ``size`` in bytes as people write it: ``256 KiB``, ``1.5 MiB``, ``300 B``."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}".replace(".0 ", " ")
    return f"{size} B"

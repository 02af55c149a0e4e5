"""Splits machine code into instructions."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from crtexport.firmware.thumb import narrow, wide
from crtexport.firmware.thumb.instruction import Decoded

_LONG = 0xE800
"""Half words from here on begin instructions of 32 bits."""


def decoded(code: bytes, address: int) -> Iterator[tuple[int, Decoded]]:
    """Yields (address, instruction) for each instruction in ``code``, which begins at ``address``.
    Bytes behind the last complete instruction are ignored."""
    halves = struct.unpack(f"<{len(code) // 2}H", code[: len(code) // 2 * 2])
    at = 0
    while at < len(halves):
        if halves[at] < _LONG:
            yield address + 2 * at, narrow.decode(halves[at])
            at += 1
            continue
        if at + 1 == len(halves):
            return
        yield address + 2 * at, wide.decode(halves[at], halves[at + 1])
        at += 2

"""Unpacks elements of 4 and 2 bits, several of which share a byte in a file, the first one in its
lowest bits; in a Graph each has a byte of its own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crtexport.ir.types import ConstantRef, Made


def stored_bytes(elements: int, bits: int) -> int:
    """Returns the bytes that ``count`` packed elements take in a file."""
    return -(-elements * bits // 8)


def unpacked(packed: ConstantRef, elements: int, bits: int, *, signed: bool) -> ConstantRef:
    """Returns the elements of a constant that has :func:`stored_bytes`."""
    return ConstantRef(nbytes=elements, made=Made(packed, _RULES[bits, signed], (1, 8 // bits)))


def _unpacking(bits: int, *, signed: bool) -> Callable[[int, bytes], bytes]:
    def rule(_: int, piece: bytes) -> bytes:
        packed = np.frombuffer(piece, np.int8 if signed else np.uint8)
        shifts = [8 - bits - low for low in range(0, 8, bits)]
        parts = [packed << shift >> (8 - bits) for shift in shifts]
        return np.stack(parts, axis=-1).astype(packed.dtype).tobytes()

    return rule


# Module-level functions, so that equal rules compare equal.
_RULES = {
    (bits, signed): _unpacking(bits, signed=signed) for bits in (2, 4) for signed in (False, True)
}

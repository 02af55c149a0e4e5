"""The protobuf wire format: fields of a message as ranges of a file, every length checked.

Bytes, strings and messages are ranges of the mapped file, which are copied only when a caller reads
them. Numbers of packed lists are decoded all at once by NumPy.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.support.errors import CrtExportError

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
"""The wire types; 3 and 4 begin and end groups, which ONNX has none of."""

_LONGEST_VARINT = 10
_WORD = (1 << 64) - 1


class Span(Struct, frozen=True):
    """The bytes ``start`` to ``end`` of a file."""

    data: mmap.mmap | bytes
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def content(self) -> bytes:
        """Returns a copy of the bytes."""
        return bytes(self.data[self.start : self.end])

    def text(self) -> str:
        """Returns the bytes as UTF-8. Raises CrtExportError where they aren't."""
        try:
            return self.content().decode("utf-8")
        except UnicodeDecodeError:
            raise CrtExportError(
                f"the text at byte {self.start} is not UTF-8; the file is damaged"
            ) from None

    def fields(self) -> Iterator[WireField]:
        """Yields the fields of the message in these bytes. Raises CrtExportError where they are
        none."""
        at = self.start
        while at < self.end:
            tag, at = self._varint(at)
            number, kind = tag >> 3, tag & 7
            if number == 0:
                raise _damaged(at, "a field without a number")
            if kind == VARINT:
                value, at = self._varint(at)
                yield WireField(number, kind, value, self)
                continue
            if kind == LENGTH:
                size, at = self._varint(at)
            elif kind in (FIXED32, FIXED64):
                size = 4 if kind == FIXED32 else 8
            else:
                raise _damaged(at, f"wire type {kind}")
            if size > self.end - at:
                raise _damaged(at, f"a field of {size} bytes where {self.end - at} are left")
            yield WireField(number, kind, 0, Span(self.data, at, at + size))
            at += size

    def _varint(self, at: int) -> tuple[int, int]:
        """Returns the number at ``at``, and the position after it."""
        value = shift = 0
        for place in range(at, min(at + _LONGEST_VARINT, self.end)):
            byte = self.data[place]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & _WORD, place + 1
            shift += 7
        raise _damaged(at, "a number that doesn't end")

    def varints(self) -> npt.NDArray[np.uint64]:
        """Returns the numbers of a packed list."""
        raw = np.frombuffer(self.content(), np.uint8)
        ends = np.flatnonzero(raw < 0x80)
        if not len(raw):
            return np.zeros(0, np.uint64)
        if not len(ends) or ends[-1] != len(raw) - 1:
            raise _damaged(self.start, "a number that doesn't end")
        starts = np.concatenate(([0], ends[:-1] + 1))
        lengths = ends - starts + 1
        if lengths.max() > _LONGEST_VARINT:
            raise _damaged(self.start, "a number of more than 64 bits")
        values = np.zeros(len(ends), np.uint64)
        for place in range(int(lengths.max())):
            there = lengths > place
            digits = (raw[starts[there] + place] & 0x7F).astype(np.uint64)
            values[there] |= digits << np.uint64(7 * place)
        return values


class WireField(Struct, frozen=True):
    """One field: ``value`` of a varint, or else its ``span`` (a varint's is the message)."""

    number: int
    kind: int
    value: int
    span: Span

    def integer(self) -> int:
        """Returns a varint as a signed number of 64 bits."""
        self._expect(VARINT)
        return self.value - (1 << 64) if self.value >> 63 else self.value

    def bytes(self) -> Span:
        """Returns the bytes of a string or message."""
        self._expect(LENGTH)
        return self.span

    def text(self) -> str:
        return self.bytes().text()

    def integers(self) -> npt.NDArray[np.int64]:
        """Returns one number, or a packed list of them, as signed numbers of 64 bits."""
        if self.kind == VARINT:
            return np.array([self.integer()], np.int64)
        return self.bytes().varints().view(np.int64)

    def fixed(self, itemsize: int) -> Span:
        """Returns the bytes of one number of ``itemsize`` bytes, or of a packed list of them."""
        if self.kind == LENGTH:
            if len(self.span) % itemsize:
                raise _damaged(self.span.start, f"{len(self.span)} bytes of numbers of {itemsize}")
            return self.span
        self._expect(FIXED32 if itemsize == 4 else FIXED64)
        return self.span

    def real(self) -> float:
        """Returns a float32; the last one of a packed list."""
        numbers = np.frombuffer(self.fixed(4).content(), "<f4")
        if not len(numbers):
            raise _damaged(self.span.start, f"field {self.number} has no number")
        return float(numbers[-1])

    def _expect(self, kind: int) -> None:
        if self.kind != kind:
            raise _damaged(self.span.start, f"field {self.number} with wire type {self.kind}")


def _damaged(at: int, what: str) -> CrtExportError:
    return CrtExportError(f"the file is damaged: {what} (byte {at})")

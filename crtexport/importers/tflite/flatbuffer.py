"""Reading a flatbuffer that nobody vouches for.

Offsets may point anywhere and lengths may claim anything. A :class:`Reader` checks each before it
is used, and refuses to read more than an honest file could hold, so that a file of tables that
share one huge vector can't fill the memory. What a table has is said by the attributes of its
class, each a :class:`Field` with its number in the schema.

The format: https://flatbuffers.dev/internals. (The generated accessors of the schema check
nothing, and importing them and reading through them takes longer than the rest of an import.)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from mmap import mmap
from typing import Any, ClassVar, Generic, TypeVar

from crtexport.errors import CrtExportError

T = TypeVar("T")
K = TypeVar("K", bound="Table")

_OFFSET, _TO_VTABLE, _PLACE = struct.Struct("<I"), struct.Struct("<i"), struct.Struct("<H")
_HEADROOM = 1 << 16
_MOST_FIELDS = 32
"""More than any table of the schema has that is read."""


class Reader:
    """Bounds-checked access to the bytes of one flatbuffer.

    All methods raise CrtExportError, without a location, when the file is damaged.
    """

    def __init__(self, data: mmap | bytes) -> None:
        self._data, self.size = data, len(data)
        # An honest file is read about once; the factor leaves room for shared strings.
        self._budget = 4 * self.size + _HEADROOM

    def number(self, layout: struct.Struct, at: int) -> Any:
        """The one number that ``layout`` has at a position."""
        return self._unpacked(layout, at)[0]

    def target(self, at: int) -> int:
        """The position that the offset at ``at`` refers to."""
        return at + int(self.number(_OFFSET, at))

    def span(self, at: int) -> tuple[int, int]:
        """Of the vector or string that the offset at ``at`` refers to: the position of its first
        element, and how many it claims to have."""
        start = self.target(at)
        return start + _OFFSET.size, self.number(_OFFSET, start)

    def vector(self, at: int, itemsize: int) -> tuple[int, int]:
        """:meth:`span` of ``itemsize``-byte elements, which the file is large enough for."""
        start, count = self.span(at)
        if count * itemsize > self.size:
            raise _damaged(f"a list claims {count} entries in a file of {self.size} bytes")
        self._spend(count * itemsize)
        return start, count

    def numbers(self, at: int, form: str) -> tuple[Any, ...]:
        """Every number of a vector of numbers."""
        start, count = self.vector(at, struct.calcsize(f"<{form}"))
        return self._unpacked(struct.Struct(f"<{count}{form}"), start)

    def octets(self, at: int) -> bytes:
        """All of a vector of bytes."""
        start, count = self.vector(at, 1)
        return self._part(start, count)

    def text(self, at: int) -> str:
        """A string. Bytes that are no UTF-8 become escapes."""
        start, count = self.span(at)
        if start + count > self.size:
            raise _damaged(f"a string claims {count} bytes in a file of {self.size} bytes")
        self._spend(count)
        return self._part(start, count).decode("utf-8", "backslashreplace")

    def places(self, at: int) -> tuple[int, ...]:
        """Where the table at ``at`` has its fields, from its position on; 0 for one left out."""
        vtable = at - self.number(_TO_VTABLE, at)
        size = self.number(_PLACE, vtable)
        count = min(max(size // _PLACE.size - 2, 0), _MOST_FIELDS)
        return self._unpacked(_PLACES[count], vtable + 2 * _PLACE.size)

    def _unpacked(self, layout: struct.Struct, at: int) -> tuple[Any, ...]:
        if at < 0:
            raise _damaged("it refers to what is before its beginning")
        try:
            return layout.unpack_from(self._data, at)
        except struct.error as error:
            raise _damaged(str(error)) from error

    def _part(self, start: int, count: int) -> bytes:
        if start + count > self.size:
            raise _damaged(f"{count} bytes at {start} reach past the end")
        return self._data[start : start + count]

    def _spend(self, amount: int) -> None:
        self._budget -= amount
        if self._budget < 0:
            raise _damaged("its tables refer to the same bytes over and over")


_PLACES = tuple(struct.Struct(f"<{count}H") for count in range(_MOST_FIELDS + 1))


class Table:
    """One table of the file. ``UNION``: the number of its kind among what operators have as
    options, where it is such."""

    UNION: ClassVar[int] = 0
    __slots__ = ("at", "places", "reader")

    def __init__(self, reader: Reader, at: int) -> None:
        self.reader, self.at = reader, at
        self.places = reader.places(at)


class Field(Generic[T]):
    """An attribute of a table: field ``number`` of the schema, read when it is asked for."""

    __slots__ = ("_absent", "_read", "number")

    def __init__(self, number: int, read: Callable[[Reader, int], T], absent: T) -> None:
        self.number, self._read, self._absent = number, read, absent

    def __get__(self, table: Table, _: type) -> T:
        place = table.places[self.number] if self.number < len(table.places) else 0
        return self._read(table.reader, table.at + place) if place else self._absent


class Vector(Generic[K]):
    """A vector of tables, each read when it is asked for; empty without a reader."""

    def __init__(
        self, kind: type[K], reader: Reader | None = None, start: int = 0, count: int = 0
    ) -> None:
        self._kind, self._reader, self._start, self._count = kind, reader, start, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> K:
        if self._reader is None or not 0 <= index < self._count:
            raise IndexError(index)
        return self._kind(self._reader, self._reader.target(self._start + _OFFSET.size * index))

    def __iter__(self) -> Iterator[K]:
        return (self[index] for index in range(self._count))


def root(reader: Reader, kind: type[K]) -> K:
    """The table that the file begins with."""
    return kind(reader, reader.target(0))


# -- fields


def _number(number: int, form: str, absent: Any) -> Field[Any]:
    layout = struct.Struct(f"<{form}")
    return Field(number, lambda reader, at: reader.number(layout, at), absent)


def integer(number: int, form: str = "i", absent: int = 0) -> Field[int]:
    """An integer as the module ``struct`` names its type; ``absent`` is the schema's default."""
    return _number(number, form, absent)


def real(number: int) -> Field[float]:
    return _number(number, "f", 0.0)


def flag(number: int, *, absent: bool = False) -> Field[bool]:
    return _number(number, "?", absent)


def text(number: int) -> Field[str]:
    return Field(number, Reader.text, "")


def numbers(number: int, form: str = "i") -> Field[tuple[Any, ...]]:
    return Field(number, lambda reader, at: reader.numbers(at, form), ())


def octets(number: int) -> Field[bytes]:
    return Field(number, Reader.octets, b"")


def span(number: int) -> Field[tuple[int, int]]:
    """Where in the file the bytes of a vector begin, and how many they claim to be."""
    return Field(number, Reader.span, (0, 0))


def table(number: int, kind: type[K]) -> Field[K | None]:
    return Field(number, lambda reader, at: kind(reader, reader.target(at)), None)


def union(number: int) -> Field[int]:
    """The position of a table of which another field says the kind; 0 where there is none."""
    return Field(number, Reader.target, 0)


def tables(number: int, kind: type[K]) -> Field[Vector[K]]:
    def read(reader: Reader, at: int) -> Vector[K]:
        return Vector(kind, reader, *reader.vector(at, _OFFSET.size))

    return Field(number, read, Vector(kind))


def _damaged(detail: str) -> CrtExportError:
    return CrtExportError(
        f"the file is truncated or damaged: {detail}", hint="get a fresh copy of the model"
    )

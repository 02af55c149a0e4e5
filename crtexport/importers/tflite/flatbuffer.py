"""Reading a flatbuffer that nobody vouches for.

The library checks nothing: offsets may point anywhere and lengths may claim anything. A
:class:`Reader` turns what it raises into one error and refuses to read more than an honest file
could hold, so that a file of tables that share one huge vector can't fill the memory. What a table
has is said by the attributes of its class, each a :class:`Field` with its number in the schema:
the accessors that are generated for all of it take longer to import than networks to read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from mmap import mmap
from typing import Any, ClassVar, Generic, TypeVar

from flatbuffers import encode, number_types
from flatbuffers import table as raw

from crtexport.errors import CrtExportError

T = TypeVar("T")
K = TypeVar("K", bound="Table")

_HEADROOM = 1 << 16
_FIELDS = 4
"""Bytes of a vtable before the offsets of its fields, of two bytes each."""
_MOST_FIELDS = 32
"""More than any table has of which a field is read."""
_TYPES = {
    "?": number_types.BoolFlags, "b": number_types.Int8Flags, "B": number_types.Uint8Flags,
    "i": number_types.Int32Flags, "I": number_types.Uint32Flags, "q": number_types.Int64Flags,
    "Q": number_types.Uint64Flags, "f": number_types.Float32Flags,
}
"""Types of numbers by the names that the module ``struct`` gives them."""
_OFFSET = number_types.UOffsetTFlags.bytewidth


class Reader:
    """Access to one flatbuffer of ``size`` bytes, which may be damaged."""

    def __init__(self, data: mmap | bytes) -> None:
        self.data, self.size = data, len(data)
        # An honest file is read about once; the factor leaves room for shared strings.
        self._budget = 4 * self.size + _HEADROOM

    def get(self, accessor: Callable[..., T], *arguments: object) -> T:
        """``accessor(*arguments)``. Raises CrtExportError, without a location, where that leads out
        of the file."""
        try:
            return accessor(*arguments)
        except (struct.error, IndexError, ValueError, TypeError, OverflowError) as error:
            raise _damaged(str(error)) from error

    def spend(self, amount: int) -> None:
        """So many bytes are read. Raises CrtExportError where they can't be in the file."""
        self._budget -= amount
        if self._budget < 0:
            raise _damaged("its tables refer to the same bytes over and over")


class Content:
    """What a table holds. A field's *place* is where it is from the table's position on, 0 for one
    that is left out."""

    __slots__ = ("_places", "_raw", "reader")

    def __init__(self, reader: Reader, at: int) -> None:
        self.reader, self._raw = reader, reader.get(raw.Table, reader.data, at)
        self._places = reader.get(self._all_places)

    def place(self, number: int) -> int:
        """Of field ``number`` of the schema."""
        return self._places[number] if number < len(self._places) else 0

    def _all_places(self) -> list[int]:
        """What the library's ``Offset`` says of one field after the other."""
        table, type_ = self._raw, number_types.VOffsetTFlags
        vtable = table.Pos - table.Get(number_types.SOffsetTFlags, table.Pos)
        size = table.Get(type_, vtable)
        count = min(max(size - _FIELDS, 0) // type_.bytewidth, _MOST_FIELDS)
        return self._elements(type_, vtable + _FIELDS, count)

    def _elements(self, type_: Any, start: int, count: int) -> list[Any]:
        dtype = number_types.to_numpy_type(type_)
        found: list[Any] = encode.GetVectorAsNumpy(dtype, self.reader.data, count, start).tolist()
        return found

    def number(self, place: int, form: str) -> Any:
        """A number of the type ``form``."""
        return self.reader.get(self._raw.Get, _TYPES[form], self._raw.Pos + place)

    def target(self, place: int) -> int:
        """The position of the table that a field refers to."""
        return self.element(self._raw.Pos + place)

    def element(self, at: int) -> int:
        """The position of the table that an element of a vector refers to."""
        return int(self.reader.get(self._raw.Indirect, at))

    def span(self, place: int) -> tuple[int, int]:
        """Of a vector or string: the position of its first element, and how many it claims to
        have."""
        start, type_ = self.target(place), number_types.UOffsetTFlags
        return start + type_.bytewidth, self.reader.get(self._raw.Get, type_, start)

    def vector(self, place: int, itemsize: int) -> tuple[int, int]:
        """:meth:`span` of ``itemsize``-byte elements, which the file is large enough for."""
        start, count = self.span(place)
        if start + count * itemsize > self.reader.size:
            raise _damaged(f"a list claims {count} entries in a file of {self.reader.size} bytes")
        self.reader.spend(count * itemsize)
        return start, count

    def numbers(self, place: int, form: str) -> tuple[Any, ...]:
        """Every number of a vector of numbers of the type ``form``."""
        type_ = _TYPES[form]
        start, count = self.vector(place, type_.bytewidth)
        return tuple(self.reader.get(self._elements, type_, start, count))

    def octets(self, place: int) -> bytes:
        """All of a vector of bytes."""
        start, count = self.vector(place, 1)
        return self.reader.data[start : start + count]

    def text(self, place: int) -> str:
        """A string. Bytes that are no UTF-8 become escapes."""
        return self.octets(place).decode("utf-8", "backslashreplace")


class Table:
    """One table of the file. ``UNION``: the number of its kind among what operators have as
    options, where it is such."""

    UNION: ClassVar[int] = 0
    __slots__ = ("content",)

    def __init__(self, reader: Reader, at: int) -> None:
        self.content = Content(reader, at)


class Field(Generic[T]):
    """An attribute of a table: field ``number`` of the schema, read when it is asked for."""

    __slots__ = ("_absent", "_read", "number")

    def __init__(self, number: int, read: Callable[[Content, int], T], absent: T) -> None:
        self.number, self._read, self._absent = number, read, absent

    def __get__(self, table: Table, _: type) -> T:
        place = table.content.place(self.number)
        return self._read(table.content, place) if place else self._absent


class Vector(Generic[K]):
    """A vector of tables, each read when it is asked for; empty without a table that has it."""

    def __init__(
        self, kind: type[K], owner: Content | None = None, start: int = 0, count: int = 0
    ) -> None:
        self._kind, self._owner, self._start, self._count = kind, owner, start, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> K:
        if self._owner is None or not 0 <= index < self._count:
            raise IndexError(index)
        return self._kind(self._owner.reader, self._owner.element(self._start + _OFFSET * index))

    def __iter__(self) -> Iterator[K]:
        return (self[index] for index in range(self._count))


def root(reader: Reader, kind: type[K]) -> K:
    """The table that the file begins with."""
    return kind(reader, reader.get(raw.Table(reader.data, 0).Indirect, 0))


# -- fields


def integer(number: int, form: str = "i", absent: int = 0) -> Field[int]:
    """An integer as the module ``struct`` names its type; ``absent`` is the schema's default."""
    return Field(number, lambda content, place: int(content.number(place, form)), absent)


def real(number: int) -> Field[float]:
    return Field(number, lambda content, place: float(content.number(place, "f")), 0.0)


def flag(number: int, *, absent: bool = False) -> Field[bool]:
    return Field(number, lambda content, place: bool(content.number(place, "?")), absent)


def text(number: int) -> Field[str]:
    return Field(number, Content.text, "")


def numbers(number: int, form: str = "i") -> Field[tuple[Any, ...]]:
    return Field(number, lambda content, place: content.numbers(place, form), ())


def octets(number: int) -> Field[bytes]:
    return Field(number, Content.octets, b"")


def span(number: int) -> Field[tuple[int, int]]:
    """Where in the file the bytes of a vector begin, and how many they claim to be."""
    return Field(number, Content.span, (0, 0))


def table(number: int, kind: type[K]) -> Field[K | None]:
    def read(owner: Content, place: int) -> K:
        return kind(owner.reader, owner.target(place))

    return Field(number, read, None)


def union(number: int) -> Field[int]:
    """The position of a table of which another field says the kind; 0 where there is none."""
    return Field(number, Content.target, 0)


def tables(number: int, kind: type[K]) -> Field[Vector[K]]:
    def read(owner: Content, place: int) -> Vector[K]:
        return Vector(kind, owner, *owner.vector(place, _OFFSET))

    return Field(number, read, Vector(kind))


def _damaged(detail: str) -> CrtExportError:
    return CrtExportError(
        f"the file is truncated or damaged: {detail}", hint="get a fresh copy of the model"
    )

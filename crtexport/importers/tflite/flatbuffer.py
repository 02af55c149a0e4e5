"""A flatbuffer reader for untrusted files.

The library checks nothing: offsets may point anywhere and lengths may claim anything. A
:class:`Reader` turns what it raises into one error and refuses to read more than an honest file
could hold, so that a file of tables that share one huge vector can't fill the memory. The
attributes of a table's class describe its fields, each a :class:`Field` with its number in the
schema: importing the generated accessors takes longer than reading most networks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from mmap import mmap
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from flatbuffers import encode, number_types

from crtexport.support.errors import CrtExportError

T = TypeVar("T")
K = TypeVar("K", bound="Table")

_HEADROOM = 1 << 16
_FIELDS = 4
"""Bytes of a vtable before the offsets of its fields, of two bytes each."""
_MOST_FIELDS = 32
"""An upper bound of the fields of any table that is read."""
_TYPES = {
    "?": number_types.BoolFlags, "b": number_types.Int8Flags, "B": number_types.Uint8Flags,
    "H": number_types.VOffsetTFlags, "i": number_types.Int32Flags, "I": number_types.UOffsetTFlags,
    "q": number_types.Int64Flags, "Q": number_types.Uint64Flags, "f": number_types.Float32Flags,
}
"""Number types by their format characters in the module ``struct``."""
_DTYPES = {form: number_types.to_numpy_type(type_) for form, type_ in _TYPES.items()}
_OFFSET = number_types.UOffsetTFlags.bytewidth


class Reader:
    """Access to one flatbuffer of ``size`` bytes, which may be damaged.

    All methods raise CrtExportError, without a location, where they would lead out of the file.
    """

    def __init__(self, data: mmap | bytes) -> None:
        self.data, self.size = data, len(data)
        # An honest file is read about once; the factor leaves room for shared strings.
        self._budget = 4 * self.size + _HEADROOM

    def number(self, form: str, at: int) -> Any:
        """Returns a number of the type ``form``."""
        return self._got(encode.Get, _TYPES[form].packer_type, self.data, at)

    def numbers(self, form: str, start: int, count: int) -> list[Any]:
        """Returns ``count`` consecutive numbers of the type ``form``."""
        if not count:
            return []
        found: list[Any] = self._got(
            encode.GetVectorAsNumpy, _DTYPES[form], self.data, count, start
        ).tolist()
        return found

    def _got(self, function: Callable[..., Any], *arguments: object) -> Any:
        try:
            return function(*arguments)
        except (struct.error, ValueError) as error:
            raise _damaged(str(error)) from error

    def target(self, at: int) -> int:
        """Returns the position that the offset at ``at`` refers to."""
        return at + int(self.number("I", at))

    def spend(self, amount: int) -> None:
        """Accounts for reading ``amount`` bytes. Raises CrtExportError where the file can't have so
        many."""
        self._budget -= amount
        if self._budget < 0:
            raise _damaged("its tables refer to the same bytes over and over")


class Content:
    """The content of a table. A field's *place* is its offset from the table's position, 0 for one
    that is left out."""

    __slots__ = ("_at", "_places", "reader")

    def __init__(self, reader: Reader, at: int) -> None:
        self.reader, self._at = reader, at
        vtable = at - reader.number("i", at)
        if vtable < 0:
            raise _damaged(f"a table at {at} is described before the file begins")
        count = max(reader.number("H", vtable) - _FIELDS, 0) // _DTYPES["H"].itemsize
        self._places = reader.numbers("H", vtable + _FIELDS, min(count, _MOST_FIELDS))

    def place(self, number: int) -> int:
        """Returns the place of field ``number`` of the schema."""
        return self._places[number] if number < len(self._places) else 0

    def number(self, place: int, form: str) -> Any:
        """Returns a number of the type ``form``."""
        return self.reader.number(form, self._at + place)

    def target(self, place: int) -> int:
        """Returns the position that a field refers to."""
        return self.reader.target(self._at + place)

    def span(self, place: int) -> tuple[int, int]:
        """Returns the position of a vector's or string's first element, and its claimed length."""
        start = self.target(place)
        return start + _OFFSET, self.reader.number("I", start)

    def vector(self, place: int, itemsize: int) -> tuple[int, int]:
        """:meth:`span` of ``itemsize``-byte elements, which the file is large enough for."""
        start, count = self.span(place)
        if start + count * itemsize > self.reader.size:
            raise _damaged(f"a list claims {count} entries in a file of {self.reader.size} bytes")
        self.reader.spend(count * itemsize)
        return start, count

    def numbers(self, place: int, form: str) -> tuple[Any, ...]:
        """Returns every number of a vector of numbers of the type ``form``."""
        return tuple(self.reader.numbers(form, *self.vector(place, _DTYPES[form].itemsize)))

    def octets(self, place: int) -> bytes:
        """Returns all bytes of a vector."""
        start, count = self.vector(place, 1)
        return self.reader.data[start : start + count]

    def text(self, place: int) -> str:
        """Returns a string. Bytes that are no UTF-8 become escapes."""
        return self.octets(place).decode("utf-8", "backslashreplace")


class Table:
    """One table of the file. ``UNION``: its number in the union of operators' options, if it is in
    that."""

    UNION: ClassVar[int] = 0
    __slots__ = ("content",)

    def __init__(self, reader: Reader, at: int) -> None:
        self.content = Content(reader, at)


class Field(Generic[T]):
    """An attribute of a table: field ``number`` of the schema, read on first access."""

    __slots__ = ("_absent", "_read", "number")

    def __init__(self, number: int, read: Callable[[Content, int], T], absent: T) -> None:
        self.number, self._read, self._absent = number, read, absent

    def __get__(self, table: Table, _: type) -> T:
        place = table.content.place(self.number)
        return self._read(table.content, place) if place else self._absent


class Vector(Generic[K]):
    """A vector of tables, each read on access; empty without a reader."""

    def __init__(
        self, kind: type[K], reader: Reader | None = None, start: int = 0, count: int = 0
    ) -> None:
        self._kind, self._reader, self._start, self._count = kind, reader, start, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> K:
        if self._reader is None or not 0 <= index < self._count:
            raise IndexError(index)
        return self._kind(self._reader, self._reader.target(self._start + _OFFSET * index))

    def __iter__(self) -> Iterator[K]:
        return (self[index] for index in range(self._count))


def root(reader: Reader, kind: type[K]) -> K:
    """Returns the table that the file begins with."""
    return kind(reader, reader.target(0))


# -- fields


def integer(number: int, form: str = "i", absent: int = 0) -> Field[int]:
    """Returns a field for an integer of a type of the module ``struct``; ``absent`` is the schema's
    default."""
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
    """Returns a field for the position of a vector's bytes in the file, and their claimed number.
    """
    return Field(number, Content.span, (0, 0))


def table(number: int, kind: type[K]) -> Field[K | None]:
    def read(owner: Content, place: int) -> K:
        return kind(owner.reader, owner.target(place))

    return Field(number, read, None)


class Union(NamedTuple):
    """A field for a table whose kind another field gives."""

    reader: Reader
    at: int

    def read(self, kind: type[K]) -> K:
        return kind(self.reader, self.at)


def union(number: int) -> Field[Union | None]:
    def read(owner: Content, place: int) -> Union:
        return Union(owner.reader, owner.target(place))

    return Field(number, read, None)


def tables(number: int, kind: type[K]) -> Field[Vector[K]]:
    def read(owner: Content, place: int) -> Vector[K]:
        return Vector(kind, owner.reader, *owner.vector(place, _OFFSET))

    return Field(number, read, Vector(kind))


def _damaged(detail: str) -> CrtExportError:
    return CrtExportError(
        f"the file is truncated or damaged: {detail}", hint="get a fresh copy of the model"
    )

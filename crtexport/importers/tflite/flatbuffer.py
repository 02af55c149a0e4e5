"""Reading a flatbuffer that nobody vouches for, through its generated accessors.

The accessors check nothing: offsets may point anywhere and lengths may claim anything. Every call
goes through a :class:`Reader`, which turns what they raise into one error and refuses to read more
than an honest file could hold, so that a file of tables that share one huge vector can't fill the
memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import flatbuffers

from crtexport.errors import CrtExportError

T = TypeVar("T")

_UOFFSET = flatbuffers.number_types.UOffsetTFlags
_HEADROOM = 1 << 16


class Reader:
    """Bounds-checked access to the tables of one flatbuffer of ``size`` bytes.

    All methods raise CrtExportError, without a location, when the file is damaged.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        # An honest file is read about once; the factor leaves room for shared strings.
        self._budget = 4 * size + _HEADROOM

    def get(self, accessor: Callable[..., T], *arguments: object) -> T:
        """``accessor(*arguments)``: a scalar, a table, or None for an absent table."""
        try:
            return accessor(*arguments)
        except (struct.error, IndexError, ValueError, TypeError, OverflowError) as error:
            raise _damaged(str(error)) from error

    def length(self, accessor: Callable[[], int], itemsize: int) -> int:
        """The length of a vector of ``itemsize``-byte items, which the file is large enough for."""
        count = self.get(accessor)
        if count * itemsize > self._size:
            raise _damaged(f"a list claims {count} entries in a file of {self._size} bytes")
        self._spend(count * itemsize)
        return count

    def tables(self, length: Callable[[], int], accessor: Callable[[int], T]) -> Iterator[T]:
        """Every table of a vector of tables."""
        for index in range(self.length(length, 4)):
            yield self.get(accessor, index)

    def numbers(
        self, length: Callable[[], int], as_numpy: Callable[[], Any], itemsize: int
    ) -> tuple[Any, ...]:
        """Every number of a vector of scalars, as Python numbers; () for an absent vector."""
        if not self.length(length, itemsize):
            return ()
        return tuple(self.get(as_numpy).tolist())

    def start(self, table: Any, slot: int) -> int:
        """Where the vector or string in ``slot`` (vtable offset) begins in the file; 0 if absent.

        The position is that of its first element, after the length.
        """
        offset = self.get(table._tab.Offset, slot)
        return self.get(table._tab.Vector, offset) if offset else 0

    def text(self, table: Any, slot: int) -> str:
        """The string in ``slot``; "" if absent. Bytes that are no UTF-8 become escapes."""
        start = self.start(table, slot)
        if not start:
            return ""
        count = self.get(table._tab.Get, _UOFFSET, start - _UOFFSET.bytewidth)
        if start + count > self._size:
            raise _damaged(f"a string claims {count} bytes in a file of {self._size} bytes")
        self._spend(count)
        raw = self.get(lambda: bytes(table._tab.Bytes[start : start + count]))
        return raw.decode("utf-8", "backslashreplace")

    def _spend(self, amount: int) -> None:
        self._budget -= amount
        if self._budget < 0:
            raise _damaged("its tables refer to the same bytes over and over")


def _damaged(detail: str) -> CrtExportError:
    return CrtExportError(
        f"the file is truncated or damaged: {detail}", hint="get a fresh copy of the model"
    )

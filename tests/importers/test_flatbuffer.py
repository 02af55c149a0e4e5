"""Damaged .tflite files at the limits of what they may make their reader do."""

from __future__ import annotations

import struct

import pytest

from crtexport.importers.tflite import schema
from crtexport.importers.tflite.flatbuffer import Content, Field, Reader, Table
from crtexport.support.errors import CrtExportError


def test_tables_may_be_read_about_four_times_and_no_more() -> None:
    for size in (0, 100):
        reader = Reader(bytes(size))
        most = 4 * size + (1 << 16)
        reader.spend(most - 1)
        reader.spend(1)
        with pytest.raises(CrtExportError, match="refer to the same bytes over and over"):
            reader.spend(1)


@pytest.mark.parametrize(("form", "itemsize"), [("B", 1), ("i", 4), ("q", 8)])
def test_lists_may_reach_to_the_last_byte_of_a_file(form: str, itemsize: int) -> None:
    count = 3
    values = struct.pack(f"<{count}{form}", *range(count))
    # An offset to the list, the table's vtable with one field, and the list at the end.
    head = struct.pack("<HHHxxiI", 6, 12, 4, 8, 4) + struct.pack("<I", count)
    whole = head + values
    assert Content(Reader(whole), 8).numbers(4, form) == tuple(range(count))
    with pytest.raises(CrtExportError, match=f"claims {count} entries in a file of"):
        Content(Reader(whole[:-1]), 8).numbers(4, form)


def test_every_field_is_one_of_the_first_that_tables_are_read_for() -> None:
    """The 32nd field of a table is read, the next is as if it were left out."""
    fields = [
        field.number for kind in vars(schema).values()
        if isinstance(kind, type) and issubclass(kind, Table)
        for field in vars(kind).values() if isinstance(field, Field)
    ]
    assert fields
    assert max(fields) < 32
    for count in (0, 1, 31, 32, 33):
        vtable = struct.pack(f"<HH{count}H", 4 + 2 * count, 4, *range(1, count + 1))
        content = Content(Reader(vtable + struct.pack("<i", len(vtable))), len(vtable))
        found = [content.place(number) for number in range(40)]
        assert found == [number + 1 if number < min(count, 32) else 0 for number in range(40)]

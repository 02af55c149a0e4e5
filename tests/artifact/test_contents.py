"""Constants of the same bytes are found, and as little as possible is read for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtexport.artifact.constant_dedup import KnownConstants
from crtexport.ir.types import ConstantRef, Made

KIND = ("i8", 100000)


def _named(
    contents: KnownConstants, data: ConstantRef, name: str, kind: tuple[str, int] = KIND
) -> str:
    found = contents.symbol(data, kind)
    if found is None:
        contents.add(data, kind, name)
    return found or name


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 50000, 99999])), max_size=8))
def test_equal_bytes_share_a_name(changes: list[tuple[int, int]]) -> None:
    contents = KnownConstants()
    names: dict[bytes, str] = {}
    for number, (value, place) in enumerate(changes):
        data = bytes(place) + bytes([value]) + bytes(99999 - place)
        name = _named(contents, ConstantRef(len(data), data), f"c{number}")
        assert name == names.setdefault(data, name)
    assert len(set(names.values())) == len(names)


@dataclass(frozen=True)
class _Counting:
    """Passes pieces on, and counts them."""

    pieces: list[int] = field(default_factory=list, compare=False)

    def __call__(self, position: int, piece: bytes) -> bytes:
        self.pieces.append(position)
        return piece


def test_what_has_no_rival_is_not_read() -> None:
    rule = _Counting()
    source = ConstantRef(100000, bytes(100000))
    made = ConstantRef(100000, made=Made(source, rule, (1, 1)))
    contents = KnownConstants()
    assert _named(contents, made, "a") == "a"
    assert _named(contents, made, "b") == "a"
    assert _named(contents, ConstantRef(100000, bytes(100000)), "other", ("i16", 50000)) == "other"
    assert rule.pieces == []
    assert _named(contents, source, "c") == "a"
    assert rule.pieces


def test_files_that_differ_in_their_samples_are_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = []
    for value in (1, 2):
        path = tmp_path / str(value)
        path.write_bytes(bytes([value]) * 100000)
        refs.append(ConstantRef(100000, path=path))
    read: list[int] = []
    part = ConstantRef.part

    def counted(ref: ConstantRef, start: int, nbytes: int) -> bytes:
        read.append(nbytes)
        return part(ref, start, nbytes)

    monkeypatch.setattr(ConstantRef, "part", counted)
    contents = KnownConstants()
    assert [_named(contents, ref, f"c{i}") for i, ref in enumerate(refs)] == ["c0", "c1"]
    assert 0 < sum(read) < 100000

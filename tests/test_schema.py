"""Mistakes in data are told with all the keys that lead there."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest

from crtexport.schema import Mistake, mistake


class Leaf(msgspec.Struct, forbid_unknown_fields=True):
    size: Annotated[int, msgspec.Meta(gt=0)]
    names: tuple[str, ...] = ()


class Tree(msgspec.Struct, forbid_unknown_fields=True):
    kind: Literal["oak", "elm"]
    leaves: dict[Annotated[str, msgspec.Meta(pattern="^[a-z]+$")], Leaf] = {}
    rows: tuple[dict[str, Leaf], ...] = ()


def check(data: Any) -> Tree:
    return msgspec.convert(data, Tree)


GOOD: dict[str, Any] = {"kind": "oak", "leaves": {"a": {"size": 1}, "b": {"size": 2}}}


@pytest.mark.parametrize(("change", "expected"), [
    ({"kind": "fir"}, Mistake("value", "invalid enum value 'fir'", ("kind",))),
    ({"leaves": []}, Mistake("value", "expected keys and values, got a list", ("leaves",))),
    ({"twig": 1}, Mistake("unknown", "unknown key", ("twig",))),
    ({"leaves": {"a": {"size": 1}, "b": {}}},
     Mistake("missing", "missing key", ("leaves", "b", "size"))),
    ({"leaves": {"a": {"size": 1}, "b": {"size": 0}, "c": {"size": -1}}},
     Mistake("value", "expected a whole number >= 1", ("leaves", "b", "size"))),
    ({"leaves": {"a": {"size": 1}, "B": {"size": 1}}},
     Mistake("value", "expected text matching regex '^[a-z]+$'", ("leaves", "B"))),
    ({"leaves": {"a": {"size": 1, "names": ["x", 1]}}},
     Mistake("value", "expected text, got a whole number", ("leaves", "a", "names", "1"))),
    ({"rows": [{}, {"x y": {"size": 1}, "u": {"size": "2"}}]},
     Mistake("value", "expected a whole number, got text", ("rows", "1", "u", "size"))),
])
def test_a_mistake_has_its_path(change: dict[str, Any], expected: Mistake) -> None:
    data = GOOD | change
    with pytest.raises(msgspec.ValidationError) as caught:
        check(data)
    assert mistake(caught.value, data, check) == expected


def test_good_data_has_none() -> None:
    assert check(GOOD).leaves["b"].size == 2

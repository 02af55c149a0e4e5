"""Records from data of others: what they take, and where what they refuse is."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import pytest
from msgspec import Meta, Struct, field

from crtexport.support.schema import (
    ContradictionError,
    Extra,
    InvalidDataError,
    Problem,
    decode_json,
    did_you_mean,
    record,
)


class Round(Struct, frozen=True, tag_field="kind", tag="round"):
    kind: ClassVar[Literal["round"]] = "round"
    radius: Annotated[int, Meta(gt=0, extra={"read": lambda text: int(str(text), 16)})]


class Square(Struct, frozen=True, tag_field="kind", tag="square"):
    kind: ClassVar[Literal["square"]] = "square"
    side: int


class Drawing(Struct, frozen=True):
    shapes: tuple[Round | Square, ...]
    name: Annotated[str, Meta(pattern="^[a-z]+$")] = "untitled"
    sizes: dict[str, Annotated[int, Meta(le=9)]] = {}
    frame: Square | None = None

    def __post_init__(self) -> None:
        if "" in self.sizes:
            raise ValueError("a size of no name")

    def check(self) -> None:
        if self.frame is not None and not self.shapes:
            raise ContradictionError(("frame",), "a frame around nothing", "leave it out")


class Page(Struct, frozen=True, forbid_unknown_fields=True):
    format_: Literal["page"] = field(name="$format")
    lines: dict[str, Annotated[list[int], Meta(max_length=2)]] = {}
    margin: float | list[float] | None = None


def problems(data: dict[str, Any], extra: Extra = "forbid") -> list[Problem]:
    with pytest.raises(InvalidDataError) as caught:
        record(Drawing, data, extra)
    return caught.value.problems


def test_data_becomes_records_all_the_way_down() -> None:
    shapes = [{"kind": "round", "radius": "1f"}, {"kind": "square", "side": 2}]
    made = record(Drawing, {"shapes": shapes, "frame": {"kind": "square", "side": 3}})
    assert made == Drawing((Round(31), Square(2)), frame=Square(3))


def test_defaults_are_the_records_own() -> None:
    assert record(Drawing, {"shapes": []}) == Drawing(())


@pytest.mark.parametrize(
    ("data", "where", "said"),
    [
        ({"shapes": [{"kind": "round", "radius": 0}]}, ("shapes", 0, "radius"), ">= 1, found 0"),
        ({"shapes": [{"kind": "round", "radius": "x"}]}, ("shapes", 0, "radius"), "invalid lit"),
        ({"shapes": [{"kind": "oval"}]}, ("shapes", 0, "kind"), "none of 'round', 'square'"),
        ({"shapes": [{"side": 1}]}, ("shapes", 0, "kind"), "this key is missing"),
        ({"shapes": [3]}, ("shapes", 0), "expected keys and values, found 3"),
        ({"shapes": {}}, ("shapes",), "expected `array`, found {}"),
        ({"shapes": [], "name": "a1"}, ("name",), "can't stand here because of '1'"),
        ({"shapes": [], "name": "a\ud800"}, ("name",), "'a\\ud800' is no text"),
        ({"shapes": [], "sizes": {"\udfff": 1}}, ("sizes", "\udfff"), "half of a surrogate pair"),
        ({"shapes": [], "sizes": {"a": 10}}, ("sizes", "a"), "expected `int` <= 9, found 10"),
        ({"shapes": [], "sizes": {"a": "7"}}, ("sizes", "a"), "expected `int`, found '7'"),
        ({"shapes": [], "colour": 1}, ("colour",), "unknown key 'colour'"),
        ({"shapes": [], "frame": {"kind": "square"}}, ("frame", "side"), "this key is missing"),
        ({"shapes": [], "frame": {"kind": "square", "side": 1}}, ("frame",), "around nothing"),
        ({"shapes": [], "sizes": {"": 1}}, (), "a size of no name"),
        ({}, ("shapes",), "this key is missing"),
    ],
)
def test_a_problem_names_its_keys(
    data: dict[str, Any], where: tuple[int | str, ...], said: str
) -> None:
    (problem,) = problems(data)
    assert problem.path == where
    assert said in problem.text


def test_all_problems_are_found_and_misspelt_keys_come_first() -> None:
    found = problems({"shapez": [], "name": 1, "sizes": {"A": 10, "b": "c"}})
    assert [problem.path for problem in found] == [
        ("shapez",), ("shapes",), ("name",), ("sizes", "A"), ("sizes", "b"),
    ]
    assert found[0].hint == "did you mean 'shapes'? keys here are: shapes, name, sizes, frame"


def test_unknown_keys_can_be_passed_over() -> None:
    assert record(Drawing, {"shapes": [], "colour": 1}, "ignore") == Drawing(())
    (problem,) = problems({"shapes": [], "name": "A", "colour": 1}, "ignore")
    assert problem.path == ("name",)


def test_a_contradiction_keeps_its_hint() -> None:
    (problem,) = problems({"shapes": [], "frame": {"kind": "square", "side": 1}})
    assert problem.hint == "leave it out"


def test_json_becomes_a_record() -> None:
    page = decode_json(Page, b'{"$format": "page", "lines": {"a": [1, 2]}, "margin": [1, 2.5]}')
    assert page == Page("page", {"a": [1, 2]}, [1.0, 2.5])


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        (b'{"$format": "page", "lines": {"a": [1, "2"]}}', ("lines", "a", 1), "found '2'"),
        (b'{"$format": "page", "lines": {"a": [1, 2, 3]}}', ("lines", "a"), "length <= 2"),
        (b'{"$format": "page", "margin": [1, "2"]}', ("margin", 1), "expected `float`"),
        (b'{"$format": "page", "margin": "2"}', ("margin",), "expected `float | array | null`"),
        (b'{"$format": "pages"}', ("$format",), "'pages' is none of 'page'"),
        (b'{"$format": "page", "line": {}}', ("line",), "unknown key 'line'"),
        (b'{"$format":\n "page" 1}', (), "not valid JSON: expected ',' or '}' at line 2"),
        (b'{"$format": "\xff"}', (), "not valid JSON: 'utf-8' codec"),
        (b"[" * 100_000, (), "nested too deeply"),
        (b"", (), "not valid JSON: Input data was truncated"),
    ],
)
def test_json_that_is_no_record_is_told_with_its_place(
    text: bytes, where: tuple[int | str, ...], said: str
) -> None:
    with pytest.raises(InvalidDataError) as caught:
        decode_json(Page, text)
    assert caught.value.problems[0].path == where
    assert said in caught.value.problems[0].text


def test_only_a_word_that_is_alike_is_meant() -> None:
    assert did_you_mean("flsh", ["flash", "ram"]) == "did you mean 'flash'?"
    assert did_you_mean("rom9", ["flash"]) is None

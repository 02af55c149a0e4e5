"""Records from data of others: what they take, and where what they refuse is."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import pytest
from msgspec import Meta, Struct
from pydantic import ValidationError

from crtexport.validation import Extra, model_of, record


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

    def check(self) -> None:
        if self.frame is not None and not self.shapes:
            raise ValueError("a frame around nothing")


def refused(data: dict[str, Any], extra: Extra = "forbid") -> tuple[tuple[int | str, ...], str]:
    with pytest.raises(ValidationError) as caught:
        record(Drawing, data, extra)
    (error,) = caught.value.errors()
    return error["loc"], error["msg"]


def test_data_becomes_records_all_the_way_down() -> None:
    shapes = [{"kind": "round", "radius": "1f"}, {"kind": "square", "side": 2}]
    made = record(Drawing, {"shapes": shapes, "frame": {"kind": "square", "side": 3}})
    assert made == Drawing((Round(31), Square(2)), frame=Square(3))


def test_defaults_are_the_records_own() -> None:
    assert record(Drawing, {"shapes": []}) == Drawing(())


@pytest.mark.parametrize(
    ("data", "where", "said"),
    [
        ({"shapes": [{"kind": "round", "radius": 0}]}, ("shapes", 0, "round", "radius"), "greater"),
        ({"shapes": [{"kind": "oval"}]}, ("shapes", 0), "'round', 'square'"),
        ({"shapes": [], "name": "A"}, ("name",), "pattern"),
        ({"shapes": [], "sizes": {"a": 10}}, ("sizes", "a"), "less than or equal to 9"),
        ({"shapes": [], "colour": 1}, ("colour",), "not permitted"),
        ({"shapes": [], "frame": {"kind": "square", "side": 1}}, (), "a frame around nothing"),
        ({}, ("shapes",), "required"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    data: dict[str, Any], where: tuple[int | str, ...], said: str
) -> None:
    found, message = refused(data)
    assert found == where
    assert said in message


def test_keys_of_others_can_be_passed_over() -> None:
    assert record(Drawing, {"shapes": [], "colour": 1}, "ignore") == Drawing(())
    assert refused({"shapes": [], "name": "A", "colour": 1}, "ignore")[0] == ("name",)


def test_a_models_keys_are_the_records_fields() -> None:
    assert list(model_of(Drawing).model_fields) == ["shapes", "name", "sizes", "frame"]
    assert list(model_of(Round).model_fields) == ["kind", "radius"]

"""Our frozen dataclasses behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from crtexport import frozen
from crtexport.ir.ops import Add, Padding2D, Sub


def classes(decorated: Callable[..., Any]) -> tuple[type[Any], ...]:
    """Classes of every shape that the project has, made with one decorator."""

    @decorated(frozen=True)
    class Empty:
        """Nothing."""

    @decorated(frozen=True)
    class One:
        """A single field, which may be no number."""

        only: Any

    @decorated(frozen=True)
    class Many(One):
        """Inherited fields, defaults, and some that don't count."""

        more: tuple[int, ...] = (1, 2)
        made: dict[str, int] = dataclasses.field(default_factory=dict, compare=False)
        hidden: bytes = dataclasses.field(default=b"", repr=False)

        def __post_init__(self) -> None:
            if self.only is None:
                raise ValueError("nothing")

    @decorated(frozen=True, eq=False)
    class Itself:
        """Equal to itself alone."""

        value: int

    @decorated(frozen=True)
    class Own:  # noqa: PLW1641  (that its hash is made all the same is the point)
        """Methods of its own."""

        value: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, int) and other == self.value

        def __repr__(self) -> str:
            return "own"

    return Empty, One, Many, Itself, Own


OURS, THEIRS = classes(frozen.dataclass), classes(dataclasses.dataclass)
PAIRS = list(zip(OURS, THEIRS, strict=True))
EMPTY, ONE, MANY, ITSELF, OWN = PAIRS
NAN = float("nan")

MADE: list[tuple[tuple[type[Any], type[Any]], tuple[Any, ...], dict[str, Any]]] = [
    (EMPTY, (), {}), (ONE, (1,), {}), (ONE, ("x",), {}), (ONE, (NAN,), {}), (ONE, ((),), {}),
    (MANY, (1,), {}), (MANY, (1, (1, 2)), {"made": {"a": 1}}), (MANY, (2, ()), {}),
    (MANY, (1,), {"hidden": b"x"}), (ITSELF, (1,), {}), (OWN, (1,), {}),
]


def objects(which: int) -> list[Any]:
    return [pair[which](*args, **named) for pair, args, named in MADE]


def test_equality_and_hashes_are_those_of_the_original() -> None:
    ours, theirs = objects(0), objects(1)
    for one, other in zip(ours, theirs, strict=True):
        for two, another in zip([*ours, *objects(0), 1], [*theirs, *objects(1), 1], strict=True):
            assert (one == two) is (other == another)
        if not isinstance(one, ITSELF[0]):
            assert hash(one) == hash(other)
    assert ours[0].__eq__(1) is NotImplemented
    assert len({*ours, *objects(0)}) == len({*theirs, *objects(1)})


def test_texts_and_parts_are_those_of_the_original() -> None:
    for one, other in zip(objects(0), objects(1), strict=True):
        assert repr(one) == repr(other)
        assert dataclasses.asdict(one) == dataclasses.asdict(other)
        assert type(one).__match_args__ == type(other).__match_args__
        assert [f.name for f in dataclasses.fields(one)] == [
            f.name for f in dataclasses.fields(other)
        ]
    loop: list[Any] = []
    loop.append(ONE[0](loop))
    assert "..." in repr(loop)


@pytest.mark.parametrize("which", [0, 1])
def test_nothing_of_an_object_changes(which: int) -> None:
    one = MANY[which](1)
    for name in ("only", "new"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to .*{name}"):
            setattr(one, name, 2)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete"):
        del one.only
    assert one == MANY[which](1)
    assert dataclasses.replace(one, more=()).more == ()
    assert one.more == (1, 2)
    assert MANY[which](1).made is not MANY[which](2).made


@pytest.mark.parametrize("which", [0, 1])
def test_constructors_take_what_they_should(which: int) -> None:
    for args, named in (((), {}), ((1, 2, {}, b"", 5), {}), ((1,), {"other": 2})):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            MANY[which](*args, **named)
    with pytest.raises(ValueError, match="nothing"):
        MANY[which](None)


def test_objects_are_copied_and_pickled() -> None:
    padding = Padding2D(1, 2, 3, 4)
    assert copy.deepcopy(padding) == padding
    assert pickle.loads(pickle.dumps(padding)) == padding  # noqa: S301
    assert len({Add(), Add(), Sub()}) == 2


def test_fields_that_are_not_taken_by_position_are_refused() -> None:
    with pytest.raises(TypeError, match="later isn't taken by position"):
        @frozen.dataclass(frozen=True)
        class _Later:
            later: int = dataclasses.field(init=False)

    with pytest.raises(TypeError, match="only frozen"):
        frozen.dataclass(frozen=False)

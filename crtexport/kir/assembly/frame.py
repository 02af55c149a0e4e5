"""Arguments of functions by Arm's procedure call standard (AAPCS32)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from crtexport.kir.language import Expr

IN_REGISTERS = 4
"""Arguments that aren't on the stack."""
CALLED = 4
"""From this register on, functions leave to their callers what is in them."""
_NAMES = {13: "sp", 14: "lr", 15: "pc"}

_T = TypeVar("_T")


class Given(Struct, frozen=True):
    """An argument: the address of element ``index`` of ``buffer``, or the value of ``index`` where
    that is empty."""

    name: str
    buffer: str
    index: Expr


def name_of(number: int) -> str:
    """Returns the name of a general register."""
    return _NAMES.get(number, f"r{number}")


def arranged(
    arguments: Sequence[_T], preferred_register: Callable[[_T], int | None], *,
    last: Callable[[_T], bool] = lambda _: False,
) -> list[_T]:
    """Returns arguments in an order in which as many as possible are in the register that
    ``preferred_register`` names (None: any). Arguments for which ``last`` is true come last."""
    places: list[_T | None] = [None] * min(IN_REGISTERS, len(arguments))
    left = []
    for one in arguments:
        number = preferred_register(one)
        if number is not None and 0 <= number < len(places):
            places[number] = one
        else:
            left.append(one)
    left.sort(key=last)
    for number, place in enumerate(places):
        if place is None:
            places[number] = left.pop(0)
    return [*(one for one in places if one is not None), *left]


def moves_between(moves: Mapping[int, int], spare: int) -> Iterator[tuple[int, int]]:
    """Yields moves between registers (to, from) one by one, none over what is still wanted; where
    they make a circle, ``spare`` is changed, too."""
    waiting = dict(moves)
    while waiting:
        target = next((to for to in waiting if to not in waiting.values()), None)
        if target is None:
            target = next(iter(waiting))
            yield spare, target
            waiting = {to: spare if was == target else was for to, was in waiting.items()}
        yield target, waiting.pop(target)

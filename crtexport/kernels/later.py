"""What is known of named values, found when somebody asks: of most nobody does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from crtexport.kernels.ir import Expr, Var, operands

T = TypeVar("T")


class Later(Generic[T]):
    """What ``find`` says of the value of a name, asked once.

    ``known`` is what is known where the name is given; only names that come later may be added to
    it. What the value is made of is found before it, one after the other: the stack is too short
    for chains of names.
    """

    def __init__(
        self, value: Expr, known: Mapping[str, T | Later[T]], find: Callable[[Expr], T]
    ) -> None:
        self._value, self._known, self._find = value, known, find
        self._found: list[T] = []

    def found(self) -> T:
        if not self._found:
            waiting = [self]
            while waiting:
                first = waiting[-1]
                before = first._missing()
                if before:
                    waiting += before
                else:
                    waiting.pop()
                    if not first._found:
                        first._found.append(first._find(first._value))
        return self._found[0]

    def _missing(self) -> list[Later[T]]:
        """What the value is made of and nobody has asked for."""
        known = self._known
        parts = (known.get(name) for name in names(self._value))
        return [part for part in parts if isinstance(part, Later) and not part._found]


def names(expr: Expr) -> set[str]:
    """The variables in an expression."""
    found: set[str] = set()
    waiting = [expr]
    while waiting:
        part = waiting.pop()
        if type(part) is Var:
            found.add(part.name)
            continue
        waiting += operands(part)
    return found

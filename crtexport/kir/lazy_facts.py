"""Facts about named values, computed on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from crtexport.kir.language import Expr
from crtexport.kir.walk import variables

T = TypeVar("T")


class LazyFact(Generic[T]):
    """The result of ``find`` for the value of a name, computed on first use.

    ``known`` holds the facts known where the name is defined; only facts about later names may be
    added to it. The facts that a value depends on are computed before it in a loop, not by
    recursion: chains of names can be longer than Python's stack.
    """

    def __init__(
        self, value: Expr, facts: Mapping[str, T | LazyFact[T]], find: Callable[[Expr], T]
    ) -> None:
        self._value, self._known, self._find = value, facts, find
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

    def _missing(self) -> list[LazyFact[T]]:
        """Returns the facts that the value depends on and that are not computed yet."""
        known = self._known
        parts = (known.get(name) for name in variables(self._value))
        return [part for part in parts if isinstance(part, LazyFact) and not part._found]

"""Addresses of an iteration: a base, a step from one iteration to the next, and an offset."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from msgspec import Struct

from crtexport.kir import language as kir
from crtexport.kir.builder import add, const, mul
from crtexport.kir.language import BinaryOp, Expr
from crtexport.kir.linear_form import linear_form

_AFFINE = (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL)

Terms = tuple[tuple[Expr, int], ...]
"""Parts of an index and their factors."""


class Base(Struct, frozen=True):
    """An address that no iteration changes: in a buffer, at an index that is the sum of
    ``terms``, each of ``size`` bytes."""

    buffer: str
    terms: Terms
    size: int

    def index(self, elements: int) -> Expr:
        """Returns the index of the element ``elements`` further."""
        found: Expr = const(elements)
        for term, factor in self.terms:
            found = add(mul(term, const(factor)), found)
        return found


class Place(Struct, frozen=True):
    """Memory that an iteration accesses: ``base`` is the number of an address, ``offset`` are bytes
    from it, ``step`` those from one iteration to the next, ``outer`` those to one of the loop
    around; ``align`` is what addresses are a multiple of."""

    base: int
    step: int
    outer: int
    offset: int
    align: int

    @property
    def group(self) -> tuple[int, int, int]:
        """Returns what is equal for places a known distance apart in all iterations."""
        return self.base, self.step, self.outer

    @property
    def moves(self) -> bool:
        """Returns whether iterations access different memory."""
        return bool(self.step or self.outer)


def affine(index: Expr, definitions: Mapping[str, Expr]) -> tuple[list[tuple[Expr, int]], int]:
    """Returns an index as terms with factors and a constant; names that are sums or multiples
    themselves are taken apart, so that what they have in common shows."""
    found: list[tuple[Expr, int]] = []
    terms, constant = linear_form(index)
    for term, factor in terms:
        value = definitions.get(term.name) if isinstance(term, kir.Var) else None
        if not isinstance(value, kir.Binary) or value.op not in _AFFINE:
            found.append((term, factor))
            continue
        inner, more = affine(value, definitions)
        found += [(part, times * factor) for part, times in inner]
        constant += factor * more
    return found, constant


def multiple(terms: Iterable[tuple[Expr, int]], definitions: Mapping[str, Expr]) -> int:
    """Returns what a sum of terms with factors is surely a multiple of; 0 if it is 0."""
    return math.gcd(*(factor * _multiple(term, definitions) for term, factor in terms))


def _multiple(expr: Expr, definitions: Mapping[str, Expr]) -> int:
    match expr:
        case kir.Const(value=value):
            return int(value)
        case kir.Var(name=name) if name in definitions:
            terms, constant = linear_form(definitions[name])
            return math.gcd(constant, multiple(terms, definitions))
        case kir.Binary(op=BinaryOp.MUL):
            return _multiple(expr.a, definitions) * _multiple(expr.b, definitions)
        case kir.Binary(op=BinaryOp.ADD | BinaryOp.SUB | BinaryOp.MIN | BinaryOp.MAX):
            return math.gcd(_multiple(expr.a, definitions), _multiple(expr.b, definitions))
        case kir.Select():
            return math.gcd(_multiple(expr.then, definitions), _multiple(expr.other, definitions))
        case _:
            return 1

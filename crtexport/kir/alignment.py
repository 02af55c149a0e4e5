"""Alignment of the addresses of a kernel, as far as indices prove it."""

from __future__ import annotations

import math

from crtexport.kir.language import Binary, BinaryOp, Expr, LoadVector, LoadWord
from crtexport.kir.linear_form import linear_form


def alignment(load: LoadWord | LoadVector) -> int:
    """Returns a number of bytes that divides the address of a load, whatever its index: at most the
    size of what is loaded."""
    size = load.buffer.dtype.itemsize
    whole = 4 if isinstance(load, LoadWord) else load.type.itemsize
    return math.gcd(whole, load.buffer.align, size * factor(load.index))


def factor(index: Expr) -> int:
    """Returns a number that divides every value of an index; 0 for an index that is always 0."""
    terms, constant = linear_form(index)
    return math.gcd(constant, *(times * _factor_of_term(term) for term, times in terms))


def _factor_of_term(term: Expr) -> int:
    match term:
        case Binary(op=BinaryOp.MUL):
            return factor(term.a) * factor(term.b)
        case _:
            return 1

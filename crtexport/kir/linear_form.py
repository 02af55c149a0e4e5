"""Indices as sums of products with constants."""

from __future__ import annotations

from crtexport.kir.language import Binary, BinaryOp, Const, Expr

Terms = list[tuple[Expr, int]]
"""Terms and their factors, in the order of the text; none is a sum or a product with a constant."""

_SUMS = (BinaryOp.ADD, BinaryOp.SUB)


def linear_form(expr: Expr) -> tuple[Terms, int]:
    """Returns the terms of an integer expression and the constant that is added to them."""
    terms: Terms = []
    return terms, _collect(expr, 1, terms)


def _collect(expr: Expr, factor: int, terms: Terms) -> int:
    """Adds ``factor`` times ``expr`` to ``terms``; returns the constant part of that."""
    match expr:
        case Const():
            return factor * int(expr.value)
        case Binary(op=BinaryOp.ADD):
            return _collect(expr.a, factor, terms) + _collect(expr.b, factor, terms)
        case Binary(op=BinaryOp.SUB):
            return _collect(expr.a, factor, terms) + _collect(expr.b, -factor, terms)
        case Binary(op=BinaryOp.MUL, b=Const(value=value)):
            return _collect(expr.a, factor * int(value), terms)
        case _:
            terms.append((expr, factor))
            return 0


def split_constant(index: Expr) -> tuple[Expr, int]:
    """Returns an index without the constants that are added to it last, and the sum of these: the
    first part is what neighbouring accesses have in common."""
    added = 0
    while isinstance(index, Binary) and isinstance(index.b, Const) and index.op in _SUMS:
        value = int(index.b.value)
        added += value if index.op is BinaryOp.ADD else -value
        index = index.a
    return index, added

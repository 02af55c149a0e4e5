"""What addresses of a kernel are multiples of, as far as indices say it."""

from __future__ import annotations

import math

from crtexport.kernels.ir import Binary, BinaryOp, Const, Expr, LoadVector, LoadWord


def alignment(load: LoadWord | LoadVector) -> int:
    """What an address is surely a multiple of, at most the bytes of what is loaded from it."""
    size = load.buffer.dtype.itemsize
    whole = 4 if isinstance(load, LoadWord) else load.type.itemsize
    return math.gcd(whole, load.buffer.align, size * factor(load.index))


def factor(index: Expr) -> int:
    """What an index is surely a multiple of; 0 of one that is 0."""
    match index:
        case Const(value):
            return abs(int(value))
        case Binary(BinaryOp.ADD | BinaryOp.SUB, a, b):
            return math.gcd(factor(a), factor(b))
        case Binary(BinaryOp.MUL, a, b):
            return factor(a) * factor(b)
        case _:
            return 1

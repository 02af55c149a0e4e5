"""The position of a number's highest bit."""

from __future__ import annotations

from crtexport.kir.builder import KernelBuilder, add, const, ge, select, shr
from crtexport.kir.language import Expr, Scalar


def highest_bit(b: KernelBuilder, value: Expr) -> Expr:
    """Returns floor(log2(value)) of a u32, as i32; 0 of 0. By halves, without branches: not all
    processors count leading zeros."""
    found: Expr = const(0, Scalar.I32)
    for step in (16, 8, 4, 2, 1):
        large = ge(value, const(1 << step, Scalar.U32))
        count = b.let("bits", select(large, const(step, Scalar.I32), const(0, Scalar.I32)))
        found = b.let("bit", add(found, count))
        if step > 1:
            rest = shr(value, const(step, Scalar.U32))
            value = b.let("rest", select(large, rest, value))
    return found

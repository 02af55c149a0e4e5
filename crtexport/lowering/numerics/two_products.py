"""Results of sums by one or two products of integers: the run-time half of
:mod:`crtexport.lowering.numerics.result_steps`."""

from __future__ import annotations

from crtexport.kir.builder import KernelBuilder, add, cast, clamp, const, i32, mul, shl, shr
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.result_steps import TwoProducts

_WORD = 32


def by_two_products(
    b: KernelBuilder, steps: TwoProducts, total: Expr, limits: tuple[int, int]
) -> Expr:
    """Returns i32: the result within ``limits`` of the i32 ``total``, by the constants of the first
    channel."""
    addend, first, second = (int(number) for number in steps.constants[0])
    moved = b.let("moved", add(shl(total, i32(steps.places)), i32(addend)))
    high = b.let("high", upper_word(moved, first))
    if steps.shift is not None:
        scaled = shr(high, i32(steps.shift))
    else:
        scaled = upper_word(high, second, 1 << _WORD - 1 if steps.rounded else 0)
    return clamp(b.let("scaled", scaled), *limits)


def upper_word(value: Expr, factor: int, half: int = 0) -> Expr:
    """The upper word of a product, to which ``half`` is added."""
    product = mul(cast(value, Scalar.I64), const(factor, Scalar.I64))
    total = add(product, const(half, Scalar.I64)) if half else product
    return cast(shr(total, const(_WORD, Scalar.I64)), Scalar.I32)

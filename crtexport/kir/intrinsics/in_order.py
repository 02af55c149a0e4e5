"""Values that are computed in the order in which a kernel has them.

The floating-point unit of a Cortex-M4 or M33 lets an instruction wait that needs the result of the
one before. LLVM's models of these processors don't say so: to save a register, they put each sum
right behind its product. None of these operations on floats begins before the one before it in its
block has ended.

Compilers of C put sums off until they are read. Where there are eight registers, products that wait
for that are spilled.
"""

from __future__ import annotations

import numpy as np

from crtexport.kir.builder import call
from crtexport.kir.intrinsics.base import Intrinsic
from crtexport.kir.language import Expr, Scalar

_PAIR = (Scalar.F32, Scalar.F32)


def _product(a: float, b: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float32(a) * np.float32(b))


def _sum(a: float, b: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float32(a) + np.float32(b))


PRODUCT = Intrinsic(
    name="in_order_mul", params=_PAIR, result=Scalar.F32, evaluate=_product,
    c_expression="{0} * {1}", llvm="fmul float {0}, {1}",
)
SUM = Intrinsic(
    name="in_order_add", params=_PAIR, result=Scalar.F32, evaluate=_sum,
    c_expression="{0} + {1}", llvm="fadd float {0}, {1}",
)
VALUE = Intrinsic(
    name="in_order_value", params=(Scalar.F32,), result=Scalar.F32, evaluate=lambda value: value,
    c_expression="{0}", llvm="bitcast float {0} to float",
)
WORD = Intrinsic(
    name="in_order_i32", params=(Scalar.I32,), result=Scalar.I32, evaluate=lambda value: value,
    c_expression="crt_in_order({0})", llvm="bitcast i32 {0} to i32",
    c_helper=(
        "/* The value, computed here: compilers such as gcc 12 would put sums off, and keep what\n"
        "   they are made of in registers. */\n"
        "static inline int32_t crt_in_order(int32_t value)\n"
        "{\n"
        "#ifdef __GNUC__\n"
        "    __asm__(\"\" : \"+r\"(value));\n"
        "#endif\n"
        "    return value;\n"
        "}\n"
    ),
)
IN_ORDER = (PRODUCT, SUM, VALUE, WORD)
FREE = frozenset({VALUE.name, WORD.name})
"""The names of those that are no instruction."""


def product_in_order(x: Expr, w: Expr) -> Expr:
    """x * w, two floats."""
    return call(PRODUCT.name, x, w, type_=Scalar.F32)


def sum_in_order(total: Expr, x: Expr) -> Expr:
    """total + x, two floats."""
    return call(SUM.name, total, x, type_=Scalar.F32)


def value_in_order(x: Expr) -> Expr:
    """The float x, such as one that is loaded."""
    return call(VALUE.name, x, type_=Scalar.F32)


def word_in_order(x: Expr) -> Expr:
    """The i32 x, such as a sum."""
    return call(WORD.name, x, type_=Scalar.I32)

"""The text of a kernel shows each of its statements and expressions."""

from __future__ import annotations

from crtexport.kir.builder import (
    KernelBuilder,
    add,
    call,
    cast,
    const,
    gt,
    i32,
    load,
    load_vector,
    load_word,
    max_,
    mul,
    select,
)
from crtexport.kir.language import Kernel, Scalar
from crtexport.kir.text import dump

TEXT = """\
kernel everything(
    x: i8[32] align 16 noalias,
    y: i32[32] align 4 writable,
) {
    # all statements
    for i < 8 unroll 4 {
        local total: i32 in 24 bits = 0:i32
        let first: i32 = i32(x[i])
        total = max(total + first, 5:i32)
        if first > 3:i32 {
            y[i] = total
        } else {
            y[i + 8] = word(x[i * 4])
            y[i] = select(total > 0:i32, arm_sxtb16(total), first)
        }
    }
    y[16; 4] = i32x4(y[0; 4])
}
"""


def everything() -> Kernel:
    b = KernelBuilder("everything")
    x = b.buffer("x", Scalar.I8, 32, align=16)
    y = b.buffer("y", Scalar.I32, 32, writable=True, noalias=False)
    b.comment("all statements")
    with b.loop("i", 8, unroll=4) as i:
        total = b.local("total", i32(0), 24)
        first = b.let("first", cast(load(x, i), Scalar.I32))
        b.assign(total, max_(add(total, first), i32(5)))
        with b.if_(gt(first, i32(3))):
            b.store(y, i, total)
        with b.else_():
            b.store(y, add(i, const(8)), load_word(x, mul(i, const(4))))
            extended = call("arm_sxtb16", total, type_=Scalar.I32)
            b.store(y, i, select(gt(total, i32(0)), extended, first))
    b.store_vector(y, const(16), load_vector(y, const(0), Scalar.I32X4))
    return b.finish()


def test_every_statement_and_expression_is_there() -> None:
    assert dump(everything()) == TEXT

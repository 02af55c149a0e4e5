"""Unrolls innermost loops for scalar processors, so that counting and branching cost less.

On such processors (Cortex-M0 to M7, RV32, i386) the loop control of a plain multiply-accumulate
takes as many instructions as its arithmetic, and neither gcc nor LLVM unrolls it by itself at the
sizes of a layer.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from crtexport.kir.language import Body, Comment, Const, For, Kernel, Stmt
from crtexport.kir.walk import has_loop, rewrite
from crtexport.support.target import Target

_VECTOR_FEATURES = ("+mve", "+mve.fp", "+v", "+zve32x", "+zve32f", "+sse2", "+avx2")


STATEMENTS = 48
"""Of a body that is copied as often as asked; of longer ones there are fewer copies, since counting
costs little beside them."""


def vectorizes(target: Target) -> bool:
    """Returns whether compilers vectorize plain loops for the target, which unrolling would
    prevent."""
    return target.triple.startswith(("x86_64", "aarch64")) or any(
        feature in _VECTOR_FEATURES for feature in target.features
    )


def unroll_inner_loops(kernel: Kernel, factor: int) -> Kernel:
    """Returns the kernel with up to ``factor`` copies of the body of each innermost loop that has
    at least twice as many iterations."""
    return replace(kernel, body=rewrite(kernel.body, partial(_unrolled, factor=factor)))


def _unrolled(stmt: Stmt, factor: int) -> Body:
    if not isinstance(stmt, For) or has_loop(stmt.body):
        return (stmt,)
    extent = stmt.extent
    statements = sum(not isinstance(inner, Comment) for inner in stmt.body)
    copies = min(factor, factor * STATEMENTS // max(statements, 1))
    worth = copies > 1 and isinstance(extent, Const) and extent.value >= 2 * copies
    return (replace(stmt, unroll=copies) if worth and stmt.unroll is None else stmt,)

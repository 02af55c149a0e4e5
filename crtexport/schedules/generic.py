"""Scalar machines: innermost loops are unrolled, so that counting and branching cost less.

On such cores (Cortex-M0 to M7, RV32, i386) the loop control of a plain multiply-accumulate is as
long as its arithmetic, and neither gcc nor LLVM unrolls it by itself at the sizes of a layer.
"""

from __future__ import annotations

from msgspec.structs import replace

from crtexport.kernels.ir import Body, Const, For, If, Kernel
from crtexport.kernels.skeleton import has_loop
from crtexport.target import Target

_VECTOR_FEATURES = ("+mve", "+mve.fp", "+v", "+zve32x", "+zve32f", "+sse2", "+avx2")


STATEMENTS = 48
"""Of a body that is copied as often as asked; of longer ones there are fewer copies, since counting
costs little beside them."""


def vectorizes(target: Target) -> bool:
    """Whether compilers turn plain loops into vector code there, which unrolling would spoil."""
    return target.triple.startswith(("x86_64", "aarch64")) or any(
        feature in _VECTOR_FEATURES for feature in target.features
    )


def unroll_inner_loops(kernel: Kernel, factor: int) -> Kernel:
    """Asks for up to ``factor`` copies of each innermost loop that runs at least twice as often."""
    return replace(kernel, body=_body(kernel.body, factor))


def _body(body: Body, factor: int) -> Body:
    return tuple([
        _loop(stmt, factor) if type(stmt) is For
        else _branch(stmt, factor) if type(stmt) is If else stmt
        for stmt in body
    ])


def _branch(stmt: If, factor: int) -> If:
    return replace(stmt, then=_body(stmt.then, factor), other=_body(stmt.other, factor))


def _loop(stmt: For, factor: int) -> For:
    if has_loop(stmt.body):
        return replace(stmt, body=_body(stmt.body, factor))
    extent = stmt.extent
    copies = min(factor, factor * STATEMENTS // max(len(stmt.body), 1))
    worth = copies > 1 and isinstance(extent, Const) and extent.value >= 2 * copies
    return replace(stmt, unroll=copies) if worth and stmt.unroll is None else stmt

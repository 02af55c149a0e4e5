"""Innermost loops of scalar machines are copied as often as it pays."""

from __future__ import annotations

import pytest

from crtexport.kir.builder import KernelBuilder, add, const, load
from crtexport.kir.language import For, Kernel, Scalar
from crtexport.schedules.common.unroll import STATEMENTS, unroll_inner_loops


def copying(extent: int, statements: int) -> Kernel:
    """A loop within a loop whose body has so many statements, and comments, which don't count."""
    b = KernelBuilder("copying")
    x = b.buffer("input", Scalar.I32, extent)
    y = b.buffer("output", Scalar.I32, extent + statements, writable=True)
    with b.loop("i", 100), b.loop("j", extent) as j:
        for number in range(statements):
            b.comment("no statement")
            b.store(y, add(j, const(number)), load(x, j))
    return b.finish()


@pytest.mark.parametrize(
    ("extent", "statements", "copies"),
    [
        (100, 1, 8), (100, STATEMENTS, 8), (100, 2 * STATEMENTS, 4), (100, 9 * STATEMENTS, None),
        (16, 1, 8), (15, 1, None), (8, 2 * STATEMENTS, 4),
    ],
)
def test_short_bodies_are_copied_as_asked_and_long_ones_less(
    extent: int, statements: int, copies: int | None
) -> None:
    (outer,) = unroll_inner_loops(copying(extent, statements), 8).body
    assert isinstance(outer, For)
    (inner,) = outer.body
    assert isinstance(inner, For)
    assert (outer.unroll, inner.unroll) == (None, copies)

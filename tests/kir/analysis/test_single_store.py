"""A kernel is known to store each result once, in the order of pixels, or it isn't taken."""

from __future__ import annotations

import pytest

from crtexport.kir.analysis.single_store import Results
from crtexport.kir.builder import KernelBuilder, add, const, min_, mul, sub
from crtexport.kir.language import Buffer, Expr, Kernel, Scalar

PIXELS, CHANNELS = 7, 3


def kernel(together: int, kind: str) -> tuple[Kernel, Buffer]:
    """Stores PIXELS of CHANNELS, ``together`` pixels in a block."""
    b = KernelBuilder("k")
    y = b.buffer("y", Scalar.I8, PIXELS * CHANNELS, writable=True)

    def store(pixel: Expr) -> None:
        with b.loop("c", CHANNELS) as c:
            b.store(y, add(mul(b.let("pixel", pixel), const(CHANNELS)), c), const(1, Scalar.I32))

    with b.loop("block", -(-PIXELS // together)) as block:
        first = mul(block, const(together))
        if kind == "overlapping":
            first = b.let("first", min_(first, const(PIXELS - together)))
        with b.loop("line", together) as line:
            match kind:
                case "last again":
                    store(min_(add(first, line), const(PIXELS - 1)))
                case "backwards":
                    store(sub(const(PIXELS - 1), add(first, line)))
                case "cut short":
                    store(first)
                case _:
                    store(add(first, line))
    return b.finish(), y


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("kind", ["plain", "overlapping", "last again"])
def test_what_blocks_do_again_is_left_out(kind: str, ordered: bool) -> None:
    whole, y = kernel(1 if kind == "plain" else 3, kind)
    found = Results(y, PIXELS, CHANNELS, ordered).stored_once(whole)
    assert found is not None
    assert (found == whole) is (kind == "plain")


def test_the_order_matters_to_those_who_ask_for_it() -> None:
    whole, y = kernel(1, "backwards")
    assert Results(y, PIXELS, CHANNELS, ordered=False).stored_once(whole) == whole
    assert Results(y, PIXELS, CHANNELS, ordered=True).stored_once(whole) is None


def test_kernels_that_store_a_result_twice_or_never_are_not_taken() -> None:
    whole, y = kernel(7, "cut short")
    assert Results(y, PIXELS, CHANNELS, ordered=False).stored_once(whole) is None

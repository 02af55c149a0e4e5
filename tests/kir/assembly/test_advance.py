"""Loads advance the pointers of innermost loops, and everything reckons with that."""

from __future__ import annotations

import numpy as np
import pytest

from crtexport.kir.assembly.armv7em.spellings import Features
from crtexport.kir.builder import KernelBuilder, add, const, i32, load, mul, wrap_add, wrap_mul
from crtexport.kir.language import Kernel, Scalar
from tests.kir.assembly.loops import Array, assembled, assert_same

ROWS, STEPS = 3, 5


def dots(step: int, rest: int, first: int = 0) -> Kernel:
    """Each row of ``w`` times ``x``, ``step`` words in an iteration and ``rest`` behind the loop;
    words before ``first`` aren't read."""
    b = KernelBuilder("dots")
    words = first + step * STEPS + rest
    x = b.buffer("x", Scalar.I32, words)
    w = b.buffer("w", Scalar.I32, ROWS * words)
    y = b.buffer("y", Scalar.I32, ROWS, writable=True)
    with b.loop("once", 1, assembled=True), b.loop("row", ROWS) as row:
        total = b.local("total", i32(0))

        def products(begin: object, count: int) -> None:
            for place in range(count):
                at = add(begin, const(place))
                product = wrap_mul(load(x, at), load(w, add(mul(row, const(words)), at)))
                b.assign(total, wrap_add(total, product))

        with b.loop("step", STEPS, unroll=1) as number:
            products(add(mul(number, const(step)), const(first)), step)
        products(const(words - rest), rest)
        b.store(y, row, total)
    return b.finish()


def arrays_of(kernel: Kernel) -> dict[str, Array]:
    rng = np.random.default_rng(len(kernel.buffers[0].name))
    return {
        buffer.name: rng.integers(-1 << 31, 1 << 31, buffer.size).astype(np.int32)
        for buffer in kernel.buffers
    }


def lines_of(kernel: Kernel, dsp: bool) -> tuple[str, ...]:
    return assembled(kernel, Features(dsp)).lines


@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize("rest", [0, 1, 7])
@pytest.mark.parametrize("step", [2, 8, 63, 64, 100])
def test_sums_of_loops_and_of_what_is_left_are_right(step: int, rest: int, first: int) -> None:
    kernel = dots(step, rest, first)
    assert_same(kernel, arrays_of(kernel), Features(dsp=True))


def test_no_addition_moves_pointers_where_loads_can() -> None:
    lines = lines_of(dots(8, 0), dsp=True)
    begin = next(at for at, line in enumerate(lines) if "]!" in line)
    body = lines[begin : next(at for at, line in enumerate(lines) if line.startswith("bne"))]
    assert sum("]!" in line for line in body) == 2  # both pointers, by eight words
    assert all("#32]!" in line for line in body if "]!" in line)
    assert not any(line.startswith(("add", "sub")) and "#32" in line for line in body)


@pytest.mark.parametrize(("step", "dsp"), [(64, True), (8, False)])
def test_additions_remain_where_loads_reach_less_or_wait(step: int, dsp: bool) -> None:
    """They move their base by at most 255 bytes; on Cortex-M3 the next load waits for it."""
    assert not any("]!" in line for line in lines_of(dots(step, 0), dsp))

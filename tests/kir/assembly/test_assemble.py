"""Functions of instructions do what the loops that they are made of do."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.kir.assembly.armv7em.allocate import Allocation
from crtexport.kir.assembly.armv7em.instructions import UnsupportedError
from crtexport.kir.assembly.armv7em.renumber import renumbered
from crtexport.kir.assembly.armv7em.select import select
from crtexport.kir.assembly.armv7em.spellings import Features
from crtexport.kir.assembly.armv7em.text import text
from crtexport.kir.assembly.assemble import written
from crtexport.kir.assembly.encode import encode
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    call,
    clamp,
    const,
    div,
    i32,
    load,
    mul,
    shl,
    shr,
    sub,
)
from crtexport.kir.language import For, Kernel, Scalar
from tests.kir.assembly.loops import M7, M33, SIZE, Drawn, assembled, assert_same


@pytest.mark.parametrize("features", [Features(dsp=True), Features(dsp=False), M7, M33])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_memory_is_what_the_interpreter_makes_of_it(
    features: Features, data: st.DataObject
) -> None:
    drawn = Drawn(data, features.dsp)
    kernel = drawn.kernel()
    with suppress(UnsupportedError):  # there may be too few registers
        assert_same(kernel, drawn.arrays(), features, n=data.draw(st.integers(1, 3)))


@pytest.mark.parametrize("places", [1, 3, 15, 16, 20])
def test_a_half_of_a_word_is_moved_and_shifted_at_once(places: int) -> None:
    b = KernelBuilder("packed")
    x = b.buffer("x", Scalar.I32, SIZE)
    y = b.buffer("y", Scalar.I32, SIZE, writable=True)
    with b.loop("i", 100, assembled=True) as i:
        b.store(y, i, call("arm_pkhbt", i32(7), shl(load(x, i), i32(places)), type_=Scalar.I32))
    kernel = b.finish()
    values = np.random.default_rng(places).integers(-1 << 31, 1 << 31, SIZE).astype(np.int32)
    if places > 10:  # no bits of the sum are lost
        values >>= places
    values >>= places
    assert_same(kernel, {"x": values, "y": np.zeros(SIZE, np.int32)}, Features(dsp=True))
    lines = assembled(kernel, Features(dsp=True)).lines
    assert any(f"lsl #{16 + places}" in line for line in lines) == (places < 16)


@pytest.mark.parametrize(("low", "name"), [(-128, "ssat"), (0, "usat")])
@pytest.mark.parametrize("right", [1, 9, 31])
def test_a_shift_is_part_of_what_saturates(right: int, low: int, name: str) -> None:
    b = KernelBuilder("saturated")
    x = b.buffer("x", Scalar.I32, SIZE)
    y = b.buffer("y", Scalar.I32, SIZE, writable=True)
    with b.loop("i", 100, assembled=True) as i:
        b.store(y, i, clamp(shr(load(x, i), i32(right)), low, 127 if low else 255))
    kernel = b.finish()
    rng = np.random.default_rng(right)
    values = rng.integers(-1 << min(31, right + 9), 1 << min(31, right + 9), SIZE)
    arrays = {"x": values.astype(np.int32), "y": np.zeros(SIZE, np.int32)}
    assert_same(kernel, arrays, Features(dsp=False))
    lines = assembled(kernel, Features(dsp=False)).lines
    assert any(line.startswith(name) and line.endswith(f"asr #{right}") for line in lines)
    assert not any(line.startswith("asr") for line in lines)


def _products_of_words(sums: int, words: int) -> Kernel:
    """Returns a block that adds products of ``words`` words to each of ``sums`` sums."""
    b = KernelBuilder("products")
    x = b.buffer("x", Scalar.I32, words)
    w = b.buffer("w", Scalar.I32, sums * words)
    y = b.buffer("y", Scalar.I32, sums, writable=True)
    with b.loop("once", 1, assembled=True):
        totals = [b.local(f"total{one}", i32(0)) for one in range(sums)]
        for word in range(words):
            value = b.let("value", load(x, const(word)))
            for one, total in enumerate(totals):
                weight = load(w, const(one * words + word))
                b.assign(total, call("arm_smlad", value, weight, total, type_=Scalar.I32))
        for one, total in enumerate(totals):
            b.store(y, const(one), total)
    return b.finish()


@pytest.mark.parametrize("sums", [2, 4, 6])
def test_loads_are_clustered_from_the_first_products_on(sums: int) -> None:
    """Registers of sums that haven't begun are no place for values that are loaded."""
    kernel = _products_of_words(sums, 12)
    rng = np.random.default_rng(sums)
    arrays = {
        name: rng.integers(-1 << 12, 1 << 12, size).astype(np.int32)
        for name, size in (("x", 12), ("w", sums * 12), ("y", sums))
    }
    assert_same(kernel, arrays, Features(dsp=True))
    loads = [line.startswith("ldr") for line in assembled(kernel, Features(dsp=True)).lines]
    lone = sum(
        one and not before and not behind
        for before, one, behind in zip(loads, loads[1:], loads[2:], strict=False)
    )
    assert lone <= sum(loads) // 8


@pytest.mark.parametrize("dsp", [True, False])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_exchanged_registers_leave_fewer_bytes(dsp: bool, data: st.DataObject) -> None:
    kernel = Drawn(data, dsp).kernel()
    selected = [select(stmt, Features(dsp)) for stmt in kernel.body if isinstance(stmt, For)]
    for one in selected:
        with suppress(UnsupportedError):
            placed = Allocation(one.body, Features(dsp), frozenset()).result()
            exchanged = renumbered(placed, one.arguments)
            before, after = (text(one.body, p, one.arguments) for p in (placed, exchanged))
            assert len(before.lines) - 4 <= len(after.lines) <= len(before.lines) + 4  # moves
            # A copy of an argument may be spared at the cost of some long instructions.
            assert len(encode(after.lines)) <= len(encode(before.lines)) + 4
            _, code = written(one, placed)
            assert len(code) <= len(encode(before.lines))
            for block, numbers in placed.numbers.items():
                pairs = set(zip(numbers.values(), exchanged.numbers[block].values(), strict=True))
                assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


@pytest.mark.parametrize("divisor", [2, 3, 8, 64])
@pytest.mark.parametrize("n", [0, 5, 19])
def test_quotients_are_rounded_toward_zero(n: int, divisor: int) -> None:
    """Those of indices from outside are arguments; others by powers of two take no division."""
    b = KernelBuilder("quotients")
    given = b.param("n", Scalar.INDEX)
    x = b.buffer("x", Scalar.I32, SIZE)
    y = b.buffer("y", Scalar.I32, SIZE, writable=True)
    by = const(divisor)
    with b.loop("i", 20, assembled=True) as i:
        outside = div(sub(mul(given, const(3)), const(7)), by)
        inside = div(sub(mul(i, const(5)), const(40)), by)
        value = div(load(x, i), i32(divisor))
        # The same quotient is wanted twice, and one more of it.
        more = div(inside, const(2))
        b.store(y, add(add(add(outside, inside), more), const(100)), value)
        b.store(y, add(add(inside, i), const(150)), add(value, i32(1)))
    kernel = b.finish()
    rng = np.random.default_rng(n)
    arrays = {
        "x": rng.integers(-1 << 31, 1 << 31, SIZE).astype(np.int32), "y": np.zeros(SIZE, np.int32),
    }
    assert_same(kernel, arrays, Features(dsp=True), n=n)
    made = assembled(kernel, Features(dsp=True))
    assert any("sdiv" in line for line in made.lines) == (divisor == 3)

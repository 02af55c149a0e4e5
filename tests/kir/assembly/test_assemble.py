"""Functions of instructions do what the loops that they are made of do."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.kir.assembly.armv7em.instructions import UnsupportedError
from crtexport.kir.assembly.armv7em.spellings import Features
from crtexport.kir.assembly.assemble import assemble
from crtexport.kir.builder import KernelBuilder, call, i32, load, shl
from crtexport.kir.language import For, Scalar
from tests.kir.assembly.loops import SIZE, Drawn, assert_same


@pytest.mark.parametrize("dsp", [True, False])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_memory_is_what_the_interpreter_makes_of_it(dsp: bool, data: st.DataObject) -> None:
    drawn = Drawn(data, dsp)
    kernel = drawn.kernel()
    with suppress(UnsupportedError):  # there may be too few registers
        assert_same(kernel, drawn.arrays(), Features(dsp), n=data.draw(st.integers(1, 3)))


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
    (loop,) = kernel.body
    assert isinstance(loop, For)
    lines = assemble(loop, kernel, Features(dsp=True)).lines
    assert any(f"lsl #{16 + places}" in line for line in lines) == (places < 16)

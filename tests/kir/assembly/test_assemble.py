"""Functions of instructions do what the loops that they are made of do."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.kir.assembly.armv7em.instructions import UnsupportedError
from crtexport.kir.assembly.armv7em.spellings import Features
from tests.kir.assembly.loops import Drawn, assert_same


@pytest.mark.parametrize("dsp", [True, False])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_memory_is_what_the_interpreter_makes_of_it(dsp: bool, data: st.DataObject) -> None:
    drawn = Drawn(data, dsp)
    kernel = drawn.kernel()
    with suppress(UnsupportedError):  # there may be too few registers
        assert_same(kernel, drawn.arrays(), Features(dsp), n=data.draw(st.integers(1, 3)))

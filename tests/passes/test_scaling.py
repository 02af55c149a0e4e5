"""Scaling all channels at once gives what scaling each accumulator in exact integers does."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtexport import passes
from crtexport.ir.ops import FullyConnected
from crtexport.ir.types import DType, Quantization
from crtexport.passes.channels.layers import OutputScaling
from crtexport.support.errors import CrtExportError
from crtexport.support.fixedpoint import (
    INT32_MAX,
    INT32_MIN,
    Rounding,
    quantize_multiplier,
    quantize_multipliers,
)
from tests.plan.graphs import GraphBuilder

MULTIPLIERS = st.one_of(
    st.just((0, 0)), st.tuples(st.integers(1 << 30, INT32_MAX), st.integers(-31, 40))
)
ACCUMULATORS = st.one_of(
    st.integers(-(1 << 62), 1 << 62), st.integers(INT32_MIN, INT32_MAX), st.integers(-300, 300),
    st.sampled_from([INT32_MIN, INT32_MIN + 1, INT32_MAX, INT32_MAX + 1, 0]),
)


@given(
    st.lists(st.tuples(MULTIPLIERS, ACCUMULATORS), min_size=1, max_size=8), st.booleans(),
    st.booleans(), st.sampled_from(Rounding), st.integers(-128, 127),
)
def test_all_channels_at_once(
    channels: list[tuple[tuple[int, int], int]], one: bool, wide: bool, rounding: Rounding,
    zero_point: int,
) -> None:
    multipliers, shifts = np.array([pair for pair, _ in channels[: 1 if one else None]]).T
    scaling = OutputScaling(multipliers, shifts, rounding, wide, zero_point, (-128, 127))
    row = [acc for _, acc in channels]
    rows = [row, row[::-1]]
    values, known = scaling.all_stored(np.array(rows, np.int64))
    expected = [scaling.stored(channel, acc) for row in rows for channel, acc in enumerate(row)]
    assert known.ravel().tolist() == [value is not None for value in expected]
    for value, wanted in zip(values.ravel().tolist(), expected, strict=True):
        assert wanted is None or value == wanted


@given(st.lists(
    st.one_of(
        st.floats(0, 1e30), st.floats(0, 2), st.just(0.0), st.just(5e-324),
        st.integers(-40, 40).map(lambda e: math.ldexp(1.0, e)),
        st.integers(-40, 40).map(lambda e: math.nextafter(math.ldexp(1.0, e), 0.0)),
    ), min_size=1, max_size=20,
))
def test_multipliers_of_all_channels_at_once(reals: list[float]) -> None:
    mantissas, shifts = quantize_multipliers(reals)
    assert list(zip(mantissas.tolist(), shifts.tolist(), strict=True)) == [
        quantize_multiplier(real) for real in reals
    ]


@pytest.mark.parametrize("scales", [(1e30, 1e30, 1e-30), (1e100, 1e100, 1e-200)])
def test_scales_that_no_multiplier_can_meet_are_refused(
    scales: tuple[float, float, float]
) -> None:
    one, weights, result = (Quantization((scale,), (0,)) for scale in scales)
    b = GraphBuilder()
    data = b.input(1, 2, dtype=DType.INT8, quant=one)
    layer = b.node(
        FullyConnected(), data, b.constant(np.ones((2, 2), np.int8), weights), quant=result
    )
    with pytest.raises(CrtExportError, match="scales are too large") as caught:
        passes.run(b.finish(layer))
    assert "FullyConnected" in caught.value.location[0]


@pytest.mark.parametrize("real", [math.inf, math.nan])
def test_a_multiplier_is_finite(real: float) -> None:
    for quantize in (quantize_multiplier, lambda real: quantize_multipliers([real, real])):
        with pytest.raises(OverflowError):
            quantize(real)

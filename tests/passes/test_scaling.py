"""Scaling all channels at once gives what scaling each accumulator in exact integers does."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crtexport.fixedpoint import INT32_MAX, INT32_MIN
from crtexport.ir.types import Rounding
from crtexport.passes.channels.layers import Scaling

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
    pairs = tuple(pair for pair, _ in channels)
    scaling = Scaling(pairs[:1] if one else pairs, rounding, wide, zero_point, (-128, 127))
    accs = np.array([acc for _, acc in channels], np.int64)
    values, known = scaling.all_stored(accs)
    expected = [scaling.stored(channel, acc) for channel, acc in enumerate(accs.tolist())]
    assert known.tolist() == [value is not None for value in expected]
    for value, wanted in zip(values.tolist(), expected, strict=True):
        assert wanted is None or value == wanted

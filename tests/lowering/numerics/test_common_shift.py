"""One product and one shift for all channels give what TFLite and ONNX Runtime give, or nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.lowering.numerics.common_shift import Scaling, Shifts, common_shift
from crtexport.lowering.numerics.requantize import Multiplier
from crtexport.support.fixedpoint import multiply_by_quantized_multiplier, scale_in_float32

DOWN = Shifts(left=8, least_left=4, most_left=8, right=9, most_right=20, rounded=False)
NEAREST = Shifts(left=10, least_left=6, most_left=13, right=16, most_right=16, rounded=True)


def scaling(
    reals: list[float], biases: list[int], reach: int, zero: int, low: int, floats: bool = False
) -> Scaling:
    """Of a layer whose sums are up to ``reach`` from its biases."""
    lowest, highest = (tuple(bias + end for bias in biases) for end in (-reach, reach))
    return Scaling(Multiplier.of(reals), (lowest, highest), zero, low, 127, floats)


@settings(max_examples=60)
@given(
    reals=st.lists(st.floats(2.0**-11, 2.0**-4), min_size=1, max_size=4),
    bias=st.integers(-3000, 3000), reach=st.integers(50, 20000), zero=st.integers(-128, 100),
    floats=st.booleans(), clamped=st.booleans(), shifts=st.sampled_from([DOWN, NEAREST]),
)
def test_every_reachable_sum_has_its_result(
    reals: list[float], bias: int, reach: int, zero: int, floats: bool, clamped: bool,
    shifts: Shifts,
) -> None:
    biases = [bias + 7 * channel for channel in range(len(reals))]
    low = zero if clamped else -128
    of = scaling(reals, biases, reach, zero, low, floats)
    found = common_shift(of, shifts)
    if found is None:
        return
    pairs = list(zip(of.multiplier.mantissas, of.multiplier.shifts, strict=True))
    for channel, own in enumerate(biases):
        sums = np.arange(own - reach, own + reach + 1)
        mantissa, shift = pairs[min(channel, len(pairs) - 1)]
        exact = (
            scale_in_float32(sums, mantissa * 2.0 ** (shift - 31)) if floats else
            np.array([multiply_by_quantized_multiplier(int(x), mantissa, shift) for x in sums])
        )
        whole = (sums << found.left) + int(found.addends[channel])
        assert abs(whole).max() < 1 << 31
        product, right = whole * int(found.multipliers[channel]), found.right
        scaled = (
            (((product + (1 << 30)) >> 31) + (1 << right - 1)) >> right if shifts.rounded
            else product >> 32 >> right
        )
        np.testing.assert_array_equal(np.clip(scaled, low, 127), np.clip(exact + zero, low, 127))


@pytest.mark.parametrize("shifts", [DOWN, NEAREST])
def test_layers_behind_which_a_relu_clamps_have_one_as_a_rule(shifts: Shifts) -> None:
    rng = np.random.default_rng(4)
    found = 0
    for number in range(40):
        reals = 2.0 ** -rng.uniform(5, 8) * rng.uniform(0.3, 1, 32)
        biases = rng.integers(-2000, 2000, 32).tolist()
        layer = scaling(reals.tolist(), biases, 60000, -128, -128, floats=number % 4 == 0)
        found += common_shift(layer, shifts) is not None
    assert found > 30


def test_layers_of_one_scale_have_one_multiplier() -> None:
    found = common_shift(scaling([0.004], [5, -70, 900], 30000, -128, -128), DOWN)
    assert found is not None
    assert len(set(found.multipliers.tolist())) == 1


def test_constants_that_layers_share_can_not_be_changed() -> None:
    found = common_shift(scaling([0.004], [5, -70, 900], 30000, -128, -128), DOWN)
    assert found is not None
    for shared in (found.addends, found.multipliers):
        with pytest.raises(ValueError, match="read-only"):
            shared[0] = 0


def test_what_no_such_product_gives_is_refused() -> None:
    assert common_shift(scaling([0.01], [0], 1000, 0, 0), DOWN) is not None
    # TFLite rounds halves of negative results the other way.
    assert common_shift(scaling([0.01], [0], 1000, 0, -1), DOWN) is None
    assert common_shift(scaling([1.5], [0], 1000, 0, 0), DOWN) is None
    assert common_shift(scaling([0.0], [0], 1000, 0, 0), DOWN) is None
    assert common_shift(scaling([2.0**-25], [0], 1000, 0, 0), DOWN) is None
    for shifts in (DOWN, NEAREST):
        assert common_shift(scaling([0.01], [0], 1 << 27, 0, 0), shifts) is None

"""Two products of integers scale every sum as ONNX Runtime does in float32."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.kir import interpreter
from crtexport.kir.builder import KernelBuilder, load
from crtexport.kir.language import Scalar
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.numerics.requantize import Multiplier
from crtexport.lowering.numerics.result_steps import (
    ProductSteps,
    ResultSteps,
    TwoProducts,
    _Edges,
)
from crtexport.lowering.numerics.two_products import by_two_products
from crtexport.support.fixedpoint import Ints, Rounding, scale_in_float32

EVERY_51 = float.fromhex("0x1.a21b08p-8")
"""Steps repeat themselves nearly: 51 of them are 7993.9998 sums wide."""


def layer(
    reals: list[float], biases: list[int], magnitudes: list[int],
    rounding: Rounding = Rounding.FLOAT,
) -> IntegerSums:
    folded, sizes = np.array(biases, np.int64), np.array(magnitudes, np.int64)
    bound = int((np.abs(folded) + 128 * sizes).max())
    return IntegerSums(
        0, 0, sizes, folded, folded, bound, Multiplier.of(reals), rounding, False
    )


def check(found: TwoProducts, sums: IntegerSums, zero: int, limits: tuple[int, int]) -> None:
    """Compares the results of all sums."""
    reals = np.broadcast_to(sums.multiplier.reals, len(sums.folded))
    for channel, (offset, factor, second) in enumerate(found.constants.astype(np.int64).tolist()):
        reach = 128 * int(sums.magnitudes[channel])
        totals = np.arange(-reach, reach + 1)
        whole = (totals << found.places) + offset
        assert max(np.abs(whole).max(), factor, second) < 1 << 31
        half = found.rounded << 31
        high = whole * factor >> 32
        scaled = high * second + half >> 32
        if found.shift is not None:
            np.testing.assert_array_equal(scaled, high >> found.shift)
        real = scale_in_float32(totals + int(sums.folded[channel]), float(reals[channel]))
        np.testing.assert_array_equal(np.clip(scaled, *limits), np.clip(real + zero, *limits))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("limits", [(-128, 127), (-5, 127), (-5, 90)])
def test_every_sum_has_its_result(seed: int, limits: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    octave = rng.uniform(-11, -4)
    reals = [float(np.float32(2.0 ** (octave + more))) for more in rng.uniform(0, 3, 6)]
    biases = rng.integers(-20_000, 20_000, 6).tolist()
    magnitudes = rng.integers(1, 3000, 6).tolist()
    sums = layer(reals, biases, magnitudes)
    found = TwoProducts.of(sums, -5, limits)
    assert found is not None
    check(found, sums, -5, limits)


@pytest.mark.parametrize(("real", "bias", "magnitude"), [
    (float.fromhex("0x1p-7"), -12029, 1929), (float.fromhex("0x1.ffffb8p-8"), -2810, 2078),
    (float.fromhex("0x1.ffff64p-6"), -7687, 123),
])
def test_scales_about_powers_of_two_have_factors_of_31_bits(
    real: float, bias: int, magnitude: int
) -> None:
    sums = layer([real], [bias], [magnitude])
    found = TwoProducts.of(sums, -5, (-128, 127))
    assert found is not None
    check(found, sums, -5, (-128, 127))


@pytest.mark.parametrize(("real", "bias", "magnitude", "zero", "how"), [
    (EVERY_51, 17_596, 311, -5, (None, False)), (EVERY_51, 17_596, 311, -128, (None, True)),
    (float(np.float32(0.0113)), 5, 150, -5, (13, False)),
])
def test_code_scales_by_the_constants(
    real: float, bias: int, magnitude: int, zero: int, how: tuple[int | None, bool]
) -> None:
    sums = layer([real], [bias], [magnitude])
    found = TwoProducts.of(sums, zero, (-128, 127))
    assert found is not None
    assert (found.shift, found.rounded) == how
    reach = 128 * magnitude
    totals = np.arange(-reach, reach + 1, 11, np.int32)
    b = KernelBuilder("probe")
    x = b.buffer("x", Scalar.I32, len(totals))
    y = b.buffer("y", Scalar.I32, len(totals), writable=True)
    with b.loop("i", len(totals)) as i:
        b.store(y, i, by_two_products(b, found, load(x, i), (-128, 127)))
    scaled = np.zeros(len(totals), np.int32)
    interpreter.run(b.finish(), [totals, scaled])
    wanted = scale_in_float32(totals.astype(np.int64) + bias, real) + zero
    np.testing.assert_array_equal(scaled, np.clip(wanted, -128, 127))


def test_repeating_steps_need_a_rounded_product() -> None:
    sums = layer([EVERY_51, 2.0**-7], [17_596, 3], [311, 40])
    found = TwoProducts.of(sums, -128, (-128, 127))
    assert found is not None
    assert found.shift is None
    assert found.rounded
    assert not (found.constants[:, 2] & 1).any()
    check(found, sums, -128, (-128, 127))


def test_no_pair_of_factors_is_left_out_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    layers = [
        layer([EVERY_51, float(real)], rng.integers(-9000, 9000, 2).tolist(), [311, 900])
        for real in (2.0 ** rng.uniform(-11, -6, 6)).astype(np.float32)
    ]
    found = [TwoProducts.of(sums, -5, (-128, 127)) for sums in layers]

    def all_pairs(edges: _Edges, firsts: Ints, seconds: Ints, half: int) -> npt.NDArray[np.bool_]:
        return np.ones(len(firsts), bool)

    monkeypatch.setattr(_Edges, "_promising", all_pairs)
    for sums, one in zip(layers, found, strict=True):
        other = TwoProducts.of(sums, -5, (-128, 127))
        assert one is not None
        assert other is not None
        assert one.shift is None
        np.testing.assert_array_equal(one.constants, other.constants)


@pytest.mark.parametrize("reach", [1, 40, 70_000])
def test_results_step_where_computing_them_all_says(reach: int) -> None:
    for zero, bias in ((0, 0), (-128, 900), (127, -77)):
        steps = ResultSteps(1 << 30, -6, bias, reach, zero, (-128, 127), floats=True)
        results = steps.results(np.arange(-reach, reach + 1))
        firsts = np.flatnonzero(np.diff(results)) + 1 - reach
        np.testing.assert_array_equal(steps.least, firsts)


def test_a_shift_serves_most_channels() -> None:
    sums = layer([float(np.float32(0.0113))] * 4, [5, 0, -9, 1000], [150, 0, 70, 1])
    found = TwoProducts.of(sums, 3, (-128, 127))
    assert found is not None
    assert found.shift == 13
    check(found, sums, 3, (-128, 127))


def test_what_isnt_scaled_so() -> None:
    assert TwoProducts.of(layer([0.01], [0], [9], Rounding.DOUBLE), 0, (-128, 127)) is None
    assert TwoProducts.of(layer([0.7], [0], [9]), 0, (-128, 127)) is None
    assert TwoProducts.of(layer([2.0**-25], [0], [9]), 0, (-128, 127)) is None
    assert TwoProducts.of(layer([0.01], [1 << 31], [9]), 0, (-128, 127)) is None


BYTES = st.integers(-128, 127)


@settings(max_examples=60)
@given(
    st.floats(2.0**-10, 0.40625, width=32), BYTES, st.sampled_from([0, 128]),
    st.integers(1, 255**2), st.sampled_from([(-128, 127), (-5, 90)]),
)
def test_every_product_has_its_result(
    scale: float, zero: int, more: int, reach: int, limits: tuple[int, int]
) -> None:
    found = TwoProducts.of_steps([ProductSteps(scale, reach, zero, more, limits)], 13)
    if found is None:
        return
    products = np.arange(-reach, reach + 1)
    offset, factor, second = found.constants[0].astype(np.int64).tolist()
    whole = (products << found.places) + offset
    assert max(np.abs(whole).max(), factor, second) < 1 << 31
    high = whole * factor >> 32
    scaled = high >> found.shift if found.shift is not None else (
        high * second + (found.rounded << 31) >> 32
    )
    # MlasQLinearMul: the zero point is added before rounding, in float32.
    real = products.astype(np.float32) * np.float32(scale) + np.float32(zero + more)
    wanted = np.clip(np.rint(real), -1000, 1000).astype(np.int64) - more
    np.testing.assert_array_equal(np.clip(scaled, *limits), np.clip(wanted, *limits))


def test_products_of_usual_scales_have_constants() -> None:
    rng = np.random.default_rng(4)
    for _ in range(50):
        scale = float(np.float32(2.0 ** rng.uniform(-9, -3)))
        steps = ProductSteps(scale, 255 * 255, int(rng.integers(-128, 128)), 128, (-128, 127))
        found = TwoProducts.of_steps([steps], 13)
        assert found is not None
        assert not found.rounded

"""Scaling by two short products gives TFLite's results for every sum."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import crtexport
from crtexport.importers import load
from crtexport.kir import interpreter
from crtexport.kir.builder import add, const
from crtexport.kir.builder import load as load_element
from crtexport.kir.language import Scalar
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.numerics.requantize import Multiplier
from crtexport.lowering.registry import Context, Derived, Lowering
from crtexport.mlf.reader import open_package
from crtexport.schedules.scalar.requantize_mul32 import Mul32Epilogue, ShortSteps, constants_of
from crtexport.support.fixedpoint import Rounding, multiply_by_quantized_multiplier
from tests.helpers import require
from tests.lowered import values_of
from tests.schedules.scalar.test_words import dense
from tests.tflite_builder import ModelBuilder, run_reference

HIGHEST = (127, 90, 0)


def layer(real: float, bias: int, magnitude: int, rounding: Rounding = Rounding.DOUBLE) -> (
    IntegerSums
):
    """A layer of one channel."""
    one = np.ones(1, np.int64)
    return IntegerSums(
        0, 0, one * magnitude, one * bias, one * bias, abs(bias) + 128 * magnitude,
        Multiplier.of([real]), rounding, False,
    )


def wrong(sums: IntegerSums, zero_point: int, limits: tuple[int, int]) -> list[int] | None:
    """Sums that are scaled in another way, of all there are near steps and some others; None if
    none can be scaled. No product may overflow."""
    found = constants_of(sums, zero_point, limits)
    if found is None:
        return None
    ((upper, lower, addend, right),), bits = found[0].tolist(), found[1]
    mantissa, shift = sums.multiplier.mantissas[0], sums.multiplier.shifts[0]
    bias, reach = int(sums.folded[0]), 128 * int(sums.magnitudes[0])
    real = max(mantissa * 2.0 ** (shift - 31), 1e-12)
    near = [
        min(max(round((r - 0.5) / real) - bias + off, -reach), reach)
        for r in range(limits[0] - zero_point - 1, limits[1] - zero_point + 3)
        for off in (-2, -1, 0, 1, 2)
    ]
    some = np.random.default_rng(3).integers(-reach, reach + 1, 300).tolist()
    failed = []
    for total in (-reach, reach, 0, *near, *some):
        products = total * upper, total * lower
        whole = products[0] + (products[1] >> bits)
        assert max(map(abs, (*products, whole, whole + addend))) < 1 << 31
        got = (whole + addend) >> right
        wanted = multiply_by_quantized_multiplier(total + bias, mantissa, shift) + zero_point
        low, high = limits
        if max(low, min(got, high)) != max(low, min(wanted, high)):
            failed.append(total)
    return failed


@settings(max_examples=150, deadline=None)
@given(
    st.floats(-20, -0.1), st.integers(-(1 << 20), 1 << 20), st.integers(0, 3000),
    st.integers(-128, 127), st.sampled_from(HIGHEST),
)
@example(-8.3, 0, 0, 0, 127)
@example(-31.5, 1 << 20, 5, -3, 127)
@example(-2.0, 100, 1, 127, 127)
def test_results_are_tflites_wherever_there_are_multipliers(
    exponent: float, bias: int, magnitude: int, zero_point: int, highest: int
) -> None:
    limits = zero_point, max(zero_point, highest)
    assert not wrong(layer(2.0**exponent, bias, magnitude), zero_point, limits)


@pytest.mark.parametrize("seed", range(20))
def test_windows_of_nine_weights_have_multipliers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    magnitude = int(rng.integers(100, 9 * 127))
    real = 127 / (128 * magnitude * rng.uniform(0.2, 0.8))
    sums = layer(real, int(rng.integers(-5000, 5000)), magnitude)
    assert wrong(sums, -128, (-128, 127)) == []


@pytest.mark.parametrize("lost", [3, 5, 6])
def test_products_that_lose_bits_give_every_sum_its_result(lost: int) -> None:
    rng, bits, found = np.random.default_rng(9), 13, 0
    for _ in range(30):
        one = Multiplier.of([float(np.float32(2.0 ** rng.uniform(-10, -6)))])
        bias, reach = int(rng.integers(-9000, 9000)), 128 * int(rng.integers(1, 1500))
        steps = ShortSteps(
            one.mantissas[0], one.shifts[0], bias, reach, -4, (-128, 127), floats=True
        )
        row = steps.moved_steps(bits, lost)
        if row is None:
            continue
        found += 1
        upper, lower, addend, right, begin = row
        totals = np.arange(-reach, reach + 1)
        products = (totals + begin) * upper, (totals + begin) * lower
        whole = (products[0] >> lost) + (products[1] >> bits + lost)
        assert max(np.abs(part).max() for part in (*products, whole + addend)) < 1 << 31
        got = np.clip(whole + addend >> right, -128, 127)
        np.testing.assert_array_equal(got, steps.results(totals))
    assert found > 20


def test_layers_that_are_scaled_otherwise_have_none() -> None:
    assert constants_of(layer(0.01, 0, 100), 0, (0, 127)) is not None
    assert constants_of(layer(0.01, 0, 100), 0, (-1, 127)) is None
    assert constants_of(layer(1.5, 0, 100), 0, (0, 127)) is None
    assert constants_of(layer(0.01, 0, 100, Rounding.SINGLE), 0, (0, 127)) is None
    assert constants_of(layer(0.01, 1 << 30, 100), 0, (0, 127)) is None
    assert constants_of(layer(0.001, 0, 1 << 16), 0, (0, 127)) is None


@pytest.mark.qemu
@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_windows_are_scaled_so_on_cortex_m0(emit: str, tmp_path: Path) -> None:
    require("qemu-system-arm")
    rng, m = np.random.default_rng(6), ModelBuilder()
    x = m.tensor("x", (1, 7, 6, 5), "int8", scale=0.05, zero_point=-7)
    scales = rng.uniform(0.001, 0.01, 5).astype(np.float32).tolist()
    weights = rng.integers(-127, 128, (1, 3, 3, 5))
    w = m.tensor("w", weights.shape, "int8", scale=scales, axis=3, data=weights)
    b = m.tensor(
        "b", (5,), "int32", scale=[s * 0.05 for s in scales], axis=0,
        data=rng.integers(-3000, 3000, 5),
    )
    y = m.tensor("y", (1, 7, 6, 5), "int8", scale=0.07, zero_point=-20)
    m.op("DEPTHWISE_CONV_2D", [x, w, b], [y], padding="SAME", activation="RELU")
    content, package = m.build([x], [y]), tmp_path / "m.tar"
    (tmp_path / "m.tflite").write_bytes(content)
    graph = load(tmp_path / "m.tflite")
    sums = IntegerSums.of(Context(graph, graph.nodes[0]), 3)
    assert constants_of(sums, -20, (-20, 127)) is not None
    values = rng.choice(np.array([-128, 127, 3, -60]), (6, 1, 7, 6, 5)).astype(np.int8)
    crtexport.export(tmp_path / "m.tflite", board="qemu_cortex_m0", emit=emit, output=package)
    (given_,) = open_package(package).inputs
    rows = crtexport.run(package, {given_.field: values}).outputs
    for value, row in zip(values, rows, strict=True):
        np.testing.assert_array_equal(row[0], run_reference(content, value)[0])


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize(("largest", "width"), [((1 << 13) - 1, 2), (1 << 13, 4)])
def test_short_halves_and_the_shift_share_a_word(
    largest: int, width: int, start: bool, tmp_path: Path
) -> None:
    rng = np.random.default_rng(6)
    channels, bits = 5, 8
    table = np.column_stack([
        rng.integers(0, 4, channels), rng.integers(1 << 12, 1 << 13, channels),
        rng.integers(-(1 << 18), 1 << 18, channels), rng.integers(13, 16, channels),
        rng.integers(-999, 999, channels),
    ])[:, : 5 if start else 4].astype(np.int32)
    table[1, 0] = table[2, 1] = largest
    table[3, 3] = 31
    graph = dense(tmp_path, np.ones((2, 2), np.int64))
    lowering = Lowering("scale", Context(graph, graph.nodes[0]))
    b, totals = lowering.b, rng.integers(-(1 << 16), 1 << 16, 64).astype(np.int32)
    given_ = b.buffer("sums", Scalar.I32, len(totals))
    result = b.buffer("results", Scalar.I8, channels * len(totals), writable=True)
    scaling = Mul32Epilogue(table, bits, 0, (-100, 101))
    scaling.begin(lowering)
    for channel in range(channels):
        values = scaling.values(const(channel))
        assert len(values) == table.shape[1]
        with b.loop("i", len(totals)) as i:
            scaled = scaling.finished(load_element(given_, i), values)
            b.store(result, add(i, const(channel * len(totals))), scaled)
    (stored,) = (values_of(arg) for arg in lowering.finish().args if isinstance(arg, Derived))
    assert stored.size == channels * (width + start)
    found = np.zeros(channels * len(totals), np.int8)
    interpreter.run(b.finish(), [totals, found, stored.reshape(-1)])
    upper, lower, addend, right = table[:, :4, None].swapaxes(0, 1).astype(np.int64)
    begun = totals + (table[:, 4:] if start else 0)
    wanted = np.clip((begun * upper + (begun * lower >> bits) + addend) >> right, -100, 101)
    assert len(np.unique(wanted)) > 50
    np.testing.assert_array_equal(found.reshape(channels, -1), wanted)

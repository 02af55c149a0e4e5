"""Variants of int16 layers compute what the plain kernels do, for any shape, weights and bias."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtexport.importers import load
from crtexport.lowering import operator_table
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.numerics.requantize import Multiplier
from crtexport.lowering.registry import Context, Lowered
from crtexport.schedules.common import padded_row_ring, requantize_int16
from crtexport.schedules.mve import candidates as mve
from crtexport.schedules.rvv import candidates as rvv
from crtexport.schedules.scalar import smlad_int16
from crtexport.schedules.select import choose
from crtexport.schedules.variants import variants_of
from crtexport.support.fixedpoint import Rounding, multiply_wide_by_quantized_multiplier, wrap32
from tests.differential.network import interpret
from tests.helpers import target_of
from tests.lowered import run
from tests.schedules.layers import AS_CODE, KINDS, Layers, drawing, outputs_as_code, search
from tests.schedules.vector_targets import MVE, RVV
from tests.tflite_builder import ModelBuilder, run_reference

Array = np.ndarray[Any, Any]
BOARDS = ("mps2_an386", "mps2_an385", "qemu_riscv32", "mps3_an547", "qemu_riscv32_v")


class Halves(Layers):
    """int16 layers; ``biases`` are the element types that those may have, None for no bias."""

    sides, units, taps, dilations = 6, 13, 4, (2, 2)
    biases: tuple[str | None, ...] = (None, "int64", "int64", "int32")

    def channels(self, kind: str) -> int:
        if kind == "depthwise" or self.integer(0, 5):
            return self.integer(1, 11)
        return self.integer(60, 90) * (1 if kind == "conv" else 8)

    def depth(self) -> int:
        return (self.integer(1, 40), self.integer(500, 700))[self.integer(0, 4) == 0]

    def multiplier(self) -> int:
        return self.integer(1, 2)

    def tensor(self, shape: tuple[int, ...]) -> int:
        return self.m.tensor(self.name(), shape, "int16", scale=1 / 8192)

    def weights(self, shape: tuple[int, ...], axis: int) -> list[int | None]:
        """Weights of one scale or one a channel, some of them tiny, and perhaps a bias."""
        units, integer = shape[axis], self.integer
        each = integer(0, 1)
        sizes = self.rng.choice(
            [1.0, 0.3, 1e-4, 1e-7], units if each else 1, p=[0.6, 0.2, 0.1, 0.1]
        ) * (1, 1, 1, 25)[integer(0, 3)]
        fan = int(np.prod(shape)) // units
        scales = (sizes / (70 * np.sqrt(fan))).astype(np.float32)
        largest = integer(0, 3) == 0
        data = (
            self.rng.choice([-127, 127], shape) if largest
            else self.rng.integers(-127, 128, shape)
        )
        along: dict[str, Any] = {"axis": axis} if each else {}
        w = self.m.tensor(
            self.name(), shape, "int8", scale=scales.tolist() if each else float(scales[0]),
            data=data, **along,
        )
        kind = self.biases[integer(0, 3)]
        if kind is None or (kind == "int32" and axis == 3):
            return [w, None]
        bias = [float(s) / 8192 for s in scales]
        numbers = self.rng.integers(-200_000, 200_000, units)
        if kind == "int64" and integer(0, 1):  # as far as an int16 of the result, or 2**46
            most = np.minimum(2 * 32768 / scales.astype(float), 2.0**46)
            numbers = (self.rng.uniform(-1, 1, units) * most).astype(np.int64)
        b = self.m.tensor(
            self.name(), (units,), kind, scale=bias if each else bias[0],
            data=numbers, **({"axis": 0} if each else {}),
        )
        return [w, b]

    def values(self, shape: tuple[int, ...]) -> Array:
        """Any numbers, or the largest."""
        if self.integer(0, 2) == 0:
            return self.rng.choice([-32768, 32767], shape).astype(np.int16)
        return self.rng.integers(-32768, 32768, shape).astype(np.int16)


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("kind", KINDS)
@search(25)
@given(data=st.data())
def test_every_variant_equals_the_plain_kernel(
    kind: str, board: str, tmp_path: Path, data: st.DataObject
) -> None:
    n = Halves(drawing(data), data.draw(st.integers(0, 99)))
    shape, *_ = layer = n.add(kind)
    graph = load(n.write(tmp_path, [layer]))
    context = Context(graph, graph.nodes[0])
    with patch.object(padded_row_ring, "SCRATCH", data.draw(st.sampled_from([2048, 600, 1]))):
        found = variants_of(context, target_of(board), "balanced")
        lowered = found[data.draw(st.integers(0, len(found) - 1))].make()
    value = n.values(shape)
    np.testing.assert_array_equal(
        run(graph, lowered, value), run(graph, operator_table.lower(context), value)
    )


def dense(
    folder: Path, weights: Array, bias: int, kind: str = "int64", scale: float = 0.003
) -> Context:
    m = ModelBuilder()
    units, depth = weights.shape
    x = m.tensor("x", (1, depth), "int16", scale=1 / 8192)
    w = m.tensor("w", weights.shape, "int8", scale=scale, data=weights)
    b = m.tensor("b", (units,), kind, scale=scale / 8192, data=np.full(units, bias))
    y = m.tensor("y", (1, units), "int16", scale=1 / 1024)
    m.op("FULLY_CONNECTED", [x, w, b], [y])
    (folder / "m.tflite").write_bytes(m.build([x], [y]))
    graph = load(folder / "m.tflite")
    return Context(graph, graph.nodes[0])


def assert_extremes_agree(context: Context, lowered: Lowered, depth: int) -> None:
    """A variant gives what the plain kernel does for the numbers that make the largest sums."""
    for fill in (-32768, 32767):
        value = np.full((1, depth), fill, np.int16)
        np.testing.assert_array_equal(
            run(context.graph, lowered, value),
            run(context.graph, operator_table.lower(context), value),
        )


@pytest.mark.parametrize(("depth", "bias", "kind", "instruction"), [
    (515, 0, "int64", "arm_smlad"), (517, 0, "int64", "arm_smlald"),
    (8, 1 << 31, "int64", "arm_smlad"), (8, -(1 << 30), "int64", "arm_smlad"),
    (517, 1 << 30, "int32", "arm_smlad"),
])
def test_sums_have_64_bits_where_they_may_need_them(
    depth: int, bias: int, kind: str, instruction: str, tmp_path: Path
) -> None:
    """Sums that TFLite has in 32 bits wrap as there."""
    context = dense(tmp_path, np.full((3, depth), 127), bias, kind)
    lowered = smlad_int16.candidates(context, "balanced")[0].make()
    used = {name for name in ("arm_smlad", "arm_smlald") if f"'{name}'" in repr(lowered.kernel)}
    assert used == {instruction}
    assert_extremes_agree(context, lowered, depth)


@pytest.mark.parametrize(("depth", "bias", "scale", "instruction"), [
    (515, 0, 0.003, "mladava"), (517, 0, 0.003, "mlaldava"), (8, 1 << 40, 0.003, "mladava"),
    (8, -(1 << 33), 3.0, "mlaldava"), (500, 1 << 44, 1e-9, "mladava"),
])
def test_vectors_have_sums_of_64_bits_where_products_need_them(
    depth: int, bias: int, scale: float, instruction: str, tmp_path: Path
) -> None:
    """Not for the bias alone, unless the multiplier is too large for the other way."""
    context = dense(tmp_path, np.full((3, depth), 127), bias, scale=scale)
    lowered = mve.candidates(context, MVE)[0].make()
    assert f"'mve_{instruction}_s16'" in repr(lowered.kernel)
    assert_extremes_agree(context, lowered, depth)


@pytest.mark.parametrize(("depth", "bias", "scale", "instruction"), [
    (515, 0, 0.003, "vsmul"), (8, 1 << 40, 0.003, "vmulh"), (500, 1 << 44, 1e-9, "vmulh"),
    (517, 0, 0.003, None), (8, -(1 << 33), 3.0, None),
])
def test_vectors_without_sums_of_64_bits_scale_those_of_32(
    depth: int, bias: int, scale: float, instruction: str | None, tmp_path: Path
) -> None:
    context = dense(tmp_path, np.full((3, depth), 127), bias, scale=scale)
    found = rvv.candidates(context, RVV)
    assert bool(found) == (instruction is not None)
    for variant in found:
        assert f"rvv_{instruction}_" in repr(variant.make().kernel)
        assert_extremes_agree(context, variant.make(), depth)


@pytest.mark.parametrize(("real", "magnitude", "bias", "possible"), [
    (0.26, 60_000, 1 << 33, False), (0.24, 65_000, -(1 << 35) + 12_345, True),
    (2**-8.3, 65_534, (1 << 40) + 77, True), (2**-17.2, 50_000, -(1 << 46), True),
    (2**-24.9, 65_534, -(1 << 39) - 1, True), (2**-31.5, 3, (1 << 46) - 3, True),
    (2**-18.1, 65_535, 0, True), (2**-8.3, 65_536, 0, False), (2**-33.3, 60_000, 0, True),
])
def test_biases_are_taken_apart_as_if_they_were_whole(
    real: float, magnitude: int, bias: int, possible: bool
) -> None:
    multiplier, units = Multiplier.of([real]), np.ones(1, np.int64)
    bound = abs(bias) + (magnitude << 15)
    constants = requantize_int16.parts_of(IntegerSums(
        0, 0, units * magnitude, units * bias, units * bias, bound, multiplier, Rounding.DOUBLE,
        True,
    ))
    assert (constants is not None) == possible
    if constants is None:
        return
    low, factor, before, right, after = map(int, constants[0])
    rng, reach = np.random.default_rng(2), magnitude << 15
    halves_ = [round((i + 0.5) / real) - bias + j for i in range(-40, 40) for j in (-1, 0, 1)]
    for total in (0, reach, -reach, *halves_, *rng.integers(-reach, reach, 500).tolist()):
        if abs(total) > reach:
            continue
        wanted = multiply_wide_by_quantized_multiplier(
            total + bias, multiplier.mantissas[0], multiplier.shifts[0]
        )
        first = ((total + low) * factor >> 32) + before
        got = (first + (1 << right - 1) >> right) + after
        assert all(-(1 << 31) <= step < 1 << 31 for step in (total + low, first))
        assert wrap32(got) == wrap32(wanted)


@pytest.mark.parametrize(("real", "magnitude", "possible"), [
    (0.9, 1, False), (0.499, 60_000, True), (2**-8.3, 65_535, True), (2**-17.9, 65_535, True),
    (2**-18.1, 65_535, False), (2**-18.1, 3, True), (2**-33.3, 60_000, True),
])
def test_sums_are_scaled_as_tflite_does(real: float, magnitude: int, possible: bool) -> None:
    """Halves included; multipliers that are too small for a factor serve where they make 0."""
    multiplier = Multiplier.of([real])
    zeros, bound = np.zeros(1, np.int64), magnitude << 15
    constants = requantize_int16.constants_of(IntegerSums(
        0, 0, zeros + magnitude, zeros, zeros, bound, multiplier, Rounding.DOUBLE, True
    ))
    assert (constants is not None) == possible
    if constants is None:
        return
    halves_ = [round((i + 0.5) / real) + j for i in range(-40, 40) for j in (-1, 0, 1)]
    for total in (0, 1, -1, bound, -bound, *halves_):
        if abs(total) <= bound:
            wanted = multiply_wide_by_quantized_multiplier(
                total, multiplier.mantissas[0], multiplier.shifts[0]
            )
            assert (total * int(constants[0, 1]) + (1 << 31)) >> 32 == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_odd_layers_are_tflites(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    n = Halves(lambda low, high: int(rng.integers(low, high + 1)), 7)
    n.biases = ("int64",) * 4  # the reference refuses convolutions without
    layers = [n.add(kind) for _ in range(12)]
    path = n.write(tmp_path, layers)
    values = [n.values(shape) for shape, _, _ in layers]
    found = interpret(load(path), values)
    for got, wanted in zip(found, run_reference(path.read_bytes(), *values), strict=True):
        np.testing.assert_array_equal(got, wanted)


@AS_CODE
@pytest.mark.parametrize("board", BOARDS)
def test_odd_layers_agree_as_code(
    board: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(4)
    n = Halves(lambda low, high: int(rng.integers(low, high + 1)), 9)
    layers = [n.add(KINDS[i % len(KINDS)]) for i in range(8 if where == "c here" else 24)]
    path = n.write(tmp_path, layers)
    values = [n.values(shape) for shape, _, _ in layers]
    # In C, too, although some boards get other variants there by default.
    monkeypatch.setattr(choose, "_first", lambda _, found, _part: found[0])
    with patch.object(padded_row_ring, "SCRATCH", 700):
        (row,) = outputs_as_code(path, [v[None] for v in values], board, where)
    for got, wanted in zip(row, interpret(load(path), values), strict=True):
        np.testing.assert_array_equal(got, wanted)

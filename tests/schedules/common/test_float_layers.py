"""Variants of float layers for some processor are as near to the truth as the plain kernels,
wherever they run."""

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
from crtexport.lowering.registry import Context
from crtexport.schedules.common import padded_row_ring
from crtexport.schedules.mve import candidates as mve
from crtexport.schedules.variants import variants_of
from tests.differential.network import interpret
from tests.helpers import target_of
from tests.lowered import lower, run, usual
from tests.schedules.layers import (
    AS_CODE,
    KINDS,
    Integer,
    Layers,
    drawing,
    outputs_as_code,
    search,
)
from tests.schedules.vector_targets import MVE, MVE_FLOATS

Array = np.ndarray[Any, Any]

TOLERANCE = 2e-6
"""Of the sum of magnitudes that a result is made of; a rounding is 6e-8."""


class Floats(Layers):
    """float32 layers with float32 or int8 weights; depthwise ones have ``multiplier`` outputs of
    each channel."""

    sides, units, taps, dilations = 7, 30, 3, (2, 1)

    def __init__(self, integer: Integer, seed: int, multiplier: int = 1) -> None:
        super().__init__(integer, seed)
        self._multiplier = multiplier

    def channels(self, kind: str) -> int:
        return self.integer(1, 14)

    def multiplier(self) -> int:
        return self._multiplier

    def tensor(self, shape: tuple[int, ...], data: Array | None = None) -> int:
        return self.m.tensor(self.name(), shape, data=data)

    def weights(self, shape: tuple[int, ...], axis: int) -> list[int | None]:
        units = shape[axis]
        if self.integer(0, 1):
            w = self.tensor(shape, self.rng.standard_normal(shape).astype(np.float32))
        else:
            scales = self.rng.uniform(0.001, 0.02, units).astype(np.float32).tolist()
            data = self.rng.integers(-127, 128, shape)
            w = self.m.tensor(self.name(), shape, "int8", scale=scales, axis=axis, data=data)
        if not self.integer(0, 3):
            return [w, None]
        return [w, self.tensor((units,), self.rng.standard_normal(units).astype(np.float32))]

    def values(self, shape: tuple[int, ...]) -> Array:
        return self.rng.standard_normal(shape).astype(np.float32)


def assert_near(got: Array, wanted: Array) -> None:
    """Magnitudes of these layers' sums are below 100."""
    np.testing.assert_allclose(got, wanted, rtol=TOLERANCE, atol=100 * TOLERANCE)


@pytest.mark.parametrize("kind", KINDS)
@search(25)
@given(data=st.data())
def test_a_vector_variant_is_near_the_plain_kernel(
    kind: str, tmp_path: Path, data: st.DataObject
) -> None:
    n = Floats(drawing(data), data.draw(st.integers(0, 99)))
    shape, *_ = layer = n.add(kind)
    graph = load(n.write(tmp_path, [layer]))
    context = Context(graph, graph.nodes[0])
    with patch.object(padded_row_ring, "SCRATCH", data.draw(st.sampled_from([2048, 400, 1]))):
        vectors = usual(mve.candidates(context, MVE_FLOATS))
    assert not mve.candidates(context, MVE)
    if vectors is None:
        assert kind == "depthwise"
        assert shape[3] < 4
        return
    value = n.values(shape)
    assert_near(run(graph, vectors, value), run(graph, operator_table.lower(context), value))


@pytest.mark.parametrize(("board", "products"), [
    ("mps2_an386", "in_order_mul"), ("mps2_an505", "in_order_mul"), ("mps2_an500", "fma_f32"),
])
@pytest.mark.parametrize("kind", KINDS)
@search(12)
@given(data=st.data())
def test_sums_in_registers_are_near_the_plain_kernel(
    kind: str, board: str, products: str, tmp_path: Path, data: st.DataObject
) -> None:
    """On Cortex-M with a floating-point unit, for several outputs of a channel, too: a Cortex-M7
    fuses products and sums, on M4 and M33 that takes longer than both."""
    n = Floats(drawing(data), data.draw(st.integers(0, 99)), data.draw(st.integers(1, 3)))
    shape, *_ = layer = n.add(kind)
    graph = load(n.write(tmp_path, [layer]))
    context = Context(graph, graph.nodes[0])
    found = variants_of(context, target_of(board), "balanced")
    lowered = found[data.draw(st.integers(0, len(found) - 1))].make()
    text = repr(lowered.kernel)
    assert [name for name in ("in_order_mul", "fma_f32") if name in text] == [products]
    value = n.values(shape)
    assert_near(run(graph, lowered, value), run(graph, operator_table.lower(context), value))


def test_processors_without_floats_keep_the_plain_kernel(tmp_path: Path) -> None:
    n = Floats(lambda low, high: high, 1)
    graph = load(n.write(tmp_path, [n.add("dense")]))
    for board, packed in (("mps2_an386", True), ("mps2_an500", True), ("mps2_an385", False)):
        lowered = lower(Context(graph, graph.nodes[0]), target_of(board), "balanced")
        assert ("sum_p0_c0" in repr(lowered.kernel)) == packed


@AS_CODE
@pytest.mark.parametrize("board", ["mps3_an547", "mps2_an386", "mps2_an500"])
def test_odd_layers_agree_as_code(board: str, where: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    n = Floats(lambda low, high: int(rng.integers(low, high + 1)), 8)
    layers = [n.add(KINDS[i % len(KINDS)]) for i in range(8 if where == "c here" else 24)]
    path = n.write(tmp_path, layers)
    values = [rng.standard_normal(shape).astype(np.float32) for shape, _, _ in layers]
    with patch.object(padded_row_ring, "SCRATCH", 600):
        (row,) = outputs_as_code(path, [v[None] for v in values], board, where)
    for got, wanted in zip(row, interpret(load(path), values), strict=True):
        assert_near(got, wanted)

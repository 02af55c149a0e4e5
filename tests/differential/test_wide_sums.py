"""Sums of 64 bits: scaled as the exact formula says, refused where they can't be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from crtexport.importers import load
from crtexport.ir.graph import Graph
from crtexport.ir.numerics import Numerics
from crtexport.lowering.numerics.requantize import WIDE_LIMIT
from crtexport.support.errors import CrtExportError
from crtexport.support.fixedpoint import (
    Rounding,
    multiply_by_quantized_multiplier,
    multiply_wide_by_quantized_multiplier,
    quantize_multiplier,
)
from tests.differential.network import interpret
from tests.tflite_builder import ModelBuilder

SCALE = 0.0078125


def dense(folder: Path, bias: list[int], weights: list[list[int]], out: float) -> Graph:
    m = ModelBuilder()
    units, depth = len(weights), len(weights[0])
    x = m.tensor("x", (1, depth), "int16", SCALE)
    w = m.tensor("w", (units, depth), "int8", SCALE, data=weights)
    b = m.tensor("b", (units,), "int64", SCALE * SCALE, data=bias)
    y = m.tensor("y", (1, units), "int16", out)
    m.op("FULLY_CONNECTED", [x, w, b], [y])
    path = folder / "net.tflite"
    path.write_bytes(m.build([x], [y]))
    return load(path)


@pytest.mark.parametrize("bias", [[0, 5, -9], [1 << 40, -(1 << 40), (1 << 31) - 7]])
@pytest.mark.parametrize("out", [2.0**-9, 0.75, 1000.1, 2.0**21])
def test_sums_are_scaled_by_the_upper_half_of_the_multiplier(
    bias: list[int], out: float, tmp_path: Path
) -> None:
    weights = np.random.default_rng(1).integers(-127, 128, (3, 40))
    graph = dense(tmp_path, bias, weights.tolist(), out)
    data = np.random.default_rng(2).integers(-32768, 32768, (1, 40)).astype(np.int16)
    (found,) = interpret(graph, [data])
    scale_out = graph.type(graph.outputs[0]).quant
    assert scale_out is not None
    pair = quantize_multiplier(SCALE * SCALE / scale_out.scale[0])
    sums = (data.astype(np.int64) @ weights.T)[0] + np.array(bias)
    scaled = [multiply_wide_by_quantized_multiplier(int(s), *pair) for s in sums]
    assert found[0].tolist() == [min(max(v, -32768), 32767) for v in scaled]


def test_sums_beyond_the_formula_are_refused(tmp_path: Path) -> None:
    graph = dense(tmp_path, [1 << 47], [[1]], 1.0)
    with pytest.raises(CrtExportError, match="64-bit accumulators are scaled up to"):
        interpret(graph, [np.zeros((1, 1), np.int16)])


def test_single_rounding_has_narrower_sums(tmp_path: Path) -> None:
    graph = replace(dense(tmp_path, [12345], [[127, -3]], 0.75), numerics=Numerics.LITERT)
    data = np.array([[30000, -77]], np.int16)
    pair = quantize_multiplier(SCALE * SCALE / 0.75)
    expected = multiply_by_quantized_multiplier(
        30000 * 127 + 77 * 3 + 12345, *pair, Rounding.SINGLE
    )
    assert interpret(graph, [data])[0].tolist() == [[expected]]
    wide = replace(dense(tmp_path, [1 << 32], [[1]], 1.0), numerics=Numerics.LITERT)
    with pytest.raises(CrtExportError, match="single rounding takes them up to"):
        interpret(wide, [np.zeros((1, 1), np.int16)])


def test_sums_are_scaled_up_to_the_limit_and_not_beyond(tmp_path: Path) -> None:
    """A weight of 0 adds nothing: the bias is the largest sum."""
    most = WIDE_LIMIT - 1
    graph = dense(tmp_path, [most, -most], [[0], [0]], 2.0**21)
    pair = quantize_multiplier(SCALE * SCALE / 2.0**21)
    wanted = [multiply_wide_by_quantized_multiplier(bias, *pair) for bias in (most, -most)]
    (found,) = interpret(graph, [np.full((1, 1), -32768, np.int16)])
    assert found[0].tolist() == [min(max(value, -32768), 32767) for value in wanted]
    for bias in (WIDE_LIMIT, -WIDE_LIMIT):
        graph = dense(tmp_path, [bias, 0], [[0], [0]], 2.0**21)
        with pytest.raises(CrtExportError, match=f"sums may reach {WIDE_LIMIT}; 64-bit"):
            interpret(graph, [np.zeros((1, 1), np.int16)])


def test_multipliers_shift_left_by_14_bits_and_no_more(tmp_path: Path) -> None:
    for shift, possible in ((14, True), (15, False)):
        graph = dense(tmp_path, [1 << 40, 0], [[0], [1]], SCALE * SCALE / (0.75 * 2.0**shift))
        pair = quantize_multiplier(0.75 * 2.0**shift)
        assert pair[1] == shift
        values = [np.full((1, 1), 3, np.int16)]
        if possible:
            sums = (1 << 40, 3)
            wanted = [multiply_wide_by_quantized_multiplier(total, *pair) for total in sums]
            (found,) = interpret(graph, values)
            assert found[0].tolist() == [min(max(value, -32768), 32767) for value in wanted]
        else:
            with pytest.raises(CrtExportError, match="overflow for any input"):
                interpret(graph, values)

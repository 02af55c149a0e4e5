"""Sums of int8 and int16, of which the runtimes on a PC have no right kernel: TFLM's formula."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crtexport.importers import load
from crtexport.support.fixedpoint import multiply_by_quantized_multiplier, quantize_multiplier
from tests.differential.draw import SeededDraw, quantization, values
from tests.differential.network import interpret
from tests.tflite_builder import ModelBuilder


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("seed", range(12))
def test_sums_are_rescaled_and_saturated(dtype: str, seed: int, tmp_path: Path) -> None:
    draw = SeededDraw(seed)
    qx, qy = quantization(draw, dtype), quantization(draw, dtype)
    qy = draw.choice([qx, qy])
    shape = (3, draw.integer(1, 40))
    m = ModelBuilder()
    x = m.tensor("x", shape, dtype, **qx)
    y = m.tensor("y", shape[:1], dtype, **qy)
    m.op("SUM", [x, m.tensor("axes", (1,), "int32", data=[1])], [y], keep_dims=False)
    path = tmp_path / "sum.tflite"
    path.write_bytes(m.build([x], [y]))
    data = values(draw, shape, dtype)

    multiplier = quantize_multiplier(float(np.float32(qx["scale"])) / np.float32(qy["scale"]))
    info = np.iinfo(dtype)
    expected = []
    for row in data.astype(int):
        centred = int(row.sum()) - qx["zero_point"] * shape[1]
        scaled = multiply_by_quantized_multiplier(centred, *multiplier) + qy["zero_point"]
        expected.append(min(max(scaled, info.min), info.max))
    (got,) = interpret(load(path), (data,))
    assert got.tolist() == expected

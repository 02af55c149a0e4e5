"""Pooling in vectors computes what the plain form does: interpreted, as C anywhere, on an M55."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtexport.firmware.board import load_board
from crtexport.importers import load
from crtexport.kernels import families
from crtexport.kernels.registry import Context
from tests.differential.network import interpret
from tests.lowered import lower, run
from tests.schedules.layers import AS_CODE, Integer, drawing, outputs_as_code, positions, search
from tests.tflite_builder import ModelBuilder

Array = np.ndarray[Any, Any]
DTYPES = ("int8", "int16", "float32")
CODES = ("AVERAGE_POOL_2D", "MAX_POOL_2D")


def add_layer(
    m: ModelBuilder, number: int, code: str, dtype: str, integer: Integer
) -> tuple[tuple[int, ...], int, int]:
    """(shape of the input, input, output) of one more layer."""
    shape = (integer(1, 2), integer(1, 7), integer(1, 7), (integer(1, 37), 16)[integer(0, 1)])
    window = integer(1, 4), integer(1, 4)
    if integer(0, 5) == 0:
        shape, window = (1, 17, 16, shape[3]), (17, 16)  # more than 16 bits hold
    stride = integer(1, 3), integer(1, 3)
    padding, out = positions(integer, shape[1:3], window, stride)
    zero = integer(-128, 127) if dtype == "int8" else 0
    quant = {} if dtype == "float32" else {"scale": 0.03, "zero_point": zero}
    x = m.tensor(f"x{number}", shape, dtype, **quant)
    y = m.tensor(f"y{number}", (shape[0], *out, shape[3]), dtype, **quant)
    m.op(
        code, [x], [y], window=window, stride=stride, padding=padding,
        activation=("NONE", "RELU", "RELU6")[integer(0, 2)],
    )
    return shape, x, y


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    if dtype == "float32":
        return (8 * rng.standard_normal(shape)).astype(np.float32)
    limits = np.iinfo(dtype)
    if rng.integers(0, 2):
        return rng.choice([limits.min, limits.max], shape, p=[0.1, 0.9]).astype(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("code", CODES)
@search(20)
@given(data=st.data())
def test_a_vector_form_equals_the_plain_form(
    code: str, dtype: str, tmp_path: Path, data: st.DataObject
) -> None:
    m = ModelBuilder()
    shape, x, y = add_layer(m, 0, code, dtype, drawing(data))
    (tmp_path / "m.tflite").write_bytes(m.build([x], [y]))
    graph = load(tmp_path / "m.tflite")
    context = Context(graph, graph.nodes[0])
    lowered = lower(context, load_board("mps3_an547").target, "balanced")
    vectors = "mve_" in repr(lowered.kernel)
    real_mean = (code, dtype) == ("AVERAGE_POOL_2D", "float32")
    assert vectors == (not real_mean) or shape[3] < 8
    value = values(np.random.default_rng(data.draw(st.integers(0, 99))), shape, dtype)
    np.testing.assert_array_equal(
        run(graph, lowered, value), run(graph, families.lower(context), value)
    )


@AS_CODE
def test_odd_layers_agree_as_code(where: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    m = ModelBuilder()
    kinds = [(code, dtype) for code in CODES for dtype in DTYPES] * 2
    layers = [
        add_layer(m, i, *kind, lambda low, high: int(rng.integers(low, high + 1)))
        for i, kind in enumerate(kinds)
    ]
    path = tmp_path / "m.tflite"
    path.write_bytes(m.build([x for _, x, _ in layers], [y for _, _, y in layers]))
    inputs = [
        values(rng, shape, dtype) for (_, dtype), (shape, _, _) in zip(kinds, layers, strict=True)
    ]
    (row,) = outputs_as_code(path, [v[None] for v in inputs], "mps3_an547", where)
    for got, wanted in zip(row, interpret(load(path), inputs), strict=True):
        np.testing.assert_array_equal(got, wanted)

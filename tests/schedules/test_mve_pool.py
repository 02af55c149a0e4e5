"""Pooling in vectors computes what the plain form does: interpreted, as C anywhere, on an M55."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import crtexport
from crtexport.firmware.board import load_board
from crtexport.importers import load
from crtexport.kernels import families
from crtexport.kernels.registry import Context
from crtexport.mlf.reader import open_package
from tests.differential.network import interpret
from tests.lowered import lower, run
from tests.support import require
from tests.tflite_builder import ModelBuilder

Array = np.ndarray[Any, Any]
DTYPES = ("int8", "int16", "float32")
CODES = ("AVERAGE_POOL_2D", "MAX_POOL_2D")


def add_layer(
    m: ModelBuilder, number: int, code: str, dtype: str, integer: Callable[[int, int], int]
) -> tuple[tuple[int, ...], int, int]:
    """(shape of the input, input, output) of one more layer."""
    shape = (integer(1, 2), integer(1, 7), integer(1, 7), (integer(1, 37), 16)[integer(0, 1)])
    window = integer(1, 4), integer(1, 4)
    if integer(0, 5) == 0:
        shape, window = (1, 17, 16, shape[3]), (17, 16)  # more than 16 bits hold
    stride = integer(1, 3), integer(1, 3)
    fits = window[0] <= shape[1] and window[1] <= shape[2]
    padding = ("SAME", "VALID")[integer(0, 1)] if fits else "SAME"
    out = tuple(
        -(-size // s) if padding == "SAME" else -(-(size - k + 1) // s)
        for size, k, s in zip(shape[1:3], window, stride, strict=True)
    )
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
@settings(
    max_examples=20, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_a_vector_form_equals_the_plain_form(
    code: str, dtype: str, tmp_path: Path, data: st.DataObject
) -> None:
    m = ModelBuilder()
    shape, x, y = add_layer(
        m, 0, code, dtype, lambda low, high: data.draw(st.integers(low, high))
    )
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


@pytest.mark.parametrize("where", ["c here", pytest.param("c", marks=pytest.mark.qemu),
                                   pytest.param("llvm", marks=pytest.mark.qemu)])
def test_odd_layers_agree_as_code(where: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    m = ModelBuilder()
    kinds = [(code, dtype) for code in CODES for dtype in DTYPES] * 2
    layers = [
        add_layer(m, i, *kind, lambda low, high: int(rng.integers(low, high + 1)))
        for i, kind in enumerate(kinds)
    ]
    path, package = tmp_path / "m.tflite", tmp_path / "m.tar"
    path.write_bytes(m.build([x for _, x, _ in layers], [y for _, _, y in layers]))
    given_values = [
        values(rng, (1, *shape), dtype)
        for (_, dtype), (shape, _, _) in zip(kinds, layers, strict=True)
    ]
    emit = "llvm" if where == "llvm" else "c"
    crtexport.export(
        path, board="mps3_an547", emit=emit, output=package, system_lib=False
    )
    inputs = open_package(package).inputs
    given_ = {t.field: v for t, v in zip(inputs, given_values, strict=True)}
    if where == "c here":
        rows = [list(row.values()) for row in crtexport.simulate(package, given_)]
    else:
        require("qemu-system-arm")
        rows = [list(row) for row in crtexport.run(package, given_).outputs]
    (row,) = rows
    for got, wanted in zip(row, interpret(load(path), [v[0] for v in given_values]), strict=True):
        np.testing.assert_array_equal(got, wanted)

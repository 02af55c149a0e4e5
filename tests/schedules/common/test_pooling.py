"""Pooling and reductions in vectors compute what the plain kernels do: interpreted, as C anywhere,
on processors with MVE, with RISC-V's vectors, and on x86-64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtexport.importers import load
from crtexport.lowering import operator_table
from crtexport.lowering.registry import Context
from crtexport.schedules.select import choose
from tests.differential.network import interpret
from tests.helpers import require_processor, target_of
from tests.lowered import lower, run
from tests.schedules.layers import AS_CODE, Integer, drawing, outputs_as_code, positions, search
from tests.tflite_builder import ModelBuilder

Array = np.ndarray[Any, Any]
DTYPES = ("int8", "int16", "float32")
CODES = ("AVERAGE_POOL_2D", "MAX_POOL_2D")
REDUCTIONS = ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN")
BOARDS = {
    "mps3_an547": "mve_", "qemu_riscv32_v": "rvv_", "host": "x86_", "host_avx2": "x86_",
    "host_avx512": "x86_",
}
"""The beginnings of their intrinsics' names."""
RISCV = "qemu_riscv32_v"


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


def add_reduction(
    m: ModelBuilder, number: int, code: str, dtype: str, integer: Integer
) -> tuple[tuple[int, ...], int, int]:
    """The same, folding some axes but the last."""
    shape = (*(integer(1, 5) for _ in range(3)), (integer(4, 37), 33)[integer(0, 1)])
    if integer(0, 5) == 0:
        shape = (1, 17, 16, shape[3])
    axes = tuple(axis for axis in range(3) if integer(0, 2)) or (1,)
    out = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    x_quant: dict[str, float] = {}
    y_quant: dict[str, float] = {}
    if dtype != "float32":
        scale = 0.01 * integer(1, 20)
        zeros = [integer(-128, 127) if dtype == "int8" else 0 for _ in range(2)]
        x_quant, y_quant = {"scale": 0.05, "zero_point": zeros[0]}, {
            "scale": scale, "zero_point": zeros[1]
        }
        if code.startswith("REDUCE"):
            y_quant = x_quant
    x, y = m.tensor(f"x{number}", shape, dtype, **x_quant), m.tensor(
        f"y{number}", out, dtype, **y_quant
    )
    where = m.tensor(f"axes{number}", (len(axes),), "int32", data=axes)
    m.op(code, [x, where], [y], keep_dims=False)
    return shape, x, y


def add(
    m: ModelBuilder, number: int, code: str, dtype: str, integer: Integer
) -> tuple[tuple[int, ...], int, int]:
    """One more layer of either kind."""
    kind = add_reduction if code in REDUCTIONS else add_layer
    return kind(m, number, code, dtype, integer)


def check_variant(
    board: str, code: str, dtype: str, folder: Path, data: st.DataObject
) -> tuple[bool, tuple[int, ...]]:
    """Returns whether a layer has a vector variant, which computes what the plain kernel does, and
    its shape."""
    m = ModelBuilder()
    shape, x, y = add(m, 0, code, dtype, drawing(data))
    (folder / "m.tflite").write_bytes(m.build([x], [y]))
    graph = load(folder / "m.tflite")
    context = Context(graph, graph.nodes[0])
    lowered = lower(context, target_of(board), "balanced")
    value = values(np.random.default_rng(data.draw(st.integers(0, 99))), shape, dtype)
    np.testing.assert_array_equal(
        run(graph, lowered, value), run(graph, operator_table.lower(context), value)
    )
    return BOARDS[board] in repr(lowered.kernel), shape


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("board", BOARDS)
@search(20)
@given(data=st.data())
def test_a_vector_variant_equals_the_plain_kernel(
    board: str, code: str, dtype: str, tmp_path: Path, data: st.DataObject
) -> None:
    vectors, shape = check_variant(board, code, dtype, tmp_path, data)
    plain = board == "mps3_an547" and (code, dtype) == ("AVERAGE_POOL_2D", "float32")
    assert vectors == (not plain) or shape[3] < 8


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("code", REDUCTIONS)
@search(15)
@given(data=st.data())
def test_a_reduction_in_vectors_equals_the_plain_one(
    code: str, dtype: str, tmp_path: Path, data: st.DataObject
) -> None:
    check_variant(RISCV, code, dtype, tmp_path, data)


def test_usual_reductions_have_vectors(tmp_path: Path) -> None:
    m = ModelBuilder()
    quant = {"scale": 0.05, "zero_point": -3}
    layers = []
    for number, (code, axes) in enumerate([("MEAN", (1, 2)), ("REDUCE_MAX", (1,)), ("MEAN", (3,))]):
        x = m.tensor(f"x{number}", (1, 4, 4, 20), "int8", **quant)
        out = tuple(size for axis, size in enumerate((1, 4, 4, 20)) if axis not in axes)
        y = m.tensor(f"y{number}", out, "int8", **quant)
        where = m.tensor(f"axes{number}", (len(axes),), "int32", data=axes)
        m.op(code, [x, where], [y], keep_dims=False)
        layers.append((x, y))
    (tmp_path / "m.tflite").write_bytes(m.build([x for x, _ in layers], [y for _, y in layers]))
    graph = load(tmp_path / "m.tflite")
    found = [
        lower(Context(graph, node), target_of(RISCV), "balanced") for node in graph.nodes
    ]
    assert ["rvv_" in repr(lowered.kernel) for lowered in found] == [True, True, False]


@AS_CODE
@pytest.mark.parametrize("board", BOARDS)
def test_odd_layers_agree_as_code(
    board: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In C, too, although some boards get other variants there by default.
    monkeypatch.setattr(choose, "_first", lambda _, found, _part: found[0])
    require_processor(board)
    rng = np.random.default_rng(6)
    m = ModelBuilder()
    codes = (*CODES, *CODES, *REDUCTIONS) if board == RISCV else (*CODES, *CODES)
    kinds = [(code, dtype) for code in codes for dtype in DTYPES]
    layers = [
        add(m, i, *kind, lambda low, high: int(rng.integers(low, high + 1)))
        for i, kind in enumerate(kinds)
    ]
    path = tmp_path / "m.tflite"
    path.write_bytes(m.build([x for _, x, _ in layers], [y for _, _, y in layers]))
    inputs = [
        values(rng, shape, dtype) for (_, dtype), (shape, _, _) in zip(kinds, layers, strict=True)
    ]
    (row,) = outputs_as_code(path, [v[None] for v in inputs], board, where)
    for got, wanted in zip(row, interpret(load(path), inputs), strict=True):
        np.testing.assert_array_equal(got, wanted)

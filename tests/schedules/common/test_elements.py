"""Sums, differences and products in vectors compute what the plain kernels and TFLite do."""

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
from tests.helpers import require_processor, target_of
from tests.lowered import lower, run
from tests.schedules.layers import (
    ACTIVATIONS,
    AS_CODE,
    Integer,
    drawing,
    outputs_as_code,
    search,
)
from tests.tflite_builder import ModelBuilder, run_reference

Array = np.ndarray[Any, Any]
BOARDS = {
    "mps3_an547": "mve_", "qemu_riscv32_v": "rvv_", "host": "x86_", "host_avx2": "x86_",
    "host_avx512": "x86_",
}
"""The beginnings of their intrinsics' names."""
DTYPES = ("int8", "int16")
CODES = ("ADD", "SUB", "MUL")
SCALES = (0.0002, 0.003, 0.0031, 0.05, 0.7)


def add_layer(
    m: ModelBuilder, number: int, code: str, dtype: str, integer: Integer, size: int = 0
) -> tuple[int, int, int]:
    """(first input, second input, output) of one more layer, of ``size`` or any size."""
    shape = (1, size or integer(1, 70))

    def tensor(name: str) -> int:
        zero = integer(-128, 127) if dtype == "int8" else 0
        scale = SCALES[integer(0, len(SCALES) - 1)]
        return m.tensor(f"{name}{number}", shape, dtype, scale=scale, zero_point=zero)

    a, b, y = (tensor(name) for name in ("a", "b", "y"))
    options = {} if code == "MUL" else {"pot_scale_int16": False}
    m.op(code, [a, b], [y], activation=ACTIVATIONS[integer(0, 3)], **options)
    return a, b, y


def values(rng: np.random.Generator, size: int, dtype: str) -> Array:
    limits = np.iinfo(dtype)
    found = rng.integers(limits.min, limits.max + 1, (1, size)).astype(dtype)
    found[0, ::5] = rng.choice([limits.min, limits.max], len(found[0, ::5]))
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("board", BOARDS)
@search(12)
@given(data=st.data())
def test_a_vector_variant_equals_the_plain_kernel(
    board: str, code: str, dtype: str, tmp_path: Path, data: st.DataObject
) -> None:
    m = ModelBuilder()
    a, b, y = add_layer(m, 0, code, dtype, drawing(data))
    (tmp_path / "m.tflite").write_bytes(m.build([a, b], [y]))
    graph = load(tmp_path / "m.tflite")
    context = Context(graph, graph.nodes[0])
    lowered = lower(context, target_of(board), "balanced")
    assert BOARDS[board] in repr(lowered.kernel)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    operands = [values(rng, context.output().elements, dtype) for _ in range(2)]
    np.testing.assert_array_equal(
        run(graph, lowered, *operands), run(graph, operator_table.lower(context), *operands)
    )


@AS_CODE
@pytest.mark.parametrize("board", BOARDS)
def test_odd_layers_are_tflites(
    board: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In C, too, although some boards get other variants there by default.
    monkeypatch.setattr(choose, "_first", lambda _, found, _part: found[0])
    require_processor(board)
    rng = np.random.default_rng(8)
    m = ModelBuilder()
    kinds = [(code, dtype) for code in CODES for dtype in DTYPES] * 3
    sizes = [int(rng.integers(1, 300)) for _ in kinds]
    layers = [
        add_layer(m, i, *kind, lambda low, high: int(rng.integers(low, high + 1)), size)
        for i, (kind, size) in enumerate(zip(kinds, sizes, strict=True))
    ]
    path = tmp_path / "m.tflite"
    path.write_bytes(m.build([x for a, b, _ in layers for x in (a, b)], [y for *_, y in layers]))
    inputs = [
        values(rng, size, dtype) for (_, dtype), size in zip(kinds, sizes, strict=True)
        for _ in range(2)
    ]
    (row,) = outputs_as_code(path, [v[None] for v in inputs], board, where)
    for got, wanted in zip(row, run_reference(path.read_bytes(), *inputs), strict=True):
        np.testing.assert_array_equal(got, wanted)

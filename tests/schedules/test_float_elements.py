"""Sums, products and averages of bytes as ONNX Runtime computes them, by every instruction set's
schedules, of all pairs of bytes. ``CRTEXPORT_PAIRS=153 pytest …`` compares ten million for each."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from crtexport.firmware.board import load_board
from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Add, AveragePool2D, Mean, Mul, Op
from crtexport.ir.ops.base import Padding2D
from crtexport.ir.types import DType, Quantization
from crtexport.lowering.registry import Context, InputTensor, OutputTensor
from tests.backends.c import c_support
from tests.differential.network import Values, steps
from tests.lowered import bound, lower
from tests.plan.graphs import GraphBuilder

Array = np.ndarray[Any, Any]
BOARDS = {
    "mps2_an386": "'high'", "mps2_an385": "'high'", "qemu_cortex_m0": "'high'",
    "mps3_an547": "mve_mulh", "qemu_riscv32": "'high'", "qemu_riscv32_v": "rvv_vmulh",
    "host": "'high'",
}
DRAWS = int(os.environ.get("CRTEXPORT_PAIRS", "2"))
"""Scales that are drawn for each board; each has 65,536 pairs of bytes."""
FIRST, SECOND = (
    side.reshape(1, -1) for side in np.meshgrid(*[np.arange(-128, 128, dtype=np.int8)] * 2)
)


def summed(quants: list[Quantization], more: int) -> Array:
    """``MlasQLinearAdd`` with AVX2."""
    first, second, out = quants
    ra, rb = (np.float32(q.scale[0]) / np.float32(out.scale[0]) for q in (first, second))
    za, zb, zc = (np.float32(q.zero_point[0] + more) for q in quants)
    start = zc - np.float32(np.float64(ra) * za + np.float64(rb * zb))
    inner = (np.float64(rb) * (SECOND.astype(np.int64) + more) + np.float64(start)).astype("f4")
    total = (np.float64(ra) * (FIRST.astype(np.int64) + more) + inner).astype("f4")
    results: Array = np.rint(total).astype(np.int64) - more
    return results


def multiplied(quants: list[Quantization], more: int) -> Array:
    """``MlasQLinearMul``."""
    first, second, out = quants
    scale = np.float32(first.scale[0]) * np.float32(second.scale[0]) / np.float32(out.scale[0])
    product = (FIRST.astype(np.int64) - first.zero_point[0]) * (
        SECOND.astype(np.int64) - second.zero_point[0]
    )
    real = product.astype(np.float32) * scale + np.float32(out.zero_point[0] + more)
    results: Array = np.rint(real).astype(np.int64) - more
    return results


def drawn(rng: np.random.Generator, op: Op) -> list[Quantization]:
    """Scales with which most results don't saturate."""
    a, b = (float(np.float32(s)) for s in 2.0 ** rng.uniform(-9, -3, 2))
    most = a + b if isinstance(op, Add) else a * b * 255
    scales = a, b, float(np.float32(most * 2.0 ** rng.uniform(-1.5, 0.2)))
    return [Quantization((scale,), (int(rng.integers(-128, 128)),)) for scale in scales]


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("kind", [Add, Mul])
def test_all_pairs_of_bytes(board: str, kind: type[Add | Mul], tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    target = load_board(board).target
    numbers = []
    for draw in range(DRAWS):
        op: Add | Mul = kind(from_uint8=bool(draw % 2))
        quants, more = drawn(rng, op), 128 * op.from_uint8
        b = GraphBuilder()
        inputs = [b.input(*FIRST.shape, dtype=DType.INT8, quant=q) for q in quants[:2]]
        graph = replace(b.finish(b.node(op, *inputs, quant=quants[2])), numerics=Numerics.ORT)
        lowered = lower(Context(graph, graph.nodes[0]), target, "balanced")
        if op == kind(from_uint8=False):
            assert BOARDS[board] in str(lowered.kernel) or kind is Add
        output = np.zeros(FIRST.shape, np.int8)
        arrays = bound(lowered, {
            InputTensor(0): FIRST, InputTensor(1): SECOND, OutputTensor(0): output,
        }.__getitem__)
        folder = tmp_path / str(draw)
        folder.mkdir()
        (run,) = c_support.compiled([lowered.kernel], folder, "-O2")
        got = run([array.reshape(-1) for array in arrays])[lowered.args.index(OutputTensor(0))]
        formula = summed if kind is Add else multiplied
        wanted = np.clip(formula(quants, more), -128, 127).astype(np.int8)
        np.testing.assert_array_equal(got, wanted.reshape(-1))
        numbers.append(len(np.unique(wanted)))
    assert np.median(numbers) > 60


def averaged(x: Array, quants: list[Quantization]) -> Array:
    """``MlasQLinearGlobalAveragePool``, of (1, rows, columns, channels)."""
    before, after = quants
    count = x.shape[1] * x.shape[2]
    scale = np.float32(before.scale[0]) / (np.float32(after.scale[0]) * np.float32(count))
    totals = (x.astype(np.int64) - before.zero_point[0]).sum(axis=(1, 2), keepdims=True)
    results: Array = np.rint(totals.astype(np.float32) * scale).astype(np.int64)
    return results + after.zero_point[0]


def pooled(x: Array, quants: list[Quantization], size: tuple[int, int], more: int) -> Array:
    """``QLinearPool2DTask``: floats, added in the order of rows."""
    before, after = quants
    real = (x.astype(np.int64) - before.zero_point[0]).astype(np.float32)
    real *= np.float32(before.scale[0])
    rows, columns = x.shape[1] - size[0] + 1, x.shape[2] - size[1] + 1
    total = np.zeros((1, rows, columns, x.shape[3]), np.float32)
    for row in range(size[0]):
        for column in range(size[1]):
            total += real[:, row : row + rows, column : column + columns]
    steps_ = total / np.float32(size[0] * size[1]) / np.float32(after.scale[0])
    results: Array = np.rint(steps_ + np.float32(after.zero_point[0] + more)).astype(np.int64)
    return results - more


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("same", [True, False])
def test_averages(board: str, same: bool, tmp_path: Path) -> None:
    """Of windows and whole images, half of the sums on the middle of two results where both tensors
    have one scale."""
    rng = np.random.default_rng(5)
    target = load_board(board).target
    other = Quantization((0.0217,), (9,))
    first = Quantization((0.0371,), (-7,))
    quants = [first, first if same else other]
    x = rng.integers(-30, 30, (1, 12, 10, 19), np.int8)
    x[:, :6, :5] = rng.integers(-128, -100, (6, 5, 19))
    x[:, 6:, 5:] = rng.integers(100, 128, (6, 5, 19))
    pools = [((2, 2), 0), ((3, 3), 128), ((4, 3), 128)]
    cases: list[tuple[Op, Array]] = [
        (AveragePool2D(size, (1, 1), Padding2D(0, 0, 0, 0), from_uint8=more > 0),
         pooled(x, quants, size, more)) for size, more in pools
    ]
    cases.append((Mean((1, 2), keep_dims=True), averaged(x, quants)))
    found = []
    for op, wanted in cases:
        b = GraphBuilder()
        made = b.node(op, b.input(*x.shape, dtype=DType.INT8, quant=quants[0]), quant=quants[1])
        graph = replace(b.finish(made), numerics=Numerics.ORT)
        values: Values = {graph.inputs[0]: x}
        (step,) = steps(graph, values, lambda context: lower(context, target, "balanced"))
        np.testing.assert_array_equal(values[graph.outputs[0]], np.clip(wanted, -128, 127))
        found.append(step)
    if board == "qemu_riscv32_v":  # sums decide on averages of odd windows
        used = [set(re.findall("rvv_(vmulh|nearest)", str(step.kernel))) for step in found[:3]]
        assert used == [{"nearest"}, {"vmulh"}, {"nearest"}]
    in_c = c_support.run_kernels([(step.kernel, step.before) for step in found], tmp_path, "-O1")
    for step, arrays in zip(found, in_c, strict=True):
        for ours, interpreted in zip(arrays, step.after, strict=True):
            c_support.assert_same(ours, interpreted)

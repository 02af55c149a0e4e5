"""Sums scaled as ONNX Runtime does, by every instruction set's schedules, with sums next to halves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from crtexport.firmware.board import load_board
from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Activation, AveragePool2D, Conv2D, DepthwiseConv2D, FullyConnected, Op
from crtexport.ir.ops.base import Padding2D
from crtexport.ir.types import DType, Quantization
from crtexport.lowering.numerics.result_steps import TwoProducts
from crtexport.lowering.registry import Context, InputTensor, OutputTensor
from tests.backends.c import c_support
from tests.differential.network import Values, steps
from tests.helpers import require
from tests.lowered import bound, lower
from tests.plan.graphs import GraphBuilder

Array = np.ndarray[Any, Any]
BOARDS = {
    "mps2_an386": "factor", "mps2_an385": "above", "mps2_an500": "factor",
    "qemu_cortex_m0": "shr", "qemu_riscv32": "factor", "mps3_an547": "mve_round_f32",
    "qemu_riscv32_v": "rvv_vmulh", "host": "x86_scaled_4", "host_avx2": "x86_scaled_8",
    "host_avx512": "x86_scaled_16",
}
"""With a word of the kernels of each."""
FALLBACKS = BOARDS | {
    "mps2_an386": "arm_vcvtr", "mps2_an385": "wrap", "mps2_an500": "arm_vcvtr",
    "qemu_riscv32": "wrap", "qemu_riscv32_v": "rvv_scaled",
}
VALUES, ROUNDS = 10_000_000, 20
X_SCALE, Y_SCALE = np.float32(0.0371), np.float32(0.093)


def layer(op: Op, rng: np.random.Generator, scales: Array, zero: int) -> tuple[Any, Array, Array]:
    """A layer of ones and a few other small weights, whose biases lie on halves of results; its
    weights as (channels, taps), and its biases."""
    channels = len(scales)
    factors = (X_SCALE * scales) / Y_SCALE
    halves = np.rint((rng.integers(-255 - zero, 256 - zero, channels) + 0.5) / factors)
    b = GraphBuilder()
    quants = [Quantization((float(s),), (z,)) for s, z in ((X_SCALE, -7), (Y_SCALE, zero))]
    if isinstance(op, FullyConnected):
        x = b.input(60, 4, dtype=DType.INT8, quant=quants[0])
        shape, axis = (channels, 4), 0
    else:
        x = b.input(1, 10, 6, 4 if isinstance(op, Conv2D) else channels, dtype=DType.INT8,
                    quant=quants[0])
        shape, axis = ((channels, 1, 1, 4), 0) if isinstance(op, Conv2D) else (
            (1, 3, 3, channels), 3
        )
    weights = rng.integers(-1, 2, shape).astype(np.int8)
    matrix = np.moveaxis(weights, axis, 0).reshape(channels, -1).astype(np.int64)
    bias = halves.astype(np.int64) - 7 * matrix.sum(axis=1)
    made = b.node(
        op, x, b.constant(weights, Quantization(tuple(scales.tolist()), (0,) * channels, axis)),
        b.constant(bias.astype(np.int32)), quant=quants[1],
    )
    return replace(b.finish(made), numerics=Numerics.ORT), matrix, bias


def wanted(op: Op, x: Array, matrix: Array, bias: Array, scales: Array, zero: int) -> Array:
    """ONNX Runtime's formula in NumPy's float32."""
    cells = x.astype(np.int64) + 7
    if isinstance(op, DepthwiseConv2D):
        rows, columns = x.shape[1] - 2, x.shape[2] - 2
        taps = np.stack([
            cells[:, i : i + rows, j : j + columns] for i in range(3) for j in range(3)
        ], axis=-1)
        sums = (taps * matrix).sum(axis=-1) + bias
    else:
        sums = cells @ matrix.T + bias
    factors = (X_SCALE * scales) / Y_SCALE
    low = zero if getattr(op, "activation", None) is Activation.RELU else -128
    product = sums.astype(np.float32) * factors
    return np.clip(np.rint(product).astype(np.int64) + zero, low, 127).astype(np.int8)


@pytest.fixture(params=["products", "floats"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Sums are scaled by products with the same steps, or as if there were none."""
    if request.param == "floats":
        monkeypatch.setattr(TwoProducts, "of", lambda *_: None)
    return str(request.param)


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("op", [
    Conv2D(), DepthwiseConv2D(), FullyConnected(keep_num_dims=True),
    Conv2D(activation=Activation.RELU),
], ids=["conv", "depthwise", "dense", "relu"])
@pytest.mark.parametrize("smallest", [2.0**-7, 2.0**-13])
def test_sums_next_to_halves(
    op: Op, board: str, smallest: float, way: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(11)
    zero = -5
    scales = (smallest * rng.uniform(1, 4, 19)).astype(np.float32)
    graph, matrix, bias = layer(op, rng, scales, zero)
    x = rng.integers(-3, 3, graph.type(graph.inputs[0]).shape).astype(np.int8) - np.int8(7)
    values: Values = {graph.inputs[0]: x}
    target = load_board(board).target
    found = list(steps(graph, values, lambda context: lower(context, target, "balanced")))
    words = FALLBACKS if way == "floats" else BOARDS
    assert words[board] in str(found[0].kernel)
    np.testing.assert_array_equal(
        values[graph.outputs[0]], wanted(op, x, matrix, bias, scales, zero)
    )
    in_c = c_support.run_kernels([(s.kernel, s.before) for s in found], tmp_path, "-O1")
    for step, ours in zip(found, in_c, strict=True):
        for array, expected in zip(ours, step.after, strict=True):
            c_support.assert_same(array, expected)


TAPS = np.array([1, 12, 127])
"""Windows of three taps have any sum up to 16,000."""


def drawn(rng: np.random.Generator, shape: tuple[int, ...], bias: Array, factors: Array) -> Array:
    """Windows of taps, (rows, columns, 3, channels); the sums of more than half of them are next to
    halves of results."""
    halves = (rng.integers(-150, 150, shape) + 0.5) / factors - bias
    sums = np.rint(halves).astype(np.int64) + rng.integers(-1, 2, shape)
    # As far as windows reach: the next half that has such a sum.
    step = np.rint(sums * factors).astype(np.int64) - np.rint(
        np.clip(sums, -16_000, 16_000) * factors
    ).astype(np.int64)
    halves -= step / factors
    sums = np.rint(halves).astype(np.int64) + rng.integers(-1, 2, shape)
    anywhere = rng.random(shape) < 0.15
    sums[anywhere] = rng.integers(-16_000, 16_000, int(anywhere.sum()))
    high = np.rint(sums / TAPS[2]).clip(-128, 127).astype(np.int64)
    rest = sums - TAPS[2] * high
    medium = np.rint(rest / TAPS[1]).clip(-128, 127).astype(np.int64)
    low = (rest - TAPS[1] * medium).clip(-128, 127)
    return np.stack([low, medium, high], axis=2).astype(np.int8)


@pytest.mark.parametrize("board", BOARDS)
def test_ten_million_sums(board: str, way: str, tmp_path: Path) -> None:
    """Compiled for this computer: instructions of others are imitated."""
    require("gcc")
    rng = np.random.default_rng(23)
    channels, width, zero = 50, 20, 17
    shape = (VALUES // ROUNDS // width // channels, width, channels)
    scales = (2.0 ** rng.uniform(-9, -5, channels)).astype(np.float32)
    factors = (X_SCALE * scales) / Y_SCALE
    bias = np.rint(rng.uniform(-120, 120, channels) / factors).astype(np.int64)
    b = GraphBuilder()
    quants = [Quantization((float(s),), (z,)) for s, z in ((X_SCALE, 0), (Y_SCALE, zero))]
    x = b.input(
        1, shape[0], 3 * width, channels, dtype=DType.INT8, quant=quants[0]
    )
    weights = np.repeat(TAPS.astype(np.int8), channels).reshape(1, 1, 3, channels)
    made = b.node(
        DepthwiseConv2D(stride=(1, 3)), x,
        b.constant(weights, Quantization(tuple(scales.tolist()), (0,) * channels, 3)),
        b.constant(bias.astype(np.int32)), quant=quants[1],
    )
    graph = replace(b.finish(made), numerics=Numerics.ORT)
    lowered = lower(Context(graph, graph.nodes[0]), load_board(board).target, "balanced")
    (run,) = c_support.compiled([lowered.kernel], tmp_path, "-O2")
    output = np.zeros(shape, np.int8)
    near = 0
    for _ in range(ROUNDS):
        cells = drawn(rng, shape, bias, factors)
        sums = np.tensordot(cells.astype(np.int32), TAPS.astype(np.int32), ((2,), (0,))) + bias
        real = sums.astype(np.float32) * factors
        near += int((np.abs(np.abs(real - np.rint(real)) - 0.5) <= factors).sum())
        expected = np.clip(np.rint(real).astype(np.int64) + zero, -128, 127).astype(np.int8)
        arrays = [array.reshape(-1) for array in bound(lowered, {
            InputTensor(0): cells, InputTensor(1): weights, InputTensor(2): bias.astype(np.int32),
            OutputTensor(0): output,
        }.__getitem__)]
        got = run(arrays)[lowered.args.index(OutputTensor(0))]
        np.testing.assert_array_equal(got, expected.reshape(-1))
    assert near > VALUES // 2


@pytest.mark.parametrize("channels", [4, 7])
@pytest.mark.parametrize("board", ["mps3_an547", "qemu_riscv32_v"])
def test_averages_are_those_of_floats_in_order(
    board: str, channels: int, tmp_path: Path
) -> None:
    """Divided by 16, every 16th sum lies on a half, of which the order of additions decides."""
    rng = np.random.default_rng(3)
    b = GraphBuilder()
    quants = [Quantization((float(X_SCALE),), (z,)) for z in (-7, 5)]
    x = b.input(1, 9, 10, channels, dtype=DType.INT8, quant=quants[0])
    made = b.node(
        AveragePool2D(window=(4, 4), stride=(1, 1), padding=Padding2D(1, 0, 0, 2)), x,
        quant=quants[1],
    )
    graph = replace(b.finish(made), numerics=Numerics.ORT)
    values: Values = {graph.inputs[0]: rng.integers(-128, 128, (1, 9, 10, channels), np.int8)}
    (plain,) = steps(graph, dict(values))
    target = load_board(board).target
    (found,) = steps(graph, values, lambda context: lower(context, target, "balanced"))
    assert ("mve_from_s32" in str(found.kernel)) == (board == "mps3_an547")
    assert ("rvv_nearest_16" in str(found.kernel)) == (board == "qemu_riscv32_v")
    (in_c,) = c_support.run_kernels([(found.kernel, found.before)], tmp_path, "-O1")
    output = values[graph.outputs[0]].reshape(-1)
    np.testing.assert_array_equal(output, next(a for a in plain.after if a.size == output.size))
    for ours, interpreted in zip(in_c, found.after, strict=True):
        c_support.assert_same(ours, interpreted)

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
from crtexport.ir.ops import Activation, Conv2D, DepthwiseConv2D, FullyConnected, Op
from crtexport.ir.types import DType, Quantization
from tests.backends.c import c_support
from tests.differential.network import Values, steps
from tests.lowered import lower
from tests.plan.graphs import GraphBuilder

Array = np.ndarray[Any, Any]
BOARDS = {
    "mps2_an386": "arm_smlad", "mps2_an385": "wrap", "mps2_an500": "arm_smlad",
    "qemu_cortex_m0": "shr", "qemu_riscv32": "mul", "mps3_an547": "mve_round_f32",
}
"""With a word of the kernels of each."""
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


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("op", [
    Conv2D(), DepthwiseConv2D(), FullyConnected(keep_num_dims=True),
    Conv2D(activation=Activation.RELU),
], ids=["conv", "depthwise", "dense", "relu"])
@pytest.mark.parametrize("smallest", [2.0**-7, 2.0**-13])
def test_sums_next_to_halves(op: Op, board: str, smallest: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    zero = -5
    scales = (smallest * rng.uniform(1, 4, 19)).astype(np.float32)
    graph, matrix, bias = layer(op, rng, scales, zero)
    x = rng.integers(-3, 3, graph.type(graph.inputs[0]).shape).astype(np.int8) - np.int8(7)
    values: Values = {graph.inputs[0]: x}
    target = load_board(board).target
    found = list(steps(graph, values, lambda context: lower(context, target, "balanced")))
    assert BOARDS[board] in str(found[0].kernel)
    np.testing.assert_array_equal(
        values[graph.outputs[0]], wanted(op, x, matrix, bias, scales, zero)
    )
    in_c = c_support.run_kernels([(s.kernel, s.before) for s in found], tmp_path, "-O1")
    for step, ours in zip(found, in_c, strict=True):
        for array, expected in zip(ours, step.after, strict=True):
            c_support.assert_same(array, expected)

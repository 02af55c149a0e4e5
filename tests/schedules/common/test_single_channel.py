"""Depthwise convolutions of images with one channel have the kernels of convolutions."""

from __future__ import annotations

import numpy as np
import pytest

from crtexport.ir.graph import Graph
from crtexport.ir.ops import Activation, DepthwiseConv2D, Padding2D
from crtexport.ir.types import DType, Quantization
from crtexport.lowering import operator_table
from crtexport.lowering.registry import Context
from crtexport.schedules.select.lower import Lowerer
from crtexport.schedules.variants import variants_of
from tests.helpers import target_of
from tests.lowered import run
from tests.plan.graphs import GraphBuilder

BOARDS = ("qemu_cortex_m0", "mps2_an386", "mps3_an547", "qemu_riscv32", "qemu_riscv32_v", "host")
PREFIX = "as a convolution, "


def layer(
    dtype: DType, *, channels: int = 1, rows: int = 7, multiplier: int = 6
) -> tuple[Graph, np.ndarray]:
    """A layer with a scale for each output, and what it is given."""
    rng = np.random.default_rng(3)
    b, outputs, real = GraphBuilder(), channels * multiplier, dtype is DType.FLOAT32
    scales = tuple(float(s) for s in rng.uniform(0.005, 0.02, outputs).astype(np.float32))
    of_input = None if real else Quantization((0.05,), (3,))
    x = b.input(1, 11, 9, channels, dtype=dtype, quant=of_input)
    shape = (1, rows, 4, outputs)
    if real:
        weights = b.constant(rng.normal(size=shape).astype(np.float32))
        bias = b.constant(rng.normal(size=outputs).astype(np.float32))
    else:
        weights = b.constant(
            rng.integers(-127, 128, shape, np.int8), Quantization(scales, (0,) * outputs, 3)
        )
        bias = b.constant(
            rng.integers(-999, 999, outputs, np.int32),
            Quantization(tuple(float(np.float32(s * 0.05)) for s in scales), (0,) * outputs, 0),
        )
    op = DepthwiseConv2D(multiplier, (2, 1), (1, 1), Padding2D(3, 2, 1, 0), Activation.RELU)
    made = b.node(op, x, weights, bias, quant=None if real else Quantization((0.1,), (-20,)))
    given = rng.normal(0, 2, (1, 11, 9, channels))
    return b.finish(made), given.astype(np.float32) if real else (given * 40).astype(np.int8)


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.INT8], ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("board", BOARDS)
def test_each_gives_what_the_plain_kernel_gives(board: str, dtype: DType) -> None:
    graph, given = layer(dtype)
    context = Context(graph, graph.nodes[0])
    found = [v for v in variants_of(context, target_of(board), "balanced") if PREFIX in v.name]
    assert found
    wanted = run(graph, operator_table.lower(context), given)
    for variant in found:
        ours = run(graph, variant.make(), given)
        if dtype is DType.INT8:
            np.testing.assert_array_equal(ours, wanted, variant.name)
        else:
            np.testing.assert_allclose(ours, wanted, 1e-5, 1e-4, err_msg=variant.name)


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.INT8], ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547"])
def test_windows_of_many_cells_are_computed_so(board: str, dtype: DType) -> None:
    graph, _ = layer(dtype, rows=10, multiplier=24)
    (node,) = Lowerer(target_of(board), "balanced")(graph).nodes
    assert node.chosen.startswith(PREFIX)


def test_images_of_several_channels_have_none() -> None:
    graph, _ = layer(DType.FLOAT32, channels=2)
    context = Context(graph, graph.nodes[0])
    for optimize in ("size", "balanced"):
        found = variants_of(context, target_of("mps2_an386"), optimize)
        assert not any(PREFIX in variant.name for variant in found)

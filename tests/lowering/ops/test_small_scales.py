"""Softmax and LogSoftmax of inputs whose scales are so small that all their numbers are alike."""

from __future__ import annotations

import math

import numpy as np
import pytest

from crtexport.firmware.board import load_board
from crtexport.ir.graph import Graph
from crtexport.ir.ops import LogSoftmax, Softmax
from crtexport.ir.types import DType, Quantization
from crtexport.lowering.registry import Context
from tests.lowered import lower, run
from tests.plan.graphs import GraphBuilder

ROW = np.array([[-128, 127, 0, 3]], np.int8)
PROBABILITIES, LOGARITHMS = Quantization((1 / 256,), (-128,)), Quantization((1 / 16,), (127,))


def row(op: Softmax | LogSoftmax, scale: float) -> Graph:
    b = GraphBuilder()
    x = b.input(1, 4, dtype=DType.INT8, quant=Quantization((scale,), (0,)))
    quant = PROBABILITIES if isinstance(op, Softmax) else LOGARITHMS
    return b.finish(b.node(op, x, quant=quant))


@pytest.mark.parametrize("exponent", [-20, -25, -26, -27, -28, -40, -100])
@pytest.mark.parametrize("op", [Softmax(), LogSoftmax()])
def test_numbers_that_hardly_differ_share_the_probability(
    op: Softmax | LogSoftmax, exponent: int
) -> None:
    """The multiplier of 2**-26 is 1: below it shifts to the right, which runtimes abort at."""
    graph = row(op, 2.0**exponent)
    target = load_board("host").target
    got = run(graph, lower(Context(graph, graph.nodes[0]), target, "balanced"), ROW)
    even = 64 - 128 if isinstance(op, Softmax) else round(127 - 16 * math.log(4))
    assert np.abs(got.astype(int) - even).max() <= 1

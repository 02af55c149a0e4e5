"""A fully connected operator whose result is only read in parts becomes one for each part."""

from __future__ import annotations

import numpy as np
import pytest

from crtexport.ir.graph import Graph
from crtexport.ir.ops import FullyConnected, Gather, Op, Reshape, Slice, Split, Transpose
from crtexport.ir.types import DType, Quantization
from crtexport.passes import run
from crtexport.passes.split_layers import split_layers
from tests.differential.network import interpret
from tests.plan.graphs import GraphBuilder

RNG = np.random.default_rng(0)
ROWS, DEPTH = 5, 7
W, B = (RNG.normal(size=shape).astype(np.float32) for shape in ((24, DEPTH), (24,)))
X = RNG.normal(size=(ROWS, DEPTH)).astype(np.float32)
WHOLE = X.astype(np.float64) @ W.T + B


def layers(graph: Graph) -> list[int]:
    """The units of a graph's layers."""
    return [
        graph.type(node.outputs[0]).shape[-1]
        for node in graph.nodes if isinstance(node.op, FullyConnected)
    ]


def builder() -> tuple[GraphBuilder, int]:
    b = GraphBuilder()
    x = b.input(ROWS, DEPTH)
    return b, b.node(FullyConnected(keep_num_dims=True), x, b.constant(W), b.constant(B))


def cut(begin: int, size: int) -> Slice:
    return Slice((0, begin), (ROWS, size), (1, 1), (ROWS, size))


@pytest.mark.parametrize(("op", "sizes"), [
    (Split(1, (4, 12, 8)), [4, 12, 8]), (Split(1, (8, 8, 8)), [8, 8, 8]),
])
def test_each_part_of_a_split_is_a_layer(op: Split, sizes: list[int]) -> None:
    b, whole = builder()
    graph = b.finish(*b.node_of(op, whole))
    assert layers(run(graph)) == sizes
    assert not any(isinstance(node.op, Split) for node in run(graph).nodes)
    for found, part in zip(
        interpret(run(graph), [X]), np.split(WHOLE, np.cumsum(sizes)[:-1], 1), strict=True
    ):
        np.testing.assert_allclose(found, part, rtol=1e-5, atol=1e-5)


def test_heads_are_layers_whichever_way_they_are_taken() -> None:
    b, whole = builder()
    heads = b.node(Reshape((ROWS, 1, 3, 8)), whole)
    first = b.node(Gather(2), heads, b.constant(np.int32(0)))
    second = b.node(
        Slice((0, 0, 1, 0), (ROWS, 1, 1, 8), (1, 1, 1, 1), (ROWS, 8)), heads
    )
    third = b.node(Gather(2), heads, b.constant(np.int32(2)))
    graph = b.finish(third, b.node(Transpose((1, 2, 0)), first), second)
    assert layers(run(graph)) == [8, 8, 8]
    found = interpret(run(graph), [X])
    assert [array.shape for array in found] == [(ROWS, 1, 8), (1, 8, ROWS), (ROWS, 8)]
    expected = WHOLE[:, None, 16:], WHOLE[:, None, :8].transpose(1, 2, 0), WHOLE[:, 8:16]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_units_that_nobody_reads_are_not_computed() -> None:
    b, whole = builder()
    graph = b.finish(b.node(cut(0, 4), whole), b.node(cut(11, 6), whole))
    assert layers(run(graph)) == [4, 6]
    found = interpret(run(graph), [X])
    for ours, theirs in zip(found, (WHOLE[:, :4], WHOLE[:, 11:17]), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scales", [1, 24])
def test_quantized_parts_keep_their_scales(scales: int) -> None:
    b = GraphBuilder()
    one, result = Quantization((0.02,), (5,)), Quantization((0.3,), (-7,))
    x = b.input(ROWS, DEPTH, dtype=DType.INT8, quant=one)
    real = tuple(RNG.uniform(0.01, 0.1, scales).tolist())
    axis = None if scales == 1 else 0
    numbers = RNG.integers(-127, 128, (24, DEPTH)).astype(np.int8)
    weights = b.constant(numbers, Quantization(real, (0,) * scales, axis))
    biases = tuple(0.02 * scale for scale in real)
    bias = b.constant(
        RNG.integers(-999, 999, 24).astype(np.int32), Quantization(biases, (0,) * scales, axis)
    )
    whole = b.node(FullyConnected(), x, weights, bias, quant=result)
    graph = b.finish(*b.node_of(Split(1, (4, 20)), whole, quant=result))
    data = RNG.integers(-128, 128, (ROWS, DEPTH)).astype(np.int8)
    assert layers(split_layers(graph)) == [4, 20]
    for before, after in zip(
        interpret(graph, [data]), interpret(split_layers(graph), [data]), strict=True
    ):
        np.testing.assert_array_equal(before, after)
        assert len(np.unique(after)) > 10


@pytest.mark.parametrize("ops", [
    (cut(0, 16), cut(8, 16)),  # units of both would be computed twice
    (cut(0, 8),),  # one part: that is a matter of removing channels
    (Slice((0, 0), (2, 8), (1, 1), (2, 8)), cut(8, 8)),  # some of the rows
    (Slice((0, 0), (ROWS, 8), (1, 2), (ROWS, 8)), cut(16, 8)),  # every other unit
    (Split(1, (2, 22)),), (Split(1, (1,) * 24),),  # a call for so little
    (cut(0, 12), Reshape((ROWS * 24,))),  # somebody reads the whole
], ids=range(7))
def test_other_layers_stay(ops: tuple[Op, ...]) -> None:
    b, whole = builder()
    graph = b.finish(*(tensor for op in ops for tensor in b.node_of(op, whole)))
    assert split_layers(graph) == graph

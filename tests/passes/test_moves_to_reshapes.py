"""Operators that move nothing become views; those that do stay."""

from __future__ import annotations

import numpy as np
import pytest

from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.infer import infer
from crtexport.ir.ops import (
    Activation,
    BroadcastTo,
    Concatenation,
    Op,
    Pack,
    Pad,
    Reshape,
    Slice,
    Split,
    Tile,
    Transpose,
    Unpack,
)
from crtexport.ir.types import DType, Quantization, TensorType
from crtexport.passes import run
from crtexport.passes.moves_to_reshapes import moves_to_reshapes
from crtexport.plan import plan
from tests.differential.network import interpret
from tests.lowered import without_kernels


def network(op: Op, shape: tuple[int, ...], quant: Quantization | None = None) -> Graph:
    x = TensorType(DType.UINT8, shape)
    (y,) = infer(op, (x,), declared=(DType.UINT8,))
    tensors = (Tensor("x", x), Tensor("y", TensorType(y.dtype, y.shape, quant)))
    return Graph("g", tensors, (Node(op, (0,), (1,)),), (0,), (1,))


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        (Transpose((0, 3, 1, 2)), (1, 4, 5, 1)), (Transpose((1, 0)), (1, 4)),
        (Slice((0, 0), (3, 2), (1, 1), (3, 2)), (3, 2)),
        (Slice((0, 0), (1, 2), (-1, 1), (2,)), (1, 2)), (BroadcastTo((1, 3)), (3,)),
        (Tile((1, 1)), (2, 3)), (Split(0, (2,)), (2, 3)), (Unpack(0), (1, 3)),
        (Pack(1), (2, 3)), (Concatenation(0), (2, 3)), (Pad(((0, 0),)), (3,)),
    ],
)
def test_what_moves_nothing_is_a_view(op: Op, shape: tuple[int, ...]) -> None:
    graph = network(op, shape)
    (node,) = moves_to_reshapes(graph).nodes
    assert node.op == Reshape(graph.type(1).shape)
    data = np.arange(int(np.prod(shape)), dtype=np.uint8).reshape(shape)
    (before,), (after,) = interpret(graph, [data]), interpret(run(graph), [data])
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        (Transpose((1, 0)), (2, 4)), (Slice((0,), (2,), (1,), (2,)), (3,)),
        (Slice((2,), (3,), (-1,), (3,)), (3,)), (BroadcastTo((2, 3)), (3,)), (Tile((2,)), (3,)),
        (Concatenation(0, Activation.RELU), (2,)), (Pad(((0, 1),)), (3,)),
    ],
)
def test_what_moves_something_stays(op: Op, shape: tuple[int, ...]) -> None:
    graph = network(op, shape)
    assert moves_to_reshapes(graph) == graph


def test_what_is_rescaled_stays() -> None:
    graph = network(Concatenation(0), (2,), Quantization((0.5,), (1,)))
    assert moves_to_reshapes(graph) == graph


def test_views_cost_no_step() -> None:
    x = TensorType(DType.INT8, (1, 4, 5, 1))
    turned = TensorType(DType.INT8, (1, 1, 4, 5))
    tensors = tuple(Tensor("t", type_) for type_ in (x, x, turned, turned))
    nodes = (
        Node(Tile((1, 1, 1, 1)), (0,), (1,)), Node(Transpose((0, 3, 1, 2)), (1,), (2,)),
        Node(Slice((0, 0, 3, 0), (1, 1, 4, 5), (1, 1, -1, 1), (1, 1, 4, 5)), (2,), (3,)),
    )
    graph = run(Graph("g", tensors, nodes, (0,), (3,)))
    assert [step.node for step in plan(without_kernels(graph)).steps] == [2]

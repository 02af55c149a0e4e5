"""Constants are folded to what the kernels would compute."""

from __future__ import annotations

import numpy as np
import pytest

from crtexport.ir.evaluate import Array, evaluate
from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.infer import infer
from crtexport.ir.ops import (
    Activation,
    Add,
    BroadcastTo,
    Cast,
    Concatenation,
    FloorDiv,
    FloorMod,
    Gather,
    GatherNd,
    Maximum,
    Minimum,
    Mul,
    Neg,
    Op,
    Pack,
    ReduceProd,
    Reshape,
    Slice,
    Split,
    Sub,
    Sum,
    Tile,
    Transpose,
    Unpack,
)
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType
from tests.differential.network import interpret


def constant(array: Array, quant: Quantization | None = None) -> Tensor:
    dtype = next(d for d in DType if d.numpy == array.dtype)
    return Tensor("c", TensorType(dtype, array.shape, quant), ConstantRef.of(array))


def numbers(*shape: int, dtype: type = np.int32) -> Array:
    return (np.arange(int(np.prod(shape))) * 7 % 11 - 4).astype(dtype).reshape(shape)


FOLDED: list[tuple[Op, tuple[Array, ...], int]] = [
    (Add(), (numbers(2, 3), numbers(3)), 1),
    (Sub(), (numbers(2, 3, dtype=np.int64), numbers(dtype=np.int64)), 1),
    (Mul(), (numbers(4), numbers(4)), 1),
    (FloorDiv(), (numbers(4), np.array([3, -2, 2, -3], np.int32)), 1),
    (FloorMod(), (numbers(4), np.array([3, -2, 2, -3], np.int32)), 1),
    (Maximum(), (numbers(4), numbers()), 1),
    (Minimum(), (numbers(4), numbers()), 1),
    (Neg(), (numbers(4),), 1),
    (Cast(), (np.array([5, -(2**31) - 3, 2**40 + 7]),), 1),
    (ReduceProd((0,)), (numbers(4),), 1),
    (Sum((1,), keep_dims=True), (numbers(2, 3),), 1),
    (Reshape((3, 2)), (numbers(2, 3, dtype=np.float32),), 1),
    (Transpose((1, 2, 0)), (numbers(2, 3, 4, dtype=np.int8),), 1),
    (Slice((2, 0), (2, 2), (-1, 1), (4,)), (numbers(3, 2),), 1),
    (Slice((), (), (), (1,)), (numbers(),), 1),
    (BroadcastTo((2, 3, 2)), (numbers(3, 1),), 1),
    (Tile((2, 1)), (numbers(2, 3),), 1),
    (Split(1, (1, 2)), (numbers(2, 3),), 2),
    (Unpack(1), (numbers(2, 3),), 3),
    (Pack(1), (numbers(2), numbers(2)), 1),
    (Concatenation(0), (numbers(2), numbers(3)), 1),
    (Gather(1), (numbers(2, 3), np.array([[2, 0], [5, -1]], np.int32)), 1),
    (GatherNd(), (numbers(2, 3), np.array([[1, 2], [0, -9], [7, 7]], np.int32)), 1),
]


@pytest.mark.parametrize(("op", "arrays", "count"), FOLDED)
def test_folding_gives_what_the_kernel_gives(
    op: Op, arrays: tuple[Array, ...], count: int
) -> None:
    inputs = [constant(array) for array in arrays]
    types = tuple(tensor.type for tensor in inputs)
    declared = DType.INT32 if isinstance(op, Cast) else types[0].dtype
    outputs = infer(op, types, declared=(declared,) * count)
    ids = tuple(range(len(inputs), len(inputs) + len(outputs)))
    graph = Graph(
        "g", (*inputs, *(Tensor("y", type_) for type_ in outputs)),
        (Node(op, tuple(range(len(inputs))), ids),), (), ids,
    )
    folded = evaluate(op, inputs, [type_.dtype for type_ in outputs])
    assert folded is not None
    for ours, expected in zip(folded, interpret(graph, []), strict=True):
        assert ours.dtype == expected.dtype
        np.testing.assert_array_equal(ours, expected)


SCALED = Quantization((0.5,), (3,))

KEPT: list[tuple[Op, tuple[Tensor, ...]]] = [
    (Add(), (constant(numbers(2, dtype=np.float32)), constant(numbers(2, dtype=np.float32)))),
    (Add(), (constant(numbers(2), SCALED), constant(numbers(2)))),
    (Add(Activation.RELU), (constant(numbers(2)), constant(numbers(2)))),
    (FloorDiv(), (constant(numbers(2)), constant(np.zeros(2, np.int32)))),
    (Add(), (constant(numbers(2)), Tensor("x", TensorType(DType.INT32, (2,))))),
    (Concatenation(0), (constant(numbers(2), SCALED), constant(numbers(2)))),
    (BroadcastTo((2000,)), (constant(numbers()),)),
    (Tile((2000,)), (constant(numbers(1)),)),
]


@pytest.mark.parametrize(("op", "inputs"), KEPT)
def test_what_is_left_to_the_kernels(op: Op, inputs: tuple[Tensor, ...]) -> None:
    assert evaluate(op, inputs, [inputs[0].type.dtype]) is None

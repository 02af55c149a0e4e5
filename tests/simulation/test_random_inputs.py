"""Inputs of verify: indices are valid wherever a network takes them from its inputs."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.ops import (
    Add,
    Cast,
    Concatenation,
    EmbeddingLookup,
    Gather,
    GatherNd,
    Less,
    Op,
    Quantize,
    Reshape,
    Rsqrt,
    Select,
    Sqrt,
)
from crtexport.ir.types import DType, Quantization, TensorType
from crtexport.ir.verify import verify
from crtexport.simulation.random_inputs import index_limits, random_inputs

I32, I64, F32 = DType.INT32, DType.INT64, DType.FLOAT32


def graph(types: list[tuple[DType, tuple[int, ...]]], inputs: int, *nodes: Node) -> Graph:
    tensors = tuple(Tensor(f"t{i}", TensorType(*type_)) for i, type_ in enumerate(types))
    made = Graph("g", tensors, nodes, tuple(range(inputs)), (len(types) - 1,))
    verify(made)
    return made


@pytest.mark.parametrize(
    ("op", "table", "indices", "result", "order", "limit"),
    [
        (Gather(1), (4, 7, 2), (3,), (4, 3, 2), (0, 1), 7),
        (GatherNd(), (5, 3, 9), (2, 2), (2, 9), (0, 1), 3),
        (EmbeddingLookup(), (6, 4), (3,), (3, 4), (1, 0), 6),
    ],
)
def test_indices_are_below_what_they_choose_from(
    op: Op, table: tuple[int, ...], indices: tuple[int, ...], result: tuple[int, ...],
    order: tuple[int, int], limit: int,
) -> None:
    made = graph([(F32, table), (I32, indices), (F32, result)], 2, Node(op, order, (2,)))
    drawn = np.array([row[1] for row in random_inputs(made, 200, 1)])
    assert set(drawn.reshape(-1).tolist()) == set(range(limit))
    assert random_inputs(made, 1, 1)[0][0].min() < 0


@pytest.mark.parametrize("kind", [Sqrt, Rsqrt])
@pytest.mark.parametrize("zero", [-128, 3])
def test_nothing_below_zero_gets_a_root(kind: type[Op], zero: int) -> None:
    """Of int8 with a zero point, moved before, and of floats that are quantized before."""
    scaled = TensorType(DType.INT8, (4, 6), Quantization((0.1,), (zero,)))
    types = [scaled, replace(scaled, shape=(24,)), replace(scaled, shape=(24,)),
             TensorType(F32, (24,)), replace(scaled, shape=(24,)), replace(scaled, shape=(24,))]
    nodes = (
        Node(Reshape((24,)), (0,), (1,)), Node(kind(), (1,), (2,)), Node(Quantize(), (3,), (4,)),
        Node(kind(), (4,), (5,)),
    )
    tensors = tuple(Tensor(f"t{i}", type_) for i, type_ in enumerate(types))
    made = Graph("g", tensors, nodes, (0, 3), (2, 5))
    verify(made)
    rows = random_inputs(made, 60, 1)
    integers, floats = (np.stack([row[i] for row in rows]) for i in (0, 1))
    assert integers.dtype == np.int8
    assert integers.min() == zero
    assert integers.max() == 127
    assert floats.min() >= 0


def test_floats_that_become_indices_are_whole_and_valid() -> None:
    """As those of Keras' Embedding, whose inputs are floats."""
    made = graph(
        [(F32, (2, 3)), (F32, (7, 4)), (I32, (2, 3)), (F32, (2, 3, 4))], 2,
        Node(Cast(), (0,), (2,)), Node(Gather(0), (1, 2), (3,)),
    )
    drawn = np.array([row[0] for row in random_inputs(made, 50, 3)])
    assert drawn.dtype == np.float32
    assert {*drawn.reshape(-1).tolist()} == {*map(float, range(7))}


def test_indices_are_followed_through_what_moves_them() -> None:
    """Two lists side by side, reshaped and cast; the smaller of two tables counts."""
    made = graph(
        [(I64, (2, 2)), (I64, (2, 1)), (F32, (9, 3)), (F32, (5, 3)), (I64, (2, 3)), (I64, (6,)),
         (I32, (6,)), (F32, (6, 3)), (F32, (6, 3)), (F32, (12, 3))], 4,
        Node(Concatenation(1), (0, 1), (4,)), Node(Reshape((6,)), (4,), (5,)),
        Node(Cast(), (5,), (6,)), Node(Gather(0), (2, 6), (7,)),
        Node(EmbeddingLookup(), (6, 3), (8,)), Node(Concatenation(0), (7, 8), (9,)),
    )
    limits = index_limits(made)
    assert (limits[0], limits[1]) == (5, 5)
    assert not {2, 3} & set(limits)


def test_indices_that_may_count_from_the_end_are_followed() -> None:
    """As ONNX's importer writes them: where one is below 0, the table's length is added."""
    made = graph(
        [(F32, (9, 3)), (I64, (5,)), (I64, (1,)), (DType.BOOL, (5,)), (I64, (5,)), (I64, (5,)),
         (F32, (5, 3))], 3,
        Node(Less(), (1, 2), (3,)), Node(Add(), (1, 2), (4,)), Node(Select(), (3, 4, 1), (5,)),
        Node(Gather(0), (0, 5), (6,)),
    )
    limits = index_limits(made)
    assert limits[1] == 9
    assert not {0, 2, 3} & set(limits)

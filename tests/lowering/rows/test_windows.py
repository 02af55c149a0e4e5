"""Nodes that can be computed row by row, and others."""

from __future__ import annotations

import numpy as np
import pytest

from crtexport.ir.graph import Graph
from crtexport.ir.ops import (
    Add,
    AveragePool2D,
    Concatenation,
    MaxPool2D,
    Op,
    Padding2D,
    Relu,
    Reshape,
    ResizeNearestNeighbor,
    Softmax,
)
from crtexport.ir.types import DType
from crtexport.lowering.rows.bands import cascade
from crtexport.lowering.rows.schedule import row_schedule
from crtexport.lowering.rows.windows import RowWindow, row_windows
from tests.lowering.rows.drawn import Q
from tests.plan.graphs import GraphBuilder


def _windows(op: Op, *others: np.ndarray[tuple[int, ...], np.dtype[np.int8]]) -> object:
    b = GraphBuilder()
    x = b.input(1, 6, 4, 2, dtype=DType.INT8, quant=Q)
    graph = b.finish(b.node(op, x, *(b.constant(other, Q) for other in others), quant=Q))
    return row_windows(graph, graph.nodes[0])


ONES = np.ones((1, 6, 4, 2), np.int8)


@pytest.mark.parametrize(("op", "window"), [
    (AveragePool2D((2, 2), (2, 2)), RowWindow(2, 2, fill=-128)),
    (MaxPool2D((3, 3), padding=Padding2D(2, 0, 1, 1)), RowWindow(3, 1, 2, fill=-128)),
    (ResizeNearestNeighbor((12, 8)), RowWindow(made=2)),
    (Relu(), RowWindow()),
])
def test_windows_are_those_of_rows(op: Op, window: RowWindow) -> None:
    assert _windows(op) == {0: window}


@pytest.mark.parametrize("op", [
    AveragePool2D((2, 2), padding=Padding2D(1, 0, 0, 0)),  # the padding doesn't count
    ResizeNearestNeighbor((9, 8)), ResizeNearestNeighbor((12, 8), align_corners=True),
    Reshape((1, 4, 6, 2)), Softmax(),
])
def test_others_need_whole_tensors(op: Op) -> None:
    assert _windows(op) is None


def test_constants_are_the_same_for_all_rows() -> None:
    assert _windows(Add(), np.ones((4, 2), np.int8)) == {0: RowWindow()}
    assert _windows(Add(), ONES) is None
    assert _windows(Concatenation(3), ONES) is None


def _joined(axis: int) -> Graph:
    b = GraphBuilder()
    x, y = (b.input(1, 6, 4, 2, dtype=DType.INT8, quant=Q) for _ in range(2))
    return b.finish(b.node(Concatenation(axis), x, y, quant=Q))


def test_channels_and_columns_are_joined_row_by_row() -> None:
    for axis in (2, 3):
        graph = _joined(axis)
        assert row_windows(graph, graph.nodes[0]) == dict.fromkeys((0, 1), RowWindow())
    graph = _joined(1)
    assert row_windows(graph, graph.nodes[0]) is None


def test_inputs_without_rows_around_them_are_read_where_they_lie() -> None:
    """Rows are fetched only for windows that stick out."""
    b = GraphBuilder()
    x = b.input(1, 6, 4, 2, dtype=DType.INT8, quant=Q)
    graph = b.finish(b.node(Relu(), b.node(MaxPool2D((2, 2)), x, quant=Q), quant=Q))
    found = row_schedule(graph, cascade(graph.nodes, graph.outputs), (1, 1))
    assert found is not None
    assert list(found.capacity) == [graph.nodes[0].outputs[0]]


def test_a_result_that_a_part_reads_is_there_as_a_whole() -> None:
    b = GraphBuilder()
    x = b.input(1, 6, 4, 2, dtype=DType.INT8, quant=Q)
    first = b.node(MaxPool2D((2, 2)), x, quant=Q)
    graph = b.finish(b.node(Relu(), first, quant=Q), first)
    found = row_schedule(graph, cascade(graph.nodes, graph.outputs), (1, 1))
    assert found is not None
    assert not found.capacity


def test_a_result_that_a_part_reads_with_padding_is_not_computed_row_by_row() -> None:
    b = GraphBuilder()
    x = b.input(1, 6, 4, 2, dtype=DType.INT8, quant=Q)
    first = b.node(Relu(), x, quant=Q)
    padded = MaxPool2D((3, 3), padding=Padding2D(1, 1, 1, 1))
    graph = b.finish(b.node(padded, first, quant=Q), first)
    assert row_schedule(graph, cascade(graph.nodes, graph.outputs), (1, 1)) is None

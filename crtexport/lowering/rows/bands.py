"""A cascade's work on rows as a graph of nodes, each of which computes a row of one tensor.

Its nodes are not connected: each has the rows that it reads as inputs of the graph, and the row
that it makes as an output. So they are lowered like any others.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.ops import (
    AveragePool2D,
    BroadcastTo,
    Cascade,
    ChannelSums,
    Conv2D,
    DepthwiseConv2D,
    MaxPool2D,
    Op,
    Reshape,
    ResizeNearestNeighbor,
    TransposeConv2D,
)
from crtexport.ir.types import ConstantRef, DType, TensorType
from crtexport.lowering.rows.schedule import (
    Compute,
    Fetch,
    Fill,
    Move,
    RowSchedule,
    Work,
    row_schedule,
)
from crtexport.lowering.rows.windows import of_rows, row_windows


class Bands(Struct, frozen=True):
    """The ``schedule`` of a cascade, and the ``graph`` whose node n does the work ``works[n]``."""

    schedule: RowSchedule
    graph: Graph
    works: tuple[Work, ...]


def bands(graph: Graph, node: Node) -> Bands | None:
    """Returns the work of a cascade on rows; None where its parts can't be computed row by row."""
    if not isinstance(node.op, Cascade):
        raise TypeError(node.op)
    schedule = row_schedule(graph, node, node.op.heights)
    if schedule is None:
        return None
    works = tuple(dict.fromkeys(step.work for step in schedule.steps))
    maker = _Maker(graph, node)
    for work in works:
        maker.add(work)
    return Bands(schedule, maker.finish(), works)


_PIECES = DType.INT64, DType.INT32, DType.INT16, DType.INT8


class _Maker:
    """Gathers tensors and nodes."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self._graph, self._node = graph, node
        self._tensors: list[Tensor] = []
        self._nodes: list[Node] = []
        self._inputs: list[int] = []
        self._outputs: list[int] = []
        self._constants: dict[int, int] = {}

    def add(self, work: Work) -> None:
        """One more node."""
        match work:
            case Compute(part, rows, more):
                self._compute(self._node.parts[part], rows, more=more)
            case Fill(tensor, value):
                type_ = self._rows(tensor, 1)
                number = np.full((1, 1, 1, 1), value, type_.dtype.numpy)
                one = TensorType(type_.dtype, number.shape, type_.quant)
                source = self._tensor(Tensor("padding", one, ConstantRef.of(number)))
                self._node_of(BroadcastTo(type_.shape), (source,), tensor, type_, "padding of")
            case Fetch(tensor):
                self._copy(tensor, 1, "a row of")
            case Move(tensor, rows):
                self._copy(tensor, rows, f"keep {rows} row{'s' if rows > 1 else ''} of")

    def _compute(self, part: Node, rows: int, *, more: bool) -> None:
        windows = row_windows(self._graph, part) or {}
        inputs: list[int | None] = []
        for position, tensor in enumerate(part.inputs):
            if tensor is None:
                inputs.append(None)
            elif position in windows:
                type_ = self._rows(tensor, windows[position].covered(rows))
                inputs.append(self._given(self._name(tensor), type_))
            else:
                inputs.append(self._constant(tensor))
        (made,) = part.outputs
        if more:
            inputs.append(self._given(self._name(made), self._graph.type(made)))
        output = self._made(
            self._name(made), self._rows(made, 1 if isinstance(part.op, ChannelSums) else rows)
        )
        self._nodes.append(replace(
            part, op=_of_rows(part.op, rows), inputs=tuple(inputs), outputs=(output,)
        ))

    def _copy(self, tensor: int, rows: int, what: str) -> None:
        """Rows that are kept begin at multiples of their size in aligned memory, so they move in
        the largest pieces that a row has a whole number of."""
        type_ = self._rows(tensor, rows)
        if what.startswith("keep"):
            row = self._rows(tensor, 1).nbytes
            piece = next(p for p in _PIECES if row % p.itemsize == 0)
            type_ = TensorType(piece, (1, rows, 1, row // piece.itemsize))
        source = self._given(self._name(tensor), type_)
        self._node_of(Reshape(type_.shape), (source,), tensor, type_, what)

    def _node_of(
        self, op: Op, inputs: tuple[int, ...], tensor: int, type_: TensorType, what: str
    ) -> None:
        name = self._name(tensor)
        output = self._made(name, type_)
        self._nodes.append(Node(op, inputs, (output,), name, f"{what} {name!r}"))

    def _name(self, tensor: int) -> str:
        return self._graph.tensors[tensor].name

    def _rows(self, tensor: int, rows: int) -> TensorType:
        return of_rows(self._graph.type(tensor), rows)

    def _tensor(self, tensor: Tensor) -> int:
        self._tensors.append(tensor)
        return len(self._tensors) - 1

    def _constant(self, tensor: int) -> int:
        if tensor not in self._constants:
            self._constants[tensor] = self._tensor(self._graph.tensors[tensor])
        return self._constants[tensor]

    def _given(self, name: str, type_: TensorType) -> int:
        self._inputs.append(self._tensor(Tensor(name, type_)))
        return self._inputs[-1]

    def _made(self, name: str, type_: TensorType) -> int:
        self._outputs.append(self._tensor(Tensor(name, type_)))
        return self._outputs[-1]

    def finish(self) -> Graph:
        return replace(
            self._graph, tensors=tuple(self._tensors), nodes=tuple(self._nodes),
            inputs=tuple(self._inputs), outputs=tuple(self._outputs), modules=(),
        )


def _of_rows(op: Op, rows: int) -> Op:
    """Returns an operator for ``rows`` rows of its output, of a window that needs no padding above
    or below."""
    if isinstance(op, TransposeConv2D | ResizeNearestNeighbor):
        return replace(op, size=(rows, op.size[1]))
    if isinstance(op, Conv2D | DepthwiseConv2D | MaxPool2D | AveragePool2D):
        return replace(op, padding=replace(op.padding, top=0, bottom=0))
    return op

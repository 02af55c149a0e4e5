"""A cascade's work on rows as a graph of nodes, each of which computes a band of rows.

Its nodes are not connected: each has the rows that it reads as inputs of the graph, and the rows
that it makes as an output. So they are lowered like any others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

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
    Pad,
    Reshape,
    ResizeNearestNeighbor,
    Slice,
    TransposeConv2D,
)
from crtexport.ir.types import ConstantRef, DType, TensorType
from crtexport.lowering.rows.schedule import (
    Compute,
    Fetch,
    Fill,
    Ready,
    RowMove,
    RowSchedule,
    Work,
    row_schedule,
)
from crtexport.lowering.rows.windows import of_rows, row_windows


class Bands(Struct, frozen=True):
    """The ``schedule`` of a cascade, and the ``graph`` whose node n does the work ``works[n]``,
    ``runs[n]`` times."""

    schedule: RowSchedule
    graph: Graph
    works: tuple[Work, ...]
    runs: tuple[int, ...]


def cascade(
    parts: Sequence[Node], outputs: Sequence[int], heights: Sequence[int] = (), *,
    fed: bool = False, hop: int = 0, rests: bool = False,
) -> Node:
    """Returns the node that computes ``parts`` row by row, so many rows at once (one by default);
    ``outputs`` are what others read of their results. ``fed``: rows of the input are given one
    after the other, ``hop`` further ones for each further result. ``rests``: rows that are left
    above and below are computed at once, too."""
    made = {tensor for part in parts for tensor in part.outputs}
    inputs = dict.fromkeys(
        tensor for part in parts for tensor in part.inputs
        if tensor is not None and tensor not in made
    )
    last = parts[-1]
    op = Cascade(tuple(heights) or (1,) * len(parts), fed, hop, rests)
    return Node(
        op, tuple(inputs), tuple(outputs), last.name,
        f"rows of {parts[0]} to {last}", parts=tuple(parts),
    )


def bands(graph: Graph, node: Node) -> Bands | None:
    """Returns the work of a cascade on rows; None where its parts can't be computed row by row."""
    if not isinstance(node.op, Cascade):
        raise TypeError(node.op)
    schedule = row_schedule(graph, node, node.op.heights)
    if schedule is None:
        return None
    runs = Counter(
        step.work for step in schedule.steps if not isinstance(step.work, Ready)
    )
    maker = _Maker(graph)
    for work in runs:
        match work:
            case Compute(part, rows, more):
                maker.compute(node.parts[part], rows, onto=more)
            case Fill(tensor, value):
                maker.fill(tensor, value)
            case Fetch(tensor):
                maker.fetch(tensor)
            case RowMove(tensor, rows):
                maker.move(tensor, rows)
    return Bands(schedule, maker.finish(), tuple(runs), tuple(runs.values()))


def band(graph: Graph, part: Node, rows: int) -> Graph:
    """Returns a graph that computes so many rows of the output of a node alone."""
    maker = _Maker(graph)
    maker.compute(part, rows, onto=isinstance(part.op, ChannelSums))
    return maker.finish()


def moving(graph: Graph, tensor: int, rows: int) -> Graph:
    """Returns a graph that moves so many rows of a ring."""
    maker = _Maker(graph)
    maker.move(tensor, rows)
    return maker.finish()


_PIECES = DType.INT64, DType.INT32, DType.INT16, DType.INT8


class _Maker:
    """Gathers tensors and nodes."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._tensors: list[Tensor] = []
        self._nodes: list[Node] = []
        self._inputs: list[int] = []
        self._outputs: list[int] = []
        self._constants: dict[int, int] = {}

    def compute(self, part: Node, rows: int, *, onto: bool) -> None:
        """Adds the node that computes ``rows`` of the output of a part; or, ``onto`` the sums that
        there are, those of further rows."""
        windows = row_windows(self._graph, part) or {}
        inputs: list[int | None] = []
        for position, tensor in enumerate(part.inputs):
            if tensor is None:
                inputs.append(None)
            elif position in windows:
                inputs.append(self._given(tensor, windows[position].covered(rows)))
            else:
                inputs.append(self._constant(tensor))
        (made,) = part.outputs
        if onto:
            inputs.append(self._given(made, 1))
        output = self._made(made, 1 if isinstance(part.op, ChannelSums) else rows)
        self._nodes.append(replace(
            part, op=_of_rows(part.op, rows), inputs=tuple(inputs), outputs=(output,)
        ))

    def fill(self, tensor: int, value: float) -> None:
        """Emits a row of padding."""
        type_ = of_rows(self._graph.type(tensor), 1)
        number = np.full((1, 1, 1, 1), value, type_.dtype.numpy)
        one = TensorType(type_.dtype, number.shape, type_.quant)
        source = self._tensor(Tensor("padding", one, ConstantRef.of(number)))
        name = self._name(tensor)
        self._nodes.append(Node(
            BroadcastTo(type_.shape), (source,), (self._made(tensor, 1),), name,
            f"padding of {name!r}",
        ))

    def fetch(self, tensor: int) -> None:
        """A copy of a row that is given."""
        source, target = self._given(tensor, 1), self._made(tensor, 1)
        self._copy(source, target, f"a row of {self._name(tensor)!r}")

    def move(self, tensor: int, rows: int) -> None:
        """Adds a copy of rows of a ring. They begin at multiples of their size in aligned memory,
        so they move in the largest pieces that a row has a whole number of."""
        row = of_rows(self._graph.type(tensor), 1).nbytes
        piece = next(p for p in _PIECES if row % p.itemsize == 0)
        type_ = TensorType(piece, (1, rows, 1, row // piece.itemsize))
        name = self._name(tensor)
        self._inputs.append(self._tensor(Tensor(name, type_)))
        self._outputs.append(self._tensor(Tensor(name, type_)))
        what = f"move {rows} row{'s' if rows > 1 else ''} of {name!r}"
        self._copy(self._inputs[-1], self._outputs[-1], what)

    def _copy(self, source: int, target: int, what: str) -> None:
        tensor = self._tensors[target]
        self._nodes.append(
            Node(Reshape(tensor.type.shape), (source,), (target,), tensor.name, what)
        )

    def _name(self, tensor: int) -> str:
        return self._graph.tensors[tensor].name

    def _tensor(self, tensor: Tensor) -> int:
        self._tensors.append(tensor)
        return len(self._tensors) - 1

    def _constant(self, tensor: int) -> int:
        if tensor not in self._constants:
            self._constants[tensor] = self._tensor(self._graph.tensors[tensor])
        return self._constants[tensor]

    def _rows(self, tensor: int, rows: int) -> int:
        """Returns a tensor of some rows of another one."""
        return self._tensor(Tensor(self._name(tensor), of_rows(self._graph.type(tensor), rows)))

    def _given(self, tensor: int, rows: int) -> int:
        self._inputs.append(self._rows(tensor, rows))
        return self._inputs[-1]

    def _made(self, tensor: int, rows: int) -> int:
        self._outputs.append(self._rows(tensor, rows))
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
    if isinstance(op, Pad):
        batch, _, *others = op.paddings
        return Pad((batch, (0, 0), *others))
    if isinstance(op, Slice):
        begin, size = (with_rows(values, n) for values, n in ((op.begin, 0), (op.size, rows)))
        return Slice(begin, size, op.stride, size)
    return op


def with_rows(values: tuple[int, ...], rows: int) -> tuple[int, ...]:
    """Returns values of the axes of an image (NHWC) with another one for rows."""
    batch, _, *others = values
    return (batch, rows, *others)

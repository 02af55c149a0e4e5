"""Nodes that can be computed row by row, and the rows of its inputs that a row needs."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node
from crtexport.ir.types import DType, TensorType
from crtexport.ir.window import WindowGeometry
from crtexport.lowering.ops.pool import LOWEST

Number = int | float
_ROWS = 1  # the axis of images


class RowWindow(Struct, frozen=True):
    """Row y of an output needs ``size`` rows of an input, from row ``y * stride - before`` on. Rows
    that aren't there are full of ``fill``. With ``made``, each row of an input gives so many of the
    output, which are computed together."""

    size: int = 1
    stride: int = 1
    before: int = 0
    fill: Number = 0
    made: int = 1

    def first(self, row: int) -> int:
        """Returns the first row of the input that ``row`` of the output needs."""
        return row // self.made * self.stride - self.before

    def covered(self, rows: int) -> int:
        """Returns the rows of the input that so many neighbouring rows of the output need."""
        return (-(-rows // self.made) - 1) * self.stride + self.size

    def sticks_out(self, rows: int, positions: int) -> bool:
        """Returns whether one of ``positions`` windows has rows that an input of ``rows`` has
        not."""
        return self.before > 0 or self.first(positions - 1) + self.size > rows


def paddings(graph: Graph, node: Node, windows: Mapping[int, RowWindow]) -> dict[int, Number]:
    """Returns what rows of padding are full of that a node of such windows sees, by tensor."""
    positions = rows_of(graph.type(node.outputs[0]))
    return {
        tensor: window.fill for position, window in windows.items()
        for tensor in (graph.required(node, position),)
        if window.sticks_out(rows_of(graph.type(tensor)), positions)
    }


def rows_together(windows: Mapping[int, RowWindow]) -> int:
    """Returns the rows of an output that are computed together, or a multiple of them."""
    return max((window.made for window in windows.values()), default=1)


def rows_of(type_: TensorType) -> int:
    """Returns the number of rows of an image (NHWC)."""
    return type_.shape[_ROWS]


def of_rows(type_: TensorType, rows: int) -> TensorType:
    """Returns the type of so many rows of an image (NHWC)."""
    batch, _, *others = type_.shape
    return TensorType(type_.dtype, (batch, rows, *others), type_.quant)


def row_windows(graph: Graph, node: Node) -> dict[int, RowWindow] | None:
    """Returns the windows of those inputs of a node that aren't constant, by their positions; None
    for one that can't be computed row by row."""
    if len(node.outputs) != 1 or node.graphs or node.parts:
        return None
    images = {
        position: graph.type(tensor) for position, tensor in enumerate(node.inputs)
        if tensor is not None and graph.constant(tensor) is None
    }
    variables = any(t is not None and graph.tensors[t].variable is not None for t in node.inputs)
    output = graph.type(node.outputs[0])
    if variables or not images or not all(_image(t) for t in (*images.values(), output)):
        return None
    match node.op:
        case ops.Conv2D() | ops.DepthwiseConv2D():
            return _convolution(graph, node, node.op) if set(images) == {0} else None
        case ops.TransposeConv2D():
            return _transposed(graph, node, node.op) if set(images) == {0} else None
        case ops.ResizeNearestNeighbor(size=(height, _), align_corners=False):
            made, rest = divmod(height, rows_of(images[0]))
            return {0: RowWindow(made=made)} if made and not rest else None
        case ops.Slice() if op_of_image(node.op):
            return {0: RowWindow(1, node.op.stride[_ROWS], -node.op.begin[_ROWS])}
        case ops.Pad(paddings=paddings) if not paddings[0][0] + paddings[0][1]:
            zero = 0 if images[0].quant is None else images[0].quant.zero_point[0]
            return {0: RowWindow(before=paddings[_ROWS][0], fill=zero)}
        case ops.ChannelSums():
            return {0: RowWindow()} if set(images) == {0} else None
        case ops.MaxPool2D() | ops.AveragePool2D():
            return _pool(graph, node, node.op)
        case ops.Concatenation(axis=axis) if axis != _ROWS and axis:
            return None if len(images) != len(node.inputs) else dict.fromkeys(images, RowWindow())
        case ops.Elementwise() | ops.Quantize() | ops.Dequantize():
            same = all(type_.shape == output.shape for type_ in images.values())
            return dict.fromkeys(images, RowWindow()) if same and _alike(graph, node) else None
        case _:
            return None


def op_of_image(op: ops.Slice) -> bool:
    """Returns whether a slice is one of an image, from top to bottom, and stays an image."""
    return op.size == op.shape and len(op.size) == 4 and op.stride[_ROWS] > 0


def _image(type_: TensorType) -> bool:
    return len(type_.shape) == 4 and type_.shape[0] == 1 and type_.elements > 0


def _alike(graph: Graph, node: Node) -> bool:
    """Returns whether the constants that a node reads are the same for all rows."""
    constants = (t for t in node.inputs if t is not None and graph.constant(t) is not None)
    shapes = (graph.type(tensor).shape for tensor in constants)
    return all(len(shape) < 3 or shape[-3] == 1 for shape in shapes)


def _convolution(
    graph: Graph, node: Node, op: ops.Conv2D | ops.DepthwiseConv2D
) -> dict[int, RowWindow] | None:
    source, weights = (graph.type(graph.required(node, position)) for position in (0, 1))
    if source.quant is not None and not source.quant.per_tensor:
        return None
    zero = 0 if source.quant is None else source.quant.zero_point[0]
    kernel = weights.shape[1], weights.shape[2]
    geometry = WindowGeometry.of(op, source.shape, graph.type(node.outputs[0]).shape, kernel)
    rows = geometry.rows
    return {0: RowWindow(rows.span, rows.stride, rows.pad_before, zero)}


def _transposed(
    graph: Graph, node: Node, op: ops.TransposeConv2D
) -> dict[int, RowWindow] | None:
    """Only where the windows of neighbouring rows don't overlap."""
    source, weights = (graph.type(graph.required(node, position)) for position in (0, 1))
    stride = op.stride[0]
    apart = weights.shape[1] == stride and not op.crop[0]
    whole = graph.type(node.outputs[0]).shape[_ROWS] == rows_of(source) * stride
    return {0: RowWindow(made=stride)} if apart and whole else None


def _pool(
    graph: Graph, node: Node, op: ops.MaxPool2D | ops.AveragePool2D
) -> dict[int, RowWindow] | None:
    source = graph.type(graph.required(node, 0))
    geometry = WindowGeometry.of(op, source.shape, graph.type(node.outputs[0]).shape, op.window)
    rows = geometry.rows
    if isinstance(op, ops.AveragePool2D) and rows.padded:
        return None  # the padding doesn't count
    lowest = LOWEST if source.dtype is DType.FLOAT32 else None
    fill = lowest if lowest is not None else source.dtype.limits[0]
    return {0: RowWindow(rows.span, rows.stride, rows.pad_before, fill)}

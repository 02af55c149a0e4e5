"""Rewrites a graph for TensorFlow Lite's runtimes: replaces operators that they can't run."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from crtexport.ir import ops
from crtexport.ir.bias_scales import refused_by_runtimes, scale_difference
from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType
from crtexport.passes.drop_dead import drop_dead
from crtexport.simulation.tflite_forms import implicit_padding
from crtexport.support.errors import CrtExportError


def hybrid_weights(graph: Graph, node: Node) -> int | None:
    """Returns the int8 weights (a tensor id) that ``node`` applies to float32 activations; None if
    it isn't such a node."""
    convolution = ops.Conv2D | ops.DepthwiseConv2D | ops.TransposeConv2D
    if not isinstance(node.op, convolution | ops.FullyConnected):
        return None
    data, weights = graph.required(node, 0), graph.required(node, 1)
    types = (graph.type(data).dtype, graph.type(weights).dtype)
    return weights if types == (DType.FLOAT32, DType.INT8) else None


def with_float_weights(graph: Graph) -> Graph:
    """Returns ``graph`` with the weights of hybrid nodes as float32: scale * (stored - zero point).

    Nodes and tensors that no output depends on are left out. Raises CrtExportError, naming the
    node, for hybrid weights that are computed at run time.
    """
    tensors = list(graph.tensors)
    floats: dict[int, int] = {}
    nodes = []
    for given in graph.nodes:
        node = replace(given, graphs=tuple(map(with_float_weights, given.graphs)))
        weights = hybrid_weights(graph, node)
        if weights is None:
            nodes.append(node)
            continue
        if weights not in floats:
            floats[weights] = len(tensors)
            tensors.append(_dequantized(graph, node, weights))
        nodes.append(_with_input(node, 1, floats[weights]))
    return drop_dead(replace(graph, tensors=tuple(tensors), nodes=tuple(nodes)))


def computed_wrong(graph: Graph) -> bool:
    """Returns whether tflite-runtime 2.14 computes ``graph`` wrong where :func:`legalize` has
    another encoding: a FULLY_CONNECTED with a scale per channel and a result that isn't
    two-dimensional, whose second dimension it takes for the channels."""
    return any(_is_wrong(inner, node) for inner in graph.nested() for node in inner.nodes)


def _is_wrong(graph: Graph, node: Node) -> bool:
    if not isinstance(node.op, ops.FullyConnected) or len(graph.type(node.outputs[0]).shape) == 2:
        return False
    weights = graph.type(graph.required(node, 1))
    return weights.quant is not None and not weights.quant.per_tensor


def legalize(graph: Graph) -> Graph:
    """Returns ``graph`` in a form that the runtimes compute correctly.

    Convolutions that pad neither SAME nor VALID get explicit PADs, biases the scales that runtimes
    require, and CONV_2D without a bias gets one, since they demand it; TILEs of int16 become
    concatenations, and nodes of :func:`computed_wrong` are replaced. New tensors follow those of
    ``graph``.
    """
    tensors = list(graph.tensors)
    nodes: list[Node] = []
    for node in graph.nodes:
        op = node.op
        if scale_difference(graph, node) is not None and refused_by_runtimes(graph, node):
            # A valid graph has such a bias only where it is all zero.
            bias = graph.tensors[graph.required(node, 2)]
            scaled = replace(bias.type, quant=_bias_quantization(graph, node))
            node = _with_input(node, 2, len(tensors))  # noqa: PLW2901
            tensors.append(replace(bias, type=scaled))
        if isinstance(op, ops.FullyConnected) and _is_wrong(graph, node):
            nodes += _of_rows(graph, node, op, tensors)
            continue
        if isinstance(op, ops.Tile) and graph.type(node.outputs[0]).dtype is DType.INT16:
            nodes += _repeated(graph, node, op, tensors)
            continue
        if isinstance(op, ops.Conv2D) and graph.optional(node, 2) is None:
            node = _with_input(node, 2, len(tensors))  # noqa: PLW2901
            tensors.append(_zero_bias(graph, node))
        if (
            isinstance(op, ops.Conv2D | ops.DepthwiseConv2D)
            and implicit_padding(graph, node, op) is None
        ):
            data = graph.required(node, 0)
            padding, padded = _padded(graph.tensors[data], op.padding)
            nodes.append(Node(padding, (data,), (len(tensors),), node.name, node.origin))
            node = _with_input(  # noqa: PLW2901
                replace(node, op=replace(op, padding=ops.Padding2D())), 0, len(tensors)
            )
            tensors.append(padded)
        nodes.append(node)
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def _with_input(node: Node, position: int, tensor: int) -> Node:
    inputs = [*node.inputs, *[None] * (position + 1 - len(node.inputs))]
    inputs[position] = tensor
    return replace(node, inputs=tuple(inputs))


def _dequantized(graph: Graph, node: Node, weights: int) -> Tensor:
    tensor = graph.tensors[weights]
    quant = tensor.type.quant
    if tensor.constant is None or quant is None:
        raise CrtExportError(
            f"the int8 weights {tensor.name!r} are not a constant with scales",
            location=(graph.source, str(node)),
        )
    stored = tensor.constant.array(tensor.type).astype(np.int32)
    zeros = _along(quant.zero_point, quant, stored.ndim).astype(np.int32)
    scales = _along(quant.scale, quant, stored.ndim).astype(np.float32)
    real = scales * (stored - zeros).astype(np.float32)
    return Tensor(
        tensor.name, TensorType(DType.FLOAT32, tensor.type.shape), ConstantRef.of(real)
    )


def _along(
    values: tuple[int, ...] | tuple[float, ...], quant: Quantization, rank: int
) -> npt.NDArray[np.generic]:
    """Returns the values as an array that broadcasts over the tensor: one for all, or one per
    slice."""
    shape = [1] * rank
    if quant.axis is not None:
        shape[quant.axis] = len(values)
    return np.array(values).reshape(shape)


def _of_rows(
    graph: Graph, node: Node, op: ops.FullyConnected, tensors: list[Tensor]
) -> list[Node]:
    """Returns the layer on the rows of a matrix, between two RESHAPEs; appends both matrices to
    ``tensors``."""
    data, (result,) = graph.required(node, 0), node.outputs
    units, depth = graph.type(graph.required(node, 1)).shape
    rows = len(tensors)
    for tensor, width in ((data, depth), (result, units)):
        known = graph.tensors[tensor]
        shape = (known.type.elements // width if width else 0, width)
        tensors.append(Tensor(f"{known.name}/rows", replace(known.type, shape=shape)))
    matrix = replace(_with_input(node, 0, rows), op=replace(op, keep_num_dims=False))
    return [
        Node(ops.Reshape(tensors[rows].type.shape), (data,), (rows,), node.name, node.origin),
        replace(matrix, outputs=(rows + 1,)),
        Node(ops.Reshape(graph.type(result).shape), (rows + 1,), (result,), node.name, node.origin),
    ]


def _repeated(graph: Graph, node: Node, op: ops.Tile, tensors: list[Tensor]) -> list[Node]:
    """Returns one CONCATENATION per axis; appends the intermediate results to ``tensors``."""
    source = graph.required(node, 0)
    type_ = graph.type(source)
    nodes: list[Node] = []
    for axis, count in enumerate(op.multiples):
        shape = list(type_.shape)
        shape[axis] *= count
        type_ = replace(type_, shape=tuple(shape))
        last = axis == len(op.multiples) - 1
        result = node.outputs[0] if last else len(tensors)
        if not last:
            tensors.append(Tensor(f"{node.name}/{axis}", type_))
        joined = ops.Concatenation(axis)
        nodes.append(Node(joined, (source,) * count, (result,), node.name, node.origin))
        source = result
    return nodes


def _bias_quantization(graph: Graph, node: Node) -> Quantization | None:
    """Returns the scales of the accumulators that a bias is added to."""
    data = graph.type(graph.required(node, 0)).quant
    weights = graph.type(graph.required(node, 1)).quant
    if data is None or weights is None:
        return None
    scales = tuple(data.scale[0] * scale for scale in weights.scale)
    return Quantization(scales, (0,) * len(scales), None if len(scales) == 1 else 0)


def _zero_bias(graph: Graph, node: Node) -> Tensor:
    data = graph.type(graph.required(node, 0))
    weights = graph.type(graph.required(node, 1))
    sums = {DType.INT8: DType.INT32, DType.UINT8: DType.INT32, DType.INT16: DType.INT64}
    type_ = TensorType(
        sums.get(data.dtype, data.dtype), weights.shape[:1], _bias_quantization(graph, node)
    )
    zeros = np.zeros(type_.shape, type_.dtype.numpy)
    return Tensor(f"{node.name}/bias", type_, ConstantRef.of(zeros))


def _padded(data: Tensor, padding: ops.Padding2D) -> tuple[ops.Pad, Tensor]:
    frame = ((0, 0), (padding.top, padding.bottom), (padding.left, padding.right), (0, 0))
    shape = tuple(
        before + size + after
        for size, (before, after) in zip(data.type.shape, frame, strict=True)
    )
    return ops.Pad(frame), Tensor(f"{data.name}/padded", replace(data.type, shape=shape))

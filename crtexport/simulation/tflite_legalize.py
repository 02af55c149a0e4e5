"""Graph to graph: what TensorFlow Lite's runtimes can't take, said with what they can."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from crtexport.errors import CrtExportError
from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.ops import (
    Conv2D,
    DepthwiseConv2D,
    FullyConnected,
    Pad,
    Padding2D,
    TransposeConv2D,
)
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType
from crtexport.passes.drop_dead import drop_dead
from crtexport.simulation.tflite_forms import implicit_padding


def hybrid_weights(graph: Graph, node: Node) -> int | None:
    """The int8 weights (a tensor id) that ``node`` applies to float32 activations, if it does."""
    if not isinstance(node.op, Conv2D | DepthwiseConv2D | FullyConnected | TransposeConv2D):
        return None
    data, weights = graph.required(node, 0), graph.required(node, 1)
    types = (graph.type(data).dtype, graph.type(weights).dtype)
    return weights if types == (DType.FLOAT32, DType.INT8) else None


def with_float_weights(graph: Graph) -> Graph:
    """``graph`` with the weights of hybrid nodes as float32: scale * (stored - zero point).

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


def legalize(graph: Graph) -> Graph:
    """``graph`` with explicit PADs where a convolution pads neither SAME nor VALID, and biases.

    The runtimes demand a bias of CONV_2D alone. New tensors follow those of ``graph``.
    """
    tensors = list(graph.tensors)
    nodes: list[Node] = []
    for node in graph.nodes:
        op = node.op
        if isinstance(op, Conv2D) and graph.optional(node, 2) is None:
            node = _with_input(node, 2, len(tensors))  # noqa: PLW2901
            tensors.append(_zero_bias(graph, node))
        if (
            isinstance(op, Conv2D | DepthwiseConv2D)
            and implicit_padding(graph, node, op) is None
        ):
            data = graph.required(node, 0)
            padding, padded = _padded(graph.tensors[data], op.padding)
            nodes.append(Node(padding, (data,), (len(tensors),), node.name, node.origin))
            node = _with_input(  # noqa: PLW2901
                replace(node, op=replace(op, padding=Padding2D())), 0, len(tensors)
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
    """One value for all, or one per slice, as an array that broadcasts over the tensor."""
    shape = [1] * rank
    if quant.axis is not None:
        shape[quant.axis] = len(values)
    return np.array(values).reshape(shape)


def _zero_bias(graph: Graph, node: Node) -> Tensor:
    data = graph.type(graph.required(node, 0))
    weights = graph.type(graph.required(node, 1))
    sums = {DType.INT8: DType.INT32, DType.UINT8: DType.INT32, DType.INT16: DType.INT64}
    type_ = TensorType(sums.get(data.dtype, data.dtype), weights.shape[:1])
    if data.quant is not None and weights.quant is not None:
        scales = tuple(data.quant.scale[0] * scale for scale in weights.quant.scale)
        axis = None if len(scales) == 1 else 0
        type_ = replace(type_, quant=Quantization(scales, (0,) * len(scales), axis))
    zeros = np.zeros(type_.shape, type_.dtype.numpy)
    return Tensor(f"{node.name}/bias", type_, ConstantRef.of(zeros))


def _padded(data: Tensor, padding: Padding2D) -> tuple[Pad, Tensor]:
    frame = ((0, 0), (padding.top, padding.bottom), (padding.left, padding.right), (0, 0))
    shape = tuple(
        before + size + after
        for size, (before, after) in zip(data.type.shape, frame, strict=True)
    )
    return Pad(frame), Tensor(f"{data.name}/padded", replace(data.type, shape=shape))

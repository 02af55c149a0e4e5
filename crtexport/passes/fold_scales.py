"""Folds factors and addends per channel, as of a batch normalization, into the layer before them.
"""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.types import ConstantRef, DType, Made, TensorType
from crtexport.passes.uses import readers

_WEIGHTS, _BIAS = 1, 2
_ITEM = DType.FLOAT32.itemsize
Vector = npt.NDArray[np.float64]


def fold_scales(graph: Graph) -> Graph:
    """Folds Mul, Div, Add and Sub with one constant per channel into the convolution or fully
    connected operator before them, if nothing else reads its result.

    Requires: nothing. Ensures: that operator computes their output itself. Only floats are folded,
    and weights only if no other node reads them; else flash would hold them twice.
    """
    uses, tensors = readers(graph), list(graph.tensors)
    nodes: list[Node] = []
    layers: dict[int, int] = {}  # the index in nodes, by the tensor that the node computes
    for node in graph.nodes:
        if _is_layer(graph, node, uses):
            layers[node.outputs[0]] = len(nodes)
        found = _scale(graph, node)
        if found is None or found.tensor not in layers or uses[found.tensor] != 1:
            nodes.append(node)
            continue
        place = layers.pop(found.tensor)
        activation = getattr(node.op, "activation", ops.Activation.NONE)
        layer = _scaled(nodes[place], tensors, found)
        nodes[place] = replace(
            layer, op=replace(layer.op, activation=activation), outputs=node.outputs
        )
        if activation is ops.Activation.NONE:
            layers[node.outputs[0]] = place
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def _is_layer(graph: Graph, node: Node, uses: dict[int, int]) -> bool:
    """Returns whether a node has constant weights that no other node reads, and no fused
    activation."""
    match op := node.op:
        case (
            ops.Conv2D() | ops.DepthwiseConv2D() | ops.TransposeConv2D() | ops.FullyConnected()
        ) if op.activation is ops.Activation.NONE:
            weights, bias = graph.required(node, _WEIGHTS), graph.optional(node, _BIAS)
            return (
                _constant(graph, weights) is not None and uses[weights] == 1
                and graph.type(node.outputs[0]).dtype is DType.FLOAT32
                and (bias is None or _constant(graph, bias) is not None)
            )
        case _:
            return False


def _constant(graph: Graph, tensor: int) -> ConstantRef | None:
    return graph.constant(tensor) if graph.type(tensor).dtype is DType.FLOAT32 else None


class _Scale(Struct, frozen=True):
    """``tensor`` times ``factor`` plus ``addend``, each one number or one for each channel."""

    tensor: int
    factor: Vector
    addend: Vector


def _scale(graph: Graph, node: Node) -> _Scale | None:
    """Returns the factor and addend by which a node scales a tensor; None if it does anything else.
    """
    if not isinstance(node.op, ops.Mul | ops.Div | ops.Add | ops.Sub):
        return None
    x, y = graph.required(node, 0), graph.required(node, 1)
    if graph.constant(x) is not None and isinstance(node.op, ops.Mul | ops.Add):
        x, y = y, x
    constant, type_, shape = _constant(graph, y), graph.type(y), graph.type(x).shape
    if constant is None or graph.type(node.outputs[0]).shape != shape or not shape or (
        type_.elements not in (1, shape[-1]) or prod(type_.shape[:-1]) != 1
    ):
        return None
    numbers = constant.array(type_).astype(np.float64).reshape(-1)
    one, zero = np.ones(1), np.zeros(1)
    match node.op:
        case ops.Mul():
            factor, addend = numbers, zero
        case ops.Div():
            if not numbers.all():
                return None
            factor, addend = 1 / numbers, zero
        case ops.Add():
            factor, addend = one, numbers
        case _:
            factor, addend = one, -numbers
    finite = np.isfinite(factor).all() and np.isfinite(addend).all()
    return _Scale(x, factor, addend) if finite else None


def _scaled(layer: Node, tensors: list[Tensor], scale: _Scale) -> Node:
    """Returns the layer with scaled weights, and with a bias if it needs one; appends both to
    ``tensors``."""
    inputs = list(layer.inputs)
    if (scale.factor != 1).any():
        weights = _tensor(tensors, inputs[_WEIGHTS])
        shape, source = weights.type.shape, weights.constant
        if source is None:
            raise ValueError(f"{weights.name!r} is no constant")
        inner = 1 if isinstance(layer.op, ops.DepthwiseConv2D) else prod(shape[1:])
        rule = _Multiplied(scale.factor.tobytes(), inner)
        inputs[_WEIGHTS] = len(tensors)
        made = ConstantRef(nbytes=source.nbytes, made=Made(source, rule, (_ITEM, _ITEM)))
        tensors.append(replace(weights, constant=made))
    channels = tensors[layer.outputs[0]].type.shape[-1]
    inputs += [None] * (_BIAS + 1 - len(inputs))
    before = np.zeros(channels)
    if inputs[_BIAS] is not None:
        bias = _tensor(tensors, inputs[_BIAS])
        if bias.constant is not None:
            before = bias.constant.array(bias.type).astype(np.float64)
    after = np.broadcast_to(before * scale.factor + scale.addend, (channels,)).astype(np.float32)
    if inputs[_BIAS] is not None or after.any():
        inputs[_BIAS] = len(tensors)
        name = f"{tensors[layer.outputs[0]].name}/bias"
        tensors.append(Tensor(name, TensorType(DType.FLOAT32, (channels,)), ConstantRef.of(after)))
    return replace(layer, inputs=tuple(inputs if inputs[_BIAS] is not None else inputs[:_BIAS]))


def _tensor(tensors: list[Tensor], number: int | None) -> Tensor:
    if number is None:
        raise ValueError("a layer without weights")
    return tensors[number]


class _Multiplied(Struct, frozen=True):
    """Weights times the factors (float64) of their channels; each channel has ``inner`` weights in
    a row."""

    factors: bytes
    inner: int

    def __call__(self, position: int, piece: bytes) -> bytes:
        values, factors = np.frombuffer(piece, "<f4"), np.frombuffer(self.factors)
        places = np.arange(position // _ITEM, position // _ITEM + len(values))
        return (values * factors[places // self.inner % len(factors)]).astype("<f4").tobytes()

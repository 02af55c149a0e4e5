"""A depthwise convolution of an image with one channel is a convolution, of whose kernels it can
have any: converters write a network's first layer so, with large windows and many outputs."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from crtexport.ir.ops import Conv2D, DepthwiseConv2D
from crtexport.ir.types import ConstantRef
from crtexport.lowering.operator_table import check
from crtexport.lowering.registry import SCALAR_OF, Context, Derived, InputTensor, Lowered

_WEIGHTS = 1
_MOST_BYTES = 1 << 20
"""More weights are not moved in memory."""


def as_convolution(context: Context) -> Context | None:
    """Returns the node as a Conv2D, its weights (1, rows, columns, outputs) as (outputs, rows,
    columns, 1); None for other nodes, and for weights that aren't constant, are packed or large.
    """
    node, op, graph = context.node, context.node.op, context.graph
    if not isinstance(op, DepthwiseConv2D) or node.parts or context.packed_bits:
        return None
    number = graph.required(node, _WEIGHTS)
    weights = graph.tensors[number]
    if context.input(0).shape[-1] != 1 or weights.constant is None or (
        weights.type.nbytes > _MOST_BYTES
    ):
        return None
    _, rows, columns, outputs = weights.type.shape
    moved = np.ascontiguousarray(weights.constant.array(weights.type).transpose(3, 1, 2, 0))
    quant = weights.type.quant
    if quant is not None and not quant.per_tensor:
        quant = replace(quant, axis=0)
    type_ = replace(weights.type, shape=(outputs, rows, columns, 1), quant=quant)
    tensors = list(graph.tensors)
    tensors[number] = replace(weights, type=type_, constant=ConstantRef.of(moved))
    conv = replace(node, op=Conv2D(op.stride, op.dilation, op.padding, op.activation))
    made = Context(replace(graph, tensors=tuple(tensors)), conv)
    return None if check(made) else made


def with_own_weights(conv: Context, lowered: Lowered) -> Lowered:
    """Returns a kernel of such a Conv2D for the node that it was: weights that it reads as they are
    become a constant of its own."""
    own = Derived("weights", SCALAR_OF[conv.input(_WEIGHTS).dtype], conv.constant(_WEIGHTS))
    return replace(lowered, args=tuple(
        own if arg == InputTensor(_WEIGHTS) else arg for arg in lowered.args
    ))

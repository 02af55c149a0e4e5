"""Nodes that do what a layer and the operator behind it did, as one kernel.

The kernel is that of the layer, in whatever form a schedule gave it, but each result that it would
store is handed to the other operator. So either operator keeps the one meaning that it has, and no
schedule knows of the other one.

A sum, difference or product of two tensors is computed with the result, and stored instead of it;
of maxima and means of windows see :mod:`crtexport.kernels.joint_windows`.
"""

from __future__ import annotations

from crtexport.ir.ops import Add, AveragePool2D, Fused, MaxPool2D, Mean, Mul, ReduceMax, Sub
from crtexport.kernels.accesses import accesses
from crtexport.kernels.families import check, lower
from crtexport.kernels.ir import Buffer
from crtexport.kernels.joint_windows import Maxima, Means
from crtexport.kernels.joints import CantHandError, Elements, Joint, Vectors
from crtexport.kernels.registry import (
    SCALAR_OF,
    Context,
    Lowered,
    OutputTensor,
    lowers,
)


def layer_of(context: Context) -> Context:
    """What a lowering may know of the first part of a fused node."""
    return Context(context.graph, context.node.parts[0])


def parts_that_fit(context: Context) -> str | None:
    """Each part must keep the rules of its operator."""
    broken = [
        problem for part in context.node.parts for problem in check(Context(context.graph, part))
    ]
    return "; ".join(broken) or None


@lowers(Fused, parts_that_fit)
def fused(context: Context) -> Lowered:
    """The first part's results, each handed to the second part."""
    found = joined(context, lower(layer_of(context)))
    if found is None:
        raise context.refuse("its first part's results can't be handed to its second part")
    return found


def joined(context: Context, layer: Lowered, vectors: Vectors | None = None) -> Lowered | None:
    """The kernel of a fused node whose first part has the kernel ``layer``; None where its results
    can't be handed on. ``vectors``: what a machine computes with them."""
    first, _ = context.node.parts
    outputs = [
        buffer for buffer, arg in zip(layer.kernel.buffers, layer.args, strict=True)
        if arg == OutputTensor(0)
    ]
    dtype = SCALAR_OF[context.graph.type(first.outputs[0]).dtype]
    if len(outputs) != 1 or outputs[0].dtype is not dtype:
        return None
    if any(a.buffer == outputs[0] and not a.stores for a in accesses(layer.kernel)):
        return None
    try:
        return _joint(context, layer, outputs[0], vectors).lowered()
    except CantHandError:
        return None


def _joint(context: Context, layer: Lowered, output: Buffer, vectors: Vectors | None) -> Joint:
    match context.node.parts[1].op:
        case Add() | Sub() | Mul() as op:
            return Elements(context, layer, output, vectors, op)
        case MaxPool2D() | ReduceMax() as op:
            return Maxima(context, layer, output, vectors, op)
        case AveragePool2D() | Mean() as op:
            return Means(context, layer, output, vectors, op)
        case _:
            raise CantHandError

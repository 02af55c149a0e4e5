"""Kernels of fused nodes, which compute a layer and the operator that reads its results.

The kernel is that of the layer, from any schedule, but each result that it would store is passed to
the second operator. So each operator has a single definition, and no schedule knows of fusion. An
elementwise operator of two tensors is computed with the result and stored in its place; for maxima
and means of windows see :mod:`crtexport.lowering.fusion.pooling_hooks`.
"""

from __future__ import annotations

from crtexport.ir.ops import Add, AveragePool2D, Fused, MaxPool2D, Mean, Mul, ReduceMax, Sub
from crtexport.kir.analysis.accesses import accesses
from crtexport.kir.language import Buffer
from crtexport.lowering.fusion.pooling_hooks import MaxPoolHook, MeanPoolHook
from crtexport.lowering.fusion.store_hooks import (
    ElementwiseHook,
    FusionNotPossibleError,
    StoreHook,
    VectorOps,
)
from crtexport.lowering.operator_table import check, lower
from crtexport.lowering.registry import (
    SCALAR_OF,
    Context,
    Lowered,
    OutputTensor,
    lowers,
)


def layer_of(context: Context) -> Context:
    """Returns the context of the first part of a fused node."""
    return Context(context.graph, context.node.parts[0])


def parts_that_fit(context: Context) -> str | None:
    """Each part must keep the rules of its operator."""
    broken = [
        problem for part in context.node.parts for problem in check(Context(context.graph, part))
    ]
    return "; ".join(broken) or None


@lowers(Fused, parts_that_fit)
def fused(context: Context) -> Lowered:
    """The results of the first part, each passed to the second part."""
    found = fuse(context, lower(layer_of(context)))
    if found is None:
        raise context.refuse("its first part's results can't be passed to its second part")
    return found


def fuse(context: Context, layer: Lowered, vectors: VectorOps | None = None) -> Lowered | None:
    """Returns the kernel of a fused node whose first part has the kernel ``layer``; None where its
    results can't be passed on. ``vectors``: the operations on vectors of results, where these are
    vectors."""
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
        return _store_hook(context, layer, outputs[0], vectors).lowered()
    except FusionNotPossibleError:
        return None


def _store_hook(
    context: Context, layer: Lowered, output: Buffer, vectors: VectorOps | None
) -> StoreHook:
    match context.node.parts[1].op:
        case Add() | Sub() | Mul() as op:
            return ElementwiseHook(context, layer, output, vectors, op)
        case MaxPool2D() | ReduceMax() as op:
            return MaxPoolHook(context, layer, output, vectors, op)
        case AveragePool2D() | Mean() as op:
            return MeanPoolHook(context, layer, output, vectors, op)
        case _:
            raise FusionNotPossibleError

"""The table of operators that have kernels, and the rules that a node breaks.

Lowerings are imported when one of their operators comes: there are many, and a network has few.
The operators of a module in ``ir/ops`` are lowered by the module of that name in ``lowering/ops``,
or by those that the table names.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from crtexport.ir import ops
from crtexport.ir.ops import Control, Foreign, Op
from crtexport.lowering.registry import LOWERINGS, Context, Lowered, Registered, refusing_extremes

ELSEWHERE: Mapping[str, tuple[type[Op], ...]] = {
    "fusion.fused_node": (ops.Fused,),
    "ops.arg_cumsum": (ops.ArgMax, ops.ArgMin, ops.CumSum, ops.CumProd),
    "ops.cast": (ops.Cast, ops.ZerosLike),
    "ops.conv": (ops.Conv2D, ops.DepthwiseConv2D, ops.FullyConnected),
    "ops.divide": (ops.Div, ops.FloorDiv, ops.FloorMod),
    "ops.elementwise": (
        ops.Add, ops.Sub, ops.Mul, ops.Maximum, ops.Minimum, ops.SquaredDifference, ops.AddN,
    ),
    "ops.l2_normalize": (ops.L2Normalization,),
    "ops.layout_ops": (
        ops.Reshape, ops.Transpose, ops.Slice, ops.BroadcastTo, ops.Tile, ops.SpaceToDepth,
        ops.DepthToSpace,
    ),
    "ops.log_softmax": (ops.LogSoftmax,),
    "ops.lstm": (ops.UnidirectionalSequenceLstm,),
    "ops.matmul": (ops.BatchMatMul, ops.EmbeddingLookup),
    "ops.non_max_suppression": (ops.NonMaxSuppression,),
    "ops.pad": (ops.Pad, ops.PadV2, ops.MirrorPad, ops.SpaceToBatchNd, ops.BatchToSpaceNd),
    "ops.pow": (ops.Pow,),
    "ops.prelu": (ops.Prelu,),
    "ops.reduce_prod": (ops.ReduceProd,),
    "ops.resample": (ops.Resample,),
    "ops.scatter": (ops.ScatterElements, ops.ScatterNd),
    "ops.signal_adaptive": (ops.FilterBankSpectralSubtraction, ops.Pcan, ops.OverlapAdd),
    "ops.signal_fft": (ops.Rfft, ops.Irfft),
    "ops.softmax": (ops.Softmax,),
    "ops.split_concat": (ops.Concatenation, ops.Pack, ops.Split, ops.Unpack),
    "ops.svdf": (ops.Svdf,),
    "ops.top_k": (ops.TopK,),
    "ops.transpose_conv": (ops.TransposeConv2D,),
    "ops.trees": (ops.TreeEnsemble,),
    "ops.variables": (ops.ReadVariable, ops.AssignVariable),
}
"""Modules of lowerings with operators whose records are in modules of other names."""

_MODULE_OF = {kind: module for module, kinds in ELSEWHERE.items() for kind in kinds}


def module_of(kind: type[Op]) -> str:
    """Returns the name of the module below ``lowering`` that has an operator's lowering."""
    return _MODULE_OF.get(kind, f"ops.{kind.__module__.rpartition('.')[2]}")


def registered(kind: type[Op]) -> Registered | None:
    """The lowering of an operator with its rules; None for one that has no kernel."""
    if kind not in LOWERINGS and not issubclass(kind, Control | Foreign):
        importlib.import_module(f"crtexport.lowering.{module_of(kind)}")
    return LOWERINGS.get(kind)


def check(context: Context) -> list[str]:
    """Returns the sentence and the detail of each rule that keeps this node from being lowered."""
    kind = type(context.node.op)
    found = registered(kind)
    if found is None:
        return [f"operator {kind.__name__} has no kernel"]
    broken = []
    for rule in found.rules:
        detail = rule(context)
        if detail is not None:
            broken.append(f"{' '.join((rule.__doc__ or '').split())} ({detail})")
    return broken


def lower(context: Context) -> Lowered:
    """Returns the kernel of a node. Raises CrtExportError naming the node when a rule is broken."""
    broken = check(context)
    if broken:
        raise context.refuse("; ".join(broken))
    with refusing_extremes(context):
        return LOWERINGS[type(context.node.op)].lower(context)

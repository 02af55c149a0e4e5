"""Which operators have kernels, and what keeps a node from getting one.

The families that define them are modules beside this one, each imported when one of its operators
comes: there are many, and a network has few.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from crtexport.ir import ops
from crtexport.ir.ops import Op
from crtexport.kernels.registry import LOWERINGS, Context, Lowered, Registered, refusing_extremes

FAMILIES: Mapping[str, tuple[type[Op], ...]] = {
    "activation": (
        ops.Logistic, ops.Tanh, ops.Relu, ops.Relu6, ops.ReluN1To1, ops.LeakyRelu, ops.Elu,
        ops.Gelu, ops.HardSwish,
    ),
    "arg": (ops.ArgMax, ops.ArgMin, ops.CumSum),
    "cast": (ops.Cast, ops.ZerosLike),
    "compare": (
        ops.Equal, ops.NotEqual, ops.Greater, ops.GreaterEqual, ops.Less, ops.LessEqual,
        ops.LogicalAnd, ops.LogicalOr, ops.LogicalNot, ops.Select,
    ),
    "conv": (ops.Conv2D, ops.DepthwiseConv2D, ops.FullyConnected),
    "detection": (ops.DetectionPostProcess,),
    "divide": (ops.Div, ops.FloorDiv, ops.FloorMod),
    "elementwise": (
        ops.Add, ops.Sub, ops.Mul, ops.Maximum, ops.Minimum, ops.SquaredDifference, ops.AddN,
    ),
    "fused": (ops.Fused,),
    "gather": (ops.Gather, ops.GatherNd, ops.DynamicUpdateSlice),
    "log_softmax": (ops.LogSoftmax,),
    "lstm": (ops.UnidirectionalSequenceLstm,),
    "matmul": (ops.BatchMatMul, ops.EmbeddingLookup),
    "normalize": (ops.L2Normalization,),
    "pad": (ops.Pad, ops.PadV2, ops.MirrorPad, ops.SpaceToBatchNd, ops.BatchToSpaceNd),
    "pool": (ops.AveragePool2D, ops.MaxPool2D, ops.L2Pool2D),
    "prelu": (ops.Prelu,),
    "product": (ops.ReduceProd,),
    "quantize": (ops.Quantize, ops.Dequantize),
    "reduce": (ops.Mean, ops.Sum, ops.ReduceMax, ops.ReduceMin, ops.ReduceAny, ops.ReduceAll),
    "resize": (ops.ResizeNearestNeighbor, ops.ResizeBilinear),
    "shape": (
        ops.Reshape, ops.Transpose, ops.Slice, ops.BroadcastTo, ops.Tile, ops.SpaceToDepth,
        ops.DepthToSpace,
    ),
    "softmax": (ops.Softmax,),
    "split": (ops.Concatenation, ops.Pack, ops.Split, ops.Unpack),
    "state": (ops.ReadVariable, ops.AssignVariable),
    "svdf": (ops.Svdf,),
    "transpose_conv": (ops.TransposeConv2D,),
    "unary": (
        ops.Abs, ops.Neg, ops.Square, ops.Exp, ops.Log, ops.Sqrt, ops.Rsqrt, ops.Sin, ops.Cos,
        ops.Ceil, ops.Floor, ops.Round,
    ),
}
"""The operators that each lowers."""

_FAMILY_OF = {kind: family for family, kinds in FAMILIES.items() for kind in kinds}


def registered(kind: type[Op]) -> Registered | None:
    """The lowering of an operator with its rules; None for one that has no kernel."""
    if kind not in LOWERINGS and kind in _FAMILY_OF:
        importlib.import_module(f"crtexport.kernels.{_FAMILY_OF[kind]}")
    return LOWERINGS.get(kind)


def check(context: Context) -> list[str]:
    """What keeps this node from being lowered: each broken rule's sentence with its detail."""
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
    """The kernel of a node. Raises CrtExportError naming the node when a rule is broken."""
    broken = check(context)
    if broken:
        raise context.refuse("; ".join(broken))
    with refusing_extremes(context):
        return LOWERINGS[type(context.node.op)].lower(context)

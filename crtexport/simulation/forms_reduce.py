"""TensorFlow Lite's encoding of reductions, positions of extremes and running sums."""

from __future__ import annotations

from collections.abc import Mapping

import tflite

from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node
from crtexport.ir.types import DType
from crtexport.simulation.tflite_form import Former, TfliteForm, by_operator, integers
from crtexport.support.errors import CrtExportError


def _reduction(code: str) -> Former:
    return by_operator(lambda op: TfliteForm(
        code, "ReducerOptions", {"KeepDims": op.keep_dims}, (integers(op.axes),)
    ))


def _position(code: str, options: str) -> Former:
    def written(graph: Graph, node: Node) -> TfliteForm:
        op = node.op
        if not isinstance(op, ops.Extreme):
            raise TypeError(op)
        result = getattr(tflite.TensorType, graph.type(node.outputs[0]).dtype.name)
        return TfliteForm(code, options, {"OutputType": int(result)}, (integers(op.axis),))

    return written


def _top_k(graph: Graph, node: Node) -> TfliteForm:
    op = node.op
    if not isinstance(op, ops.TopK):
        raise TypeError(op)
    last = len(graph.type(graph.required(node, 0)).shape) - 1
    places = graph.type(node.outputs[1]).dtype
    if (op.axis, op.largest, places) != (last, True, DType.INT32):
        raise CrtExportError(
            "TensorFlow Lite has no TopK but of the largest along the last axis, with positions as"
            " int32, so its runtimes can't serve as a reference",
            location=(graph.source, str(node)),
            hint="use that one, and transpose before and after it",
        )
    return TfliteForm("TOPK_V2", "TopKV2Options", steering=(integers(op.count),))


FORMERS: Mapping[type[ops.Op], Former] = {
    ops.Mean: _reduction("MEAN"),
    ops.Sum: _reduction("SUM"),
    ops.ReduceMax: _reduction("REDUCE_MAX"),
    ops.ReduceMin: _reduction("REDUCE_MIN"),
    ops.ReduceProd: _reduction("REDUCE_PROD"),
    ops.ReduceAny: _reduction("REDUCE_ANY"),
    ops.ReduceAll: _reduction("REDUCE_ALL"),
    ops.ArgMax: _position("ARG_MAX", "ArgMaxOptions"),
    ops.ArgMin: _position("ARG_MIN", "ArgMinOptions"),
    ops.TopK: _top_k,
    ops.CumSum: by_operator(lambda op: TfliteForm(
        "CUMSUM", "CumsumOptions", {"Exclusive": op.exclusive, "Reverse": op.reverse},
        (integers(op.axis),),
    )),
}

_BYTES = {DType.INT8: 2, DType.UINT8: 2, DType.INT16: 2}
VERSIONS: Mapping[str, Mapping[DType, int]] = {
    "SUM": _BYTES,
    "TOPK_V2": {DType.INT16: 3},
    "REDUCE_PROD": _BYTES,
    "ARG_MAX": {DType.INT8: 2, DType.UINT8: 2, DType.BOOL: 2},
    "ARG_MIN": {DType.INT8: 2, DType.UINT8: 2, DType.BOOL: 2},
}

"""Reductions, positions of extremes and running sums of TensorFlow Lite."""

from __future__ import annotations

from collections.abc import Mapping

from crtexport.importers.tflite.operators import Decoded, Decoder, SourceOperator, axis_of
from crtexport.importers.tflite.schema import BuiltinOperator, CumsumOptions, ReducerOptions
from crtexport.ir import ops
from crtexport.support.errors import CrtExportError


def _reduction(kind: type[ops.Reducer]) -> Decoder:
    def decode(source: SourceOperator) -> Decoded:
        options = source.optional_options(ReducerOptions)
        rank = len(source.type(0).shape)
        axes = {axis_of(axis, rank) for axis in source.integers(1, "axes")}
        keep = options.keep_dims if options else False
        return kind(tuple(sorted(axes)), keep), source.inputs[:1]

    return decode


def _position(kind: type[ops.Extreme]) -> Decoder:
    def decode(source: SourceOperator) -> Decoded:
        # The options repeat the output's element type.
        return kind(_one_axis(source)), source.inputs[:1]

    return decode


def _top_k(source: SourceOperator) -> Decoded:
    counts = source.integers(1, "the count")
    if len(counts) != 1:
        raise CrtExportError(f"the count must be one number, found {source.type(1)}")
    return ops.TopK(axis_of(-1, len(source.type(0).shape)), counts[0]), source.inputs[:1]


def _cumsum(source: SourceOperator) -> Decoded:
    options = source.optional_options(CumsumOptions)
    axis = _one_axis(source)
    if options is None:
        return ops.CumSum(axis), source.inputs[:1]
    return ops.CumSum(axis, options.exclusive, options.reverse), source.inputs[:1]


def _one_axis(source: SourceOperator) -> int:
    axes = source.integers(1, "axis")
    if len(axes) != 1:
        raise CrtExportError(f"there must be 1 axis, found {len(axes)}")
    return axis_of(axes[0], len(source.type(0).shape))


DECODERS: Mapping[int, Decoder] = {
    BuiltinOperator.MEAN: _reduction(ops.Mean),
    BuiltinOperator.SUM: _reduction(ops.Sum),
    BuiltinOperator.REDUCE_MAX: _reduction(ops.ReduceMax),
    BuiltinOperator.REDUCE_MIN: _reduction(ops.ReduceMin),
    BuiltinOperator.REDUCE_PROD: _reduction(ops.ReduceProd),
    BuiltinOperator.REDUCE_ANY: _reduction(ops.ReduceAny),
    BuiltinOperator.REDUCE_ALL: _reduction(ops.ReduceAll),
    BuiltinOperator.ARG_MAX: _position(ops.ArgMax),
    BuiltinOperator.ARG_MIN: _position(ops.ArgMin),
    BuiltinOperator.TOPK_V2: _top_k,
    BuiltinOperator.CUMSUM: _cumsum,
}

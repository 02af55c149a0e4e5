"""Reductions, positions of extremes and running sums of TensorFlow Lite."""

from __future__ import annotations

from collections.abc import Mapping

from crtexport.importers.tflite.operators import Decoded, Decoder, SourceOperator, axis_of
from crtexport.importers.tflite.schema import BuiltinOperator, CumsumOptions, ReducerOptions
from crtexport.ir.ops import (
    ArgMax,
    ArgMin,
    CumSum,
    Mean,
    ReduceAll,
    ReduceAny,
    ReduceMax,
    ReduceMin,
    ReduceProd,
    Sum,
)
from crtexport.support.errors import CrtExportError

Reduction = Mean | Sum | ReduceMax | ReduceMin | ReduceProd | ReduceAny | ReduceAll


def _reduction(kind: type[Reduction]) -> Decoder:
    def decode(source: SourceOperator) -> Decoded:
        options = source.optional_options(ReducerOptions)
        rank = len(source.type(0).shape)
        axes = {axis_of(axis, rank) for axis in source.integers(1, "axes")}
        keep = options.keep_dims if options else False
        return kind(tuple(sorted(axes)), keep), source.inputs[:1]

    return decode


def _position(kind: type[ArgMax | ArgMin]) -> Decoder:
    def decode(source: SourceOperator) -> Decoded:
        # The options repeat the output's element type.
        return kind(_one_axis(source)), source.inputs[:1]

    return decode


def _cumsum(source: SourceOperator) -> Decoded:
    options = source.optional_options(CumsumOptions)
    axis = _one_axis(source)
    if options is None:
        return CumSum(axis), source.inputs[:1]
    return CumSum(axis, options.exclusive, options.reverse), source.inputs[:1]


def _one_axis(source: SourceOperator) -> int:
    axes = source.integers(1, "axis")
    if len(axes) != 1:
        raise CrtExportError(f"there must be 1 axis, found {len(axes)}")
    return axis_of(axes[0], len(source.type(0).shape))


DECODERS: Mapping[int, Decoder] = {
    BuiltinOperator.MEAN: _reduction(Mean),
    BuiltinOperator.SUM: _reduction(Sum),
    BuiltinOperator.REDUCE_MAX: _reduction(ReduceMax),
    BuiltinOperator.REDUCE_MIN: _reduction(ReduceMin),
    BuiltinOperator.REDUCE_PROD: _reduction(ReduceProd),
    BuiltinOperator.REDUCE_ANY: _reduction(ReduceAny),
    BuiltinOperator.REDUCE_ALL: _reduction(ReduceAll),
    BuiltinOperator.ARG_MAX: _position(ArgMax),
    BuiltinOperator.ARG_MIN: _position(ArgMin),
    BuiltinOperator.CUMSUM: _cumsum,
}

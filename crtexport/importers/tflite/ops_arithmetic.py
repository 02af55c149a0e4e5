"""Elementwise operators of two or three inputs of .tflite files."""

from __future__ import annotations

from collections.abc import Mapping

from crtexport.importers.tflite.operators import Decoded, Decoder, Plain, SourceOperator
from crtexport.importers.tflite.schema import (
    AddOptions,
    BuiltinOperator,
    DivOptions,
    MulOptions,
    SubOptions,
)
from crtexport.ir import ops
from crtexport.ir.types import DType
from crtexport.support.fixedpoint import shifts_between


def _sum(kind: type[ops.Add | ops.Sub], table: type[AddOptions | SubOptions]) -> Decoder:
    def decode(source: SourceOperator) -> Decoded:
        options = source.optional_options(table)
        wanted = options is not None and options.pot_scale_int16
        return kind(source.activation(options), wanted and _shifts(source)), source.inputs

    return decode


def _shifts(source: SourceOperator) -> bool:
    """Returns whether the runtime scales the operands of an int16 sum by shifts, where it may."""
    types = (source.type(0), source.type(1), source.result())
    scales = [
        t.quant.scale[0] for t in types
        if t.dtype is DType.INT16 and t.quant is not None and not any(t.quant.zero_point)
    ]
    if len(scales) < len(types) or min(scales) <= 0:
        return False
    return shifts_between((scales[0], scales[1]), scales[2]) is not None


def _clamped(kind: type[ops.Mul | ops.Div], table: type[MulOptions | DivOptions]) -> Decoder:
    def decode(source: SourceOperator) -> Decoded:
        return kind(source.activation(source.optional_options(table))), source.inputs

    return decode


def _select(source: SourceOperator) -> Decoded:
    condition, chosen = source.type(0, "condition").shape, source.type(1).shape
    return ops.Select(rows=len(condition) == 1 and len(chosen) > 1), source.inputs


DECODERS: Mapping[int, Decoder] = {
    BuiltinOperator.ADD: _sum(ops.Add, AddOptions),
    BuiltinOperator.SUB: _sum(ops.Sub, SubOptions),
    BuiltinOperator.MUL: _clamped(ops.Mul, MulOptions),
    BuiltinOperator.DIV: _clamped(ops.Div, DivOptions),
    BuiltinOperator.FLOOR_DIV: Plain(ops.FloorDiv()),
    BuiltinOperator.FLOOR_MOD: Plain(ops.FloorMod()),
    BuiltinOperator.MAXIMUM: Plain(ops.Maximum()),
    BuiltinOperator.MINIMUM: Plain(ops.Minimum()),
    BuiltinOperator.SQUARED_DIFFERENCE: Plain(ops.SquaredDifference()),
    BuiltinOperator.POW: Plain(ops.Pow()),
    BuiltinOperator.ADD_N: Plain(ops.AddN()),
    BuiltinOperator.EQUAL: Plain(ops.Equal()),
    BuiltinOperator.NOT_EQUAL: Plain(ops.NotEqual()),
    BuiltinOperator.GREATER: Plain(ops.Greater()),
    BuiltinOperator.GREATER_EQUAL: Plain(ops.GreaterEqual()),
    BuiltinOperator.LESS: Plain(ops.Less()),
    BuiltinOperator.LESS_EQUAL: Plain(ops.LessEqual()),
    BuiltinOperator.LOGICAL_AND: Plain(ops.LogicalAnd()),
    BuiltinOperator.LOGICAL_OR: Plain(ops.LogicalOr()),
    BuiltinOperator.LOGICAL_NOT: Plain(ops.LogicalNot()),
    BuiltinOperator.SELECT: _select,
    BuiltinOperator.SELECT_V2: Plain(ops.Select()),
}
"""The operators of this family, by their code in the file."""

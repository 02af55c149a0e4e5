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
from crtexport.ir.ops import (
    Add,
    AddN,
    Div,
    Equal,
    FloorDiv,
    FloorMod,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    Maximum,
    Minimum,
    Mul,
    NotEqual,
    Pow,
    Select,
    SquaredDifference,
    Sub,
)
from crtexport.ir.types import DType
from crtexport.support.fixedpoint import shifts_between


def _sum(kind: type[Add | Sub], table: type[AddOptions | SubOptions]) -> Decoder:
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


def _clamped(kind: type[Mul | Div], table: type[MulOptions | DivOptions]) -> Decoder:
    def decode(source: SourceOperator) -> Decoded:
        return kind(source.activation(source.optional_options(table))), source.inputs

    return decode


def _select(source: SourceOperator) -> Decoded:
    condition, chosen = source.type(0, "condition").shape, source.type(1).shape
    return Select(rows=len(condition) == 1 and len(chosen) > 1), source.inputs


DECODERS: Mapping[int, Decoder] = {
    BuiltinOperator.ADD: _sum(Add, AddOptions),
    BuiltinOperator.SUB: _sum(Sub, SubOptions),
    BuiltinOperator.MUL: _clamped(Mul, MulOptions),
    BuiltinOperator.DIV: _clamped(Div, DivOptions),
    BuiltinOperator.FLOOR_DIV: Plain(FloorDiv()),
    BuiltinOperator.FLOOR_MOD: Plain(FloorMod()),
    BuiltinOperator.MAXIMUM: Plain(Maximum()),
    BuiltinOperator.MINIMUM: Plain(Minimum()),
    BuiltinOperator.SQUARED_DIFFERENCE: Plain(SquaredDifference()),
    BuiltinOperator.POW: Plain(Pow()),
    BuiltinOperator.ADD_N: Plain(AddN()),
    BuiltinOperator.EQUAL: Plain(Equal()),
    BuiltinOperator.NOT_EQUAL: Plain(NotEqual()),
    BuiltinOperator.GREATER: Plain(Greater()),
    BuiltinOperator.GREATER_EQUAL: Plain(GreaterEqual()),
    BuiltinOperator.LESS: Plain(Less()),
    BuiltinOperator.LESS_EQUAL: Plain(LessEqual()),
    BuiltinOperator.LOGICAL_AND: Plain(LogicalAnd()),
    BuiltinOperator.LOGICAL_OR: Plain(LogicalOr()),
    BuiltinOperator.LOGICAL_NOT: Plain(LogicalNot()),
    BuiltinOperator.SELECT: _select,
    BuiltinOperator.SELECT_V2: Plain(Select()),
}
"""The operators of this family, by their code in the file."""

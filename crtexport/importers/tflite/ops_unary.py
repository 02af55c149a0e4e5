"""Decoders of functions of one input."""

from __future__ import annotations

import math
from collections.abc import Mapping

from crtexport.importers.tflite.operators import Decoded, Decoder, Plain, SourceOperator
from crtexport.importers.tflite.schema import (
    BuiltinOperator,
    GeluOptions,
    L2NormOptions,
    LeakyReluOptions,
)
from crtexport.ir.ops import (
    Abs,
    Activation,
    Cast,
    Ceil,
    Cos,
    Elu,
    Exp,
    Floor,
    Gelu,
    HardSwish,
    L2Normalization,
    LeakyRelu,
    Log,
    LogSoftmax,
    Neg,
    Prelu,
    ReluN1To1,
    Round,
    Rsqrt,
    Sin,
    Sqrt,
    Square,
    ZerosLike,
)
from crtexport.support.errors import CrtExportError


def _leaky_relu(source: SourceOperator) -> Decoded:
    options = source.options(LeakyReluOptions)
    alpha = options.alpha
    if not math.isfinite(alpha):
        raise CrtExportError(f"alpha must be finite, found {alpha}")
    return LeakyRelu(alpha), source.inputs


def _gelu(source: SourceOperator) -> Decoded:
    options = source.optional_options(GeluOptions)
    approximate = options.approximate if options else False
    return Gelu(approximate), source.inputs


def _l2_normalization(source: SourceOperator) -> Decoded:
    options = source.optional_options(L2NormOptions)
    if source.activation(options) is not Activation.NONE:
        raise CrtExportError("a normalization with a fused activation is not supported")
    return L2Normalization(), source.inputs


DECODERS: Mapping[int, Decoder] = {
    BuiltinOperator.ABS: Plain(Abs()),
    BuiltinOperator.NEG: Plain(Neg()),
    BuiltinOperator.SQUARE: Plain(Square()),
    BuiltinOperator.EXP: Plain(Exp()),
    BuiltinOperator.LOG: Plain(Log()),
    BuiltinOperator.SQRT: Plain(Sqrt()),
    BuiltinOperator.RSQRT: Plain(Rsqrt()),
    BuiltinOperator.SIN: Plain(Sin()),
    BuiltinOperator.COS: Plain(Cos()),
    BuiltinOperator.CEIL: Plain(Ceil()),
    BuiltinOperator.FLOOR: Plain(Floor()),
    BuiltinOperator.ROUND: Plain(Round()),
    BuiltinOperator.RELU_N1_TO_1: Plain(ReluN1To1()),
    BuiltinOperator.LEAKY_RELU: _leaky_relu,
    BuiltinOperator.ELU: Plain(Elu()),
    BuiltinOperator.GELU: _gelu,
    BuiltinOperator.HARD_SWISH: Plain(HardSwish()),
    BuiltinOperator.PRELU: Plain(Prelu()),
    BuiltinOperator.LOG_SOFTMAX: Plain(LogSoftmax()),
    BuiltinOperator.L2_NORMALIZATION: _l2_normalization,
    BuiltinOperator.CAST: Plain(Cast()),
    BuiltinOperator.ZEROS_LIKE: Plain(ZerosLike()),
}

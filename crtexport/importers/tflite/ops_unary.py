"""Decoders of functions of one input."""

from __future__ import annotations

import math
from collections.abc import Mapping

from crtexport.errors import CrtExportError
from crtexport.importers.tflite.operators import Decoded, Decoder, Operator, plain
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


def _leaky_relu(source: Operator) -> Decoded:
    options = source.options(LeakyReluOptions)
    alpha = options.alpha
    if not math.isfinite(alpha):
        raise CrtExportError(f"alpha must be finite, found {alpha}")
    return LeakyRelu(alpha), source.inputs


def _gelu(source: Operator) -> Decoded:
    options = source.optional_options(GeluOptions)
    approximate = options.approximate if options else False
    return Gelu(approximate), source.inputs


def _l2_normalization(source: Operator) -> Decoded:
    options = source.optional_options(L2NormOptions)
    if source.activation(options) is not Activation.NONE:
        raise CrtExportError("a normalization with a fused activation is not supported")
    return L2Normalization(), source.inputs


DECODERS: Mapping[int, Decoder] = {
    BuiltinOperator.ABS: plain(Abs()),
    BuiltinOperator.NEG: plain(Neg()),
    BuiltinOperator.SQUARE: plain(Square()),
    BuiltinOperator.EXP: plain(Exp()),
    BuiltinOperator.LOG: plain(Log()),
    BuiltinOperator.SQRT: plain(Sqrt()),
    BuiltinOperator.RSQRT: plain(Rsqrt()),
    BuiltinOperator.SIN: plain(Sin()),
    BuiltinOperator.COS: plain(Cos()),
    BuiltinOperator.CEIL: plain(Ceil()),
    BuiltinOperator.FLOOR: plain(Floor()),
    BuiltinOperator.ROUND: plain(Round()),
    BuiltinOperator.RELU_N1_TO_1: plain(ReluN1To1()),
    BuiltinOperator.LEAKY_RELU: _leaky_relu,
    BuiltinOperator.ELU: plain(Elu()),
    BuiltinOperator.GELU: _gelu,
    BuiltinOperator.HARD_SWISH: plain(HardSwish()),
    BuiltinOperator.PRELU: plain(Prelu()),
    BuiltinOperator.LOG_SOFTMAX: plain(LogSoftmax()),
    BuiltinOperator.L2_NORMALIZATION: _l2_normalization,
    BuiltinOperator.CAST: plain(Cast()),
    BuiltinOperator.ZEROS_LIKE: plain(ZerosLike()),
}

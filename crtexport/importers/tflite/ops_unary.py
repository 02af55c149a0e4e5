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
from crtexport.ir import ops
from crtexport.support.errors import CrtExportError


def _leaky_relu(source: SourceOperator) -> Decoded:
    options = source.options(LeakyReluOptions)
    alpha = options.alpha
    if not math.isfinite(alpha):
        raise CrtExportError(f"alpha must be finite, found {alpha}")
    return ops.LeakyRelu(alpha), source.inputs


def _gelu(source: SourceOperator) -> Decoded:
    options = source.optional_options(GeluOptions)
    approximate = options.approximate if options else False
    return ops.Gelu(approximate), source.inputs


def _l2_normalization(source: SourceOperator) -> Decoded:
    options = source.optional_options(L2NormOptions)
    if source.activation(options) is not ops.Activation.NONE:
        raise CrtExportError("a normalization with a fused activation is not supported")
    return ops.L2Normalization(), source.inputs


DECODERS: Mapping[int, Decoder] = {
    BuiltinOperator.ABS: Plain(ops.Abs()),
    BuiltinOperator.NEG: Plain(ops.Neg()),
    BuiltinOperator.SQUARE: Plain(ops.Square()),
    BuiltinOperator.EXP: Plain(ops.Exp()),
    BuiltinOperator.LOG: Plain(ops.Log()),
    BuiltinOperator.SQRT: Plain(ops.Sqrt()),
    BuiltinOperator.RSQRT: Plain(ops.Rsqrt()),
    BuiltinOperator.SIN: Plain(ops.Sin()),
    BuiltinOperator.COS: Plain(ops.Cos()),
    BuiltinOperator.CEIL: Plain(ops.Ceil()),
    BuiltinOperator.FLOOR: Plain(ops.Floor()),
    BuiltinOperator.ROUND: Plain(ops.Round()),
    BuiltinOperator.RELU_N1_TO_1: Plain(ops.ReluN1To1()),
    BuiltinOperator.LEAKY_RELU: _leaky_relu,
    BuiltinOperator.ELU: Plain(ops.Elu()),
    BuiltinOperator.GELU: _gelu,
    BuiltinOperator.HARD_SWISH: Plain(ops.HardSwish()),
    BuiltinOperator.PRELU: Plain(ops.Prelu()),
    BuiltinOperator.LOG_SOFTMAX: Plain(ops.LogSoftmax()),
    BuiltinOperator.L2_NORMALIZATION: _l2_normalization,
    BuiltinOperator.CAST: Plain(ops.Cast()),
    BuiltinOperator.ZEROS_LIKE: Plain(ops.ZerosLike()),
}

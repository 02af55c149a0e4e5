"""Which operator of TensorFlow Lite becomes which of ours: one decoder, and one row, each.

A decoder returns the operator and the inputs that stay inputs (tensor numbers of the file). It may
raise CrtExportError without a location; shapes and types are checked later, for all alike.
"""

from __future__ import annotations

from collections.abc import Mapping

from crtexport.errors import CrtExportError
from crtexport.importers.tflite import (
    ops_arithmetic,
    ops_recurrent,
    ops_reduce,
    ops_shape,
    ops_state,
    ops_unary,
    ops_weighted,
)
from crtexport.importers.tflite.operators import (
    Decoded,
    Decoder,
    Operator,
    axis_of,
    plain,
)
from crtexport.importers.tflite.schema import (
    BuiltinOperator,
    ConcatenationOptions,
    Pool2DOptions,
    SoftmaxOptions,
)
from crtexport.ir.ops import (
    AveragePool2D,
    Concatenation,
    Dequantize,
    L2Pool2D,
    Logistic,
    MaxPool2D,
    Pad,
    Quantize,
    Relu,
    Relu6,
    Reshape,
    Softmax,
    Tanh,
)


def _pool(kind: type[AveragePool2D | MaxPool2D | L2Pool2D]) -> Decoder:
    def decode(source: Operator) -> Decoded:
        options = source.options(Pool2DOptions)
        window = source.pair("window", options.filter_height, options.filter_width)
        stride = source.pair("stride", options.stride_h, options.stride_w)
        padding = source.padding(options, window, stride)
        return kind(window, stride, padding, source.activation(options)), source.inputs

    return decode


def _reshape(source: Operator) -> Decoded:
    # The output's declared shape has -1 resolved already, and says the same for the operators
    # whose second input is a shape, the axis of a new dimension or nothing.
    return Reshape(source.result().shape), source.inputs[:1]


def _pad(source: Operator) -> Decoded:
    return Pad(ops_shape.pairs(source, 1, "paddings")), source.inputs[:1]


def _concatenation(source: Operator) -> Decoded:
    options = source.options(ConcatenationOptions)
    axis = axis_of(options.axis, len(source.type(0).shape))
    return Concatenation(axis, source.activation(options)), source.inputs


def _softmax(source: Operator) -> Decoded:
    options = source.options(SoftmaxOptions)
    beta = options.beta
    if not 0 < beta < float("inf"):
        raise CrtExportError(f"beta must be positive and finite, found {beta}")
    return Softmax(beta), source.inputs


DECODERS: Mapping[int, Decoder] = {
    **ops_weighted.DECODERS,
    BuiltinOperator.AVERAGE_POOL_2D: _pool(AveragePool2D),
    BuiltinOperator.MAX_POOL_2D: _pool(MaxPool2D),
    BuiltinOperator.L2_POOL_2D: _pool(L2Pool2D),
    BuiltinOperator.RESHAPE: _reshape,
    BuiltinOperator.SQUEEZE: _reshape,
    BuiltinOperator.EXPAND_DIMS: _reshape,
    BuiltinOperator.PAD: _pad,
    BuiltinOperator.CONCATENATION: _concatenation,
    BuiltinOperator.SOFTMAX: _softmax,
    BuiltinOperator.LOGISTIC: plain(Logistic()),
    BuiltinOperator.TANH: plain(Tanh()),
    BuiltinOperator.RELU: plain(Relu()),
    BuiltinOperator.RELU6: plain(Relu6()),
    BuiltinOperator.QUANTIZE: plain(Quantize()),
    BuiltinOperator.DEQUANTIZE: plain(Dequantize()),
    **ops_arithmetic.DECODERS,
    **ops_recurrent.DECODERS,
    **ops_state.DECODERS,
    **ops_unary.DECODERS,
    **ops_reduce.DECODERS,
    **ops_shape.DECODERS,
}
"""The operators that can be imported, by their code in the file."""

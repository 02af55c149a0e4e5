"""Which operator of TensorFlow Lite becomes which of ours: one decoder, and one row, each.

A decoder returns the operator and the inputs that stay inputs (tensor numbers of the file). It may
raise CrtExportError without a location; shapes and types are checked later, for all alike.
"""

from __future__ import annotations

from collections.abc import Mapping

import tflite
from tflite import BuiltinOperator, BuiltinOptions

from crtexport.errors import CrtExportError
from crtexport.importers.tflite.operators import (
    Decoded,
    Decoder,
    Operator,
    axis_of,
    constant_names,
    plain,
)
from crtexport.ir.ops import (
    Add,
    AveragePool2D,
    Concatenation,
    Conv2D,
    DepthwiseConv2D,
    Dequantize,
    FullyConnected,
    Logistic,
    MaxPool2D,
    Mean,
    Mul,
    Pad,
    Quantize,
    Relu,
    Relu6,
    Reshape,
    Softmax,
    Sub,
    Tanh,
)


def _conv_2d(source: Operator) -> Decoded:
    options = source.options(tflite.Conv2DOptions, BuiltinOptions.Conv2DOptions)
    stride = source.pair(options, "StrideH", "StrideW")
    dilation = source.pair(options, "DilationHFactor", "DilationWFactor")
    padding = source.padding(options, _window(source), stride, dilation)
    return Conv2D(stride, dilation, padding, source.activation(options)), source.inputs


def _depthwise_conv_2d(source: Operator) -> Decoded:
    options = source.options(tflite.DepthwiseConv2DOptions, BuiltinOptions.DepthwiseConv2DOptions)
    stride = source.pair(options, "StrideH", "StrideW")
    dilation = source.pair(options, "DilationHFactor", "DilationWFactor")
    window = _window(source)
    padding = source.padding(options, window, stride, dilation)
    # The file's own multiplier is redundant, and ignored by runtimes since TensorFlow 2.1.
    channels = source.type(0).shape[-1] if source.type(0).shape else 0
    multiplier = source.type(1).shape[3] // channels if channels else 0
    op = DepthwiseConv2D(multiplier, stride, dilation, padding, source.activation(options))
    return op, source.inputs


def _window(source: Operator) -> tuple[int, int]:
    """Rows and columns of the filters, which are input 1."""
    weights = source.type(1, "weights")
    if len(weights.shape) != 4:
        raise CrtExportError(f"the weights must have 4 dimensions, found {weights}")
    return weights.shape[1], weights.shape[2]


def _fully_connected(source: Operator) -> Decoded:
    options = source.options(tflite.FullyConnectedOptions, BuiltinOptions.FullyConnectedOptions)
    layout = source.reader.get(options.WeightsFormat)
    if layout != tflite.FullyConnectedOptionsWeightsFormat.DEFAULT:
        names = constant_names(tflite.FullyConnectedOptionsWeightsFormat)
        raise CrtExportError(f"the weights format {names.get(layout, layout)} is not supported")
    keep = source.reader.get(options.KeepNumDims)
    return FullyConnected(keep, source.activation(options)), source.inputs


def _pool(kind: type[AveragePool2D | MaxPool2D]) -> Decoder:
    def decode(source: Operator) -> Decoded:
        options = source.options(tflite.Pool2DOptions, BuiltinOptions.Pool2DOptions)
        window = source.pair(options, "FilterHeight", "FilterWidth")
        stride = source.pair(options, "StrideH", "StrideW")
        padding = source.padding(options, window, stride)
        return kind(window, stride, padding, source.activation(options)), source.inputs

    return decode


def _binary(kind: type[Add | Sub | Mul], table: type, code: int) -> Decoder:
    def decode(source: Operator) -> Decoded:
        options = source.optional_options(table, code)
        return kind(source.activation(options)), source.inputs

    return decode


def _reshape(source: Operator) -> Decoded:
    # The output's declared shape has -1 resolved already, and says the same for the operators
    # whose second input is a shape, the axis of a new dimension or nothing.
    return Reshape(source.result().shape), source.inputs[:1]


def _pad(source: Operator) -> Decoded:
    flat = source.integers(1, "paddings")
    shape = source.type(1).shape
    if len(shape) != 2 or shape[1] != 2:
        raise CrtExportError(f"paddings must be pairs, found {source.type(1)}")
    return Pad(tuple(zip(flat[::2], flat[1::2], strict=True))), source.inputs[:1]


def _mean(source: Operator) -> Decoded:
    options = source.optional_options(tflite.ReducerOptions, BuiltinOptions.ReducerOptions)
    rank = len(source.type(0).shape)
    axes = {axis_of(axis, rank) for axis in source.integers(1, "axes")}
    keep = source.reader.get(options.KeepDims) if options else False
    return Mean(tuple(sorted(axes)), keep), source.inputs[:1]


def _concatenation(source: Operator) -> Decoded:
    options = source.options(tflite.ConcatenationOptions, BuiltinOptions.ConcatenationOptions)
    axis = axis_of(source.reader.get(options.Axis), len(source.type(0).shape))
    return Concatenation(axis, source.activation(options)), source.inputs


def _softmax(source: Operator) -> Decoded:
    options = source.options(tflite.SoftmaxOptions, BuiltinOptions.SoftmaxOptions)
    beta = source.reader.get(options.Beta)
    if not 0 < beta < float("inf"):
        raise CrtExportError(f"beta must be positive and finite, found {beta}")
    return Softmax(beta), source.inputs


DECODERS: Mapping[int, Decoder] = {
    BuiltinOperator.CONV_2D: _conv_2d,
    BuiltinOperator.DEPTHWISE_CONV_2D: _depthwise_conv_2d,
    BuiltinOperator.FULLY_CONNECTED: _fully_connected,
    BuiltinOperator.AVERAGE_POOL_2D: _pool(AveragePool2D),
    BuiltinOperator.MAX_POOL_2D: _pool(MaxPool2D),
    BuiltinOperator.ADD: _binary(Add, tflite.AddOptions, BuiltinOptions.AddOptions),
    BuiltinOperator.SUB: _binary(Sub, tflite.SubOptions, BuiltinOptions.SubOptions),
    BuiltinOperator.MUL: _binary(Mul, tflite.MulOptions, BuiltinOptions.MulOptions),
    BuiltinOperator.RESHAPE: _reshape,
    BuiltinOperator.SQUEEZE: _reshape,
    BuiltinOperator.EXPAND_DIMS: _reshape,
    BuiltinOperator.PAD: _pad,
    BuiltinOperator.MEAN: _mean,
    BuiltinOperator.CONCATENATION: _concatenation,
    BuiltinOperator.SOFTMAX: _softmax,
    BuiltinOperator.LOGISTIC: plain(Logistic()),
    BuiltinOperator.TANH: plain(Tanh()),
    BuiltinOperator.RELU: plain(Relu()),
    BuiltinOperator.RELU6: plain(Relu6()),
    BuiltinOperator.QUANTIZE: plain(Quantize()),
    BuiltinOperator.DEQUANTIZE: plain(Dequantize()),
}
"""The operators that can be imported, by their code in the file."""

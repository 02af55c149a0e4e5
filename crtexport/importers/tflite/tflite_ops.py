"""The table from TensorFlow Lite's operators to ours: one decoder, and one row, each.

A decoder returns the operator and the inputs that stay inputs (tensor numbers of the file). It may
raise CrtExportError without a location; shapes and types are checked later, for all alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

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
    Plain,
    SourceOperator,
    axis_of,
)
from crtexport.importers.tflite.schema import (
    BuiltinOperator,
    ConcatenationOptions,
    Pool2DOptions,
    SoftmaxOptions,
)
from crtexport.ir import ops
from crtexport.support.errors import CrtExportError


def _pool(kind: type[ops.Pool2D]) -> Decoder:
    def decode(source: SourceOperator) -> Decoded:
        options = source.options(Pool2DOptions)
        window = source.pair("window", options.filter_height, options.filter_width)
        stride = source.pair("stride", options.stride_h, options.stride_w)
        padding = source.padding(options, window, stride)
        return kind(window, stride, padding, source.activation(options)), source.inputs

    return decode


def _moved(source: SourceOperator) -> Decoded:
    # The declared shape says what the axis of a new dimension, or of one to remove, does.
    return ops.Reshape(source.result().shape), source.inputs[:1]


def _reshape(source: SourceOperator) -> Decoded:
    # The output's declared shape has -1 resolved already.
    shape, given = source.result().shape, source.inputs[1:2]
    if not shape and given and given[0] and source.given(1, "the shape").constant is not None:
        shape = _sizes(source.integers(1, "the shape"), source.type(0).elements)
    return ops.Reshape(shape), source.inputs[:1]


def _sizes(listed: tuple[int, ...], elements: int) -> tuple[int, ...]:
    """Returns a shape with its -1, if there is one, made what ``elements`` leave to it."""
    known = math.prod(size for size in listed if size != -1)
    if listed.count(-1) != 1 or known <= 0:
        return listed
    return tuple(elements // known if size == -1 else size for size in listed)


def _pad(source: SourceOperator) -> Decoded:
    return ops.Pad(ops_shape.pairs(source, 1, "paddings")), source.inputs[:1]


def _concatenation(source: SourceOperator) -> Decoded:
    options = source.options(ConcatenationOptions)
    axis = axis_of(options.axis, len(source.type(0).shape))
    return ops.Concatenation(axis, source.activation(options)), source.inputs


def _softmax(source: SourceOperator) -> Decoded:
    options = source.options(SoftmaxOptions)
    beta = options.beta
    if not 0 < beta < float("inf"):
        raise CrtExportError(f"beta must be positive and finite, found {beta}")
    return ops.Softmax(beta), source.inputs


DECODERS: Mapping[int, Decoder] = {
    **ops_weighted.DECODERS,
    BuiltinOperator.AVERAGE_POOL_2D: _pool(ops.AveragePool2D),
    BuiltinOperator.MAX_POOL_2D: _pool(ops.MaxPool2D),
    BuiltinOperator.L2_POOL_2D: _pool(ops.L2Pool2D),
    BuiltinOperator.RESHAPE: _reshape,
    BuiltinOperator.SQUEEZE: _moved,
    BuiltinOperator.EXPAND_DIMS: _moved,
    BuiltinOperator.DENSIFY: _moved,  # what is sparse is whole when it has been read
    BuiltinOperator.PAD: _pad,
    BuiltinOperator.CONCATENATION: _concatenation,
    BuiltinOperator.SOFTMAX: _softmax,
    BuiltinOperator.LOGISTIC: Plain(ops.Logistic()),
    BuiltinOperator.TANH: Plain(ops.Tanh()),
    BuiltinOperator.RELU: Plain(ops.Relu()),
    BuiltinOperator.RELU6: Plain(ops.Relu6()),
    BuiltinOperator.QUANTIZE: Plain(ops.Quantize()),
    BuiltinOperator.DEQUANTIZE: Plain(ops.Dequantize()),
    **ops_arithmetic.DECODERS,
    **ops_recurrent.DECODERS,
    **ops_state.DECODERS,
    **ops_unary.DECODERS,
    **ops_reduce.DECODERS,
    **ops_shape.DECODERS,
}
"""The operators that can be imported, by their code in the file."""

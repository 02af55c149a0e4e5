"""Decoders of operators with weights, and of products of matrices."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from crtexport.importers.tflite.operators import (
    Decoded,
    Decoder,
    Plain,
    SourceOperator,
)
from crtexport.importers.tflite.schema import (
    BatchMatMulOptions,
    BuiltinOperator,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    FullyConnectedOptions,
    FullyConnectedOptionsWeightsFormat,
    Padding,
    TransposeConvOptions,
    any_name,
)
from crtexport.ir import ops
from crtexport.support.errors import CrtExportError

_RANK = 4  # of images


def _conv_2d(source: SourceOperator) -> Decoded:
    options = source.options(Conv2DOptions)
    stride = source.pair("stride", options.stride_h, options.stride_w)
    dilation = source.pair(
        "dilation", options.dilation_h_factor, options.dilation_w_factor
    )
    padding = source.padding(options, _window(source), stride, dilation)
    return ops.Conv2D(stride, dilation, padding, source.activation(options)), source.inputs


def _depthwise_conv_2d(source: SourceOperator) -> Decoded:
    options = source.options(DepthwiseConv2DOptions)
    stride = source.pair("stride", options.stride_h, options.stride_w)
    dilation = source.pair(
        "dilation", options.dilation_h_factor, options.dilation_w_factor
    )
    window = _window(source)
    padding = source.padding(options, window, stride, dilation)
    # The file's own multiplier is redundant, and ignored by runtimes since TensorFlow 2.1.
    channels = source.type(0).shape[-1] if source.type(0).shape else 0
    multiplier = source.type(1).shape[3] // channels if channels else 0
    op = ops.DepthwiseConv2D(multiplier, stride, dilation, padding, source.activation(options))
    return op, source.inputs


def _window(source: SourceOperator) -> tuple[int, int]:
    """Returns the rows and columns of the filters, which are input 1."""
    weights = source.type(1, "weights")
    if len(weights.shape) != 4:
        raise CrtExportError(f"the weights must have 4 dimensions, found {weights}")
    return weights.shape[1], weights.shape[2]


def _fully_connected(source: SourceOperator) -> Decoded:
    options = source.options(FullyConnectedOptions)
    layout = options.weights_format
    if layout != FullyConnectedOptionsWeightsFormat.DEFAULT:
        name = any_name("FullyConnectedOptionsWeightsFormat", layout) or layout
        raise CrtExportError(f"the weights format {name} is not supported")
    return ops.FullyConnected(options.keep_num_dims, source.activation(options)), source.inputs


def _transpose_conv(source: SourceOperator) -> Decoded:
    """Inputs: the output's shape, weights, data, bias."""
    options = source.options(TransposeConvOptions)
    stride = source.pair("stride", options.stride_h, options.stride_w)
    shape, result = _image_shape(source, options, stride), source.result()
    crop = source.padding(options, _window(source), stride, image=replace(result, shape=shape))
    op = ops.TransposeConv2D(
        (shape[1], shape[2]), stride, (crop.top, crop.left), source.activation(options)
    )
    data, weights, *bias = source.inputs[2:3] + source.inputs[1:2] + source.inputs[3:]
    return op, (data, weights, *bias)


def _image_shape(
    source: SourceOperator, options: TransposeConvOptions, stride: tuple[int, int]
) -> tuple[int, ...]:
    """Returns the shape of the output: the one that a constant says; where that is computed, the
    file's own, if a convolution from it to the operator's input makes sense."""
    what, result = "the output's shape", source.result()
    given = source.given(0, what)
    if given.constant is not None or not given.type.elements:
        shape = source.integers(0, what)
        if len(shape) != _RANK or result.shape not in ((), shape):
            raise CrtExportError(f"the output {result} must have the shape {list(shape)}")
        return shape
    image, window = source.type(2).shape, _window(source)
    valid = options.padding == Padding.VALID
    steps = [
        -(-(size - taps + 1 if valid else size) // step)
        for size, taps, step in zip(result.shape[1:3], window, stride, strict=True)
    ] if len(result.shape) == len(image) == _RANK else []
    if not steps or (result.shape[0], *steps) != image[:3]:
        return source.integers(0, what)  # raises
    return result.shape


def _batch_matmul(source: SourceOperator) -> Decoded:
    options = source.optional_options(BatchMatMulOptions)
    if options is None:
        return ops.BatchMatMul(), source.inputs
    op = ops.BatchMatMul(options.adj_x, options.adj_y)
    return op, source.inputs


DECODERS: Mapping[int, Decoder] = {
    BuiltinOperator.CONV_2D: _conv_2d,
    BuiltinOperator.DEPTHWISE_CONV_2D: _depthwise_conv_2d,
    BuiltinOperator.FULLY_CONNECTED: _fully_connected,
    BuiltinOperator.TRANSPOSE_CONV: _transpose_conv,
    BuiltinOperator.BATCH_MATMUL: _batch_matmul,
    BuiltinOperator.EMBEDDING_LOOKUP: Plain(ops.EmbeddingLookup()),
}

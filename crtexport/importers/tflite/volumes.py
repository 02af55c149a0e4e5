"""CONV_3D: a sum of convolutions of images, one for each tap along the depth.

Volumes are (batch, depth, rows, columns, channels), weights (depth, rows, columns, channels of the
input, channels of the output), all float32, as in TensorFlow Lite's only kernel.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from crtexport.importers.tflite.flatbuffer import Table, integer
from crtexport.importers.tflite.float_nodes import Define, FloatNodes
from crtexport.importers.tflite.operators import SourceOperator, same_padding
from crtexport.importers.tflite.schema import Padding
from crtexport.ir.graph import Node, Tensor
from crtexport.ir.ops import Activation, Add, Conv2D, Pad, Reshape, Slice, Transpose
from crtexport.ir.types import ConstantRef, DType, TensorType
from crtexport.support.errors import CrtExportError


class Conv3DOptions(Table):
    UNION = 106
    padding = integer(0, "b")
    stride_d = integer(1)
    stride_w = integer(2)
    stride_h = integer(3)
    fused_activation_function = integer(4, "b")
    dilation_d_factor = integer(5, absent=1)
    dilation_w_factor = integer(6, absent=1)
    dilation_h_factor = integer(7, absent=1)


def conv_3d(source: SourceOperator, define: Define) -> list[Node]:
    """Returns the operator as nodes; ``define`` makes a tensor and returns its number. Raises
    CrtExportError for other types and shapes than the runtimes take."""
    options = source.options(Conv3DOptions)
    x, weights, y = source.type(0), source.type(1, "the weights"), source.result()
    _check(x, weights, y)
    stride, dilation = options.stride_d, options.dilation_d_factor
    strides = options.stride_h, options.stride_w
    dilations = options.dilation_h_factor, options.dilation_w_factor
    if min(stride, dilation, *strides, *dilations) < 1:
        raise CrtExportError("strides and dilations must be at least 1")
    chain = _Chain(source, define)
    image = replace(x, shape=x.shape[1:])
    rows, columns = weights.shape[1:3]
    padding = source.padding(options, (rows, columns), strides, dilations, image)
    op = Conv2D(strides, dilations, padding)
    taps, depth = weights.shape[0], y.shape[1]
    volume = source.inputs[0]
    if options.padding == Padding.SAME:
        around = same_padding(x.shape[1], taps, stride, dilation)
        if any(around):
            padded = (x.shape[0], x.shape[1] + sum(around), *x.shape[2:])
            paddings = tuple(around if axis == 1 else (0, 0) for axis in range(5))
            volume = chain.add(Pad(paddings), padded, volume)
            x = replace(x, shape=padded)
    if (depth - 1) * stride + (taps - 1) * dilation >= x.shape[1]:
        raise CrtExportError(f"{y} doesn't follow from {x} and {weights}")
    cut, images = (x.shape[0], depth, *x.shape[2:]), (x.shape[0] * depth, *x.shape[2:])
    result, activation = (images[0], *y.shape[2:]), source.activation(options)
    total: int | None = None
    for tap in range(taps):
        cells = Slice((0, tap * dilation, 0, 0, 0), cut, (1, stride, 1, 1, 1), cut)
        planes = chain.add(Reshape(images), images, chain.add(cells, cut, volume))
        bias = source.inputs[2] if len(source.inputs) > 2 and not tap else None
        given = (planes, chain.weights(weights, tap), *([bias] if bias is not None else []))
        last = tap == taps - 1
        if last and total is None:
            op = replace(op, activation=activation)
        part = chain.add(op, result, *given)
        total = part if total is None else chain.add(
            Add(activation if last else Activation.NONE), result, total, part
        )
    return chain.finish(Reshape(y.shape), source.outputs, total)


def _check(x: TensorType, weights: TensorType, y: TensorType) -> None:
    for type_ in (x, weights, y):
        if type_.dtype is not DType.FLOAT32 or len(type_.shape) != 5:
            raise CrtExportError(f"volumes and weights must be float32 of 5 axes, found {type_}")
        if 0 in type_.shape:
            raise CrtExportError(f"{type_} has no elements")
    if x.shape[4] != weights.shape[3]:
        raise CrtExportError(f"{weights} takes {weights.shape[3]} channels, not those of {x}")


class _Chain(FloatNodes):
    def __init__(self, source: SourceOperator, define: Define) -> None:
        super().__init__(source.tensors.tensor(source.outputs[0]).name, define)
        self._source = source

    def weights(self, type_: TensorType, tap: int) -> int:
        """Returns the weights of a tap as those of images: (output, rows, columns, input)."""
        _, rows, columns, given, made = type_.shape
        shape, one = (made, rows, columns, given), (1, *type_.shape[1:])
        known = self._source.given(1, "the weights").constant
        if known is not None:
            values = known.array(type_)[tap].transpose(3, 0, 1, 2)
            name = f"{self.name}/weights {tap}"
            return self._define(Tensor(
                name, TensorType(DType.FLOAT32, shape), ConstantRef.of(np.ascontiguousarray(values))
            ))
        cut = Slice((tap, 0, 0, 0, 0), one, (1,) * 5, one[1:])
        return self.add(
            Transpose((3, 0, 1, 2)), shape, self.add(cut, one[1:], self._source.inputs[1])
        )

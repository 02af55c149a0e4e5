"""Constants of float32 layers, by which schedules are chosen."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.ir.ops import Activation, Conv2D, DepthwiseConv2D, FullyConnected
from crtexport.ir.types import DType
from crtexport.lowering.numerics.integer_sums import weight_scales
from crtexport.lowering.registry import Context

Floats = npt.NDArray[np.float32]
Layer = Conv2D | DepthwiseConv2D | FullyConnected


def layer_of(context: Context) -> Layer | None:
    """Returns a convolution or fully connected layer of float32 tensors with constant weights
    (float32 or int8) and bias; None for other nodes, and where there is nothing to compute."""
    op = context.node.op
    if not isinstance(op, Conv2D | DepthwiseConv2D | FullyConnected):
        return None
    tensors = [t for t in (*context.node.inputs, *context.node.outputs) if t is not None]
    types = [context.graph.type(t) for t in tensors]
    kinds = {t.dtype for t in (types[0], *types[2:])}
    if kinds != {DType.FLOAT32} or types[1].dtype not in (DType.FLOAT32, DType.INT8):
        return None
    if not all(t.elements for t in types):
        return None
    if any(context.graph.constant(t) is None for t in tensors[1:-1]):
        return None
    return op


class Numbers(Struct, frozen=True, eq=False):
    """The constants of a layer of ``channels`` besides its weights: the factor of each channel's
    sum (None: there is none), the bias, and the activation."""

    channels: int
    scales: Floats | None
    bias: Floats
    activation: Activation

    @staticmethod
    def of(context: Context, op: Layer, axis: int) -> Numbers:
        channels = context.input(1).shape[axis]
        scales = None
        if context.input(1).dtype is DType.INT8:
            quant = weight_scales(context, channels)
            scales = np.resize(np.array(quant.scale, np.float32), channels)
        bias = np.zeros(channels, np.float32)
        if context.has(2):
            bias = context.values(2).astype(np.float32).reshape(-1)
        return Numbers(channels, scales, bias, op.activation)

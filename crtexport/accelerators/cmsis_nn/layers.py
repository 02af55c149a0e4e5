"""The nodes that CMSIS-NN's functions take, and the arguments of their calls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from crtexport.accelerators.cmsis_nn.buffers import (
    Implementation,
    average_pool,
    convolution,
    depthwise,
)
from crtexport.accelerators.plugin import Constant, Match, Refusal
from crtexport.ir import ops
from crtexport.ir.scaling import activation_range, layer_scales
from crtexport.ir.types import ConstantRef, DType, TensorType
from crtexport.ir.window import WindowGeometry
from crtexport.lowering.ops.softmax import Exponentials
from crtexport.lowering.registry import Context
from crtexport.support.fixedpoint import quantize_multiplier
from crtexport.support.target import Target

Pair = tuple[int, int]
Number = int | tuple[int, ...] | str | bool
_MOST_IN_A_ROW = 511  # of a softmax: more make the library shift by 32 and further


class LibraryCall(Struct, frozen=True):
    """A call as the template writes it: the function, and its numbers. Equal calls are one
    function. ``inputs`` are the names of its pointers."""

    kind: str
    inputs: tuple[str, ...]
    numbers: tuple[tuple[str, Number], ...]
    scratch: int
    layer: str = ""


def _int8(context: Context) -> Refusal | None:
    found = {context.input(0).dtype, context.output().dtype}
    if found == {DType.INT8}:
        return None
    return Refusal(f"CMSIS-NN's int8 functions are used; found {context.input(0).dtype.value}")


def _int32(name: str, values: list[int]) -> Constant:
    array = np.array(values, np.int64).astype(np.int32)
    return Constant(name, TensorType(DType.INT32, array.shape), ConstantRef.of(array))


def _weights(context: Context) -> Refusal | None:
    quant = context.input(1).quant
    if context.input(1).dtype is not DType.INT8 or quant is None:
        return Refusal("weights must be int8")
    if context.graph.constant(context.graph.required(context.node, 1)) is None:
        return Refusal("weights must be constant")
    if any(quant.zero_point):
        return Refusal("the zero point of weights must be 0")
    return None


def _offsets(context: Context) -> tuple[int, int]:
    """Returns the offsets that are added to each input, and to each output."""
    zero, result = (context.quant(t).zero_point[0] for t in (context.input(0), context.output()))
    return -zero, result


def _scales(context: Context, channels: int, *, fully_connected: bool = False) -> list[Pair]:
    """Returns multiplier and shift of each channel."""
    reals = layer_scales(
        context.input(0), context.input(1), context.output(), context.numerics,
        fully_connected=fully_connected,
    )
    pairs = [quantize_multiplier(real) for real in reals]
    return pairs * channels if len(pairs) == 1 else pairs


def _corner(padding: ops.Padding2D) -> Pair:
    return padding.top, padding.left


def _convolution(context: Context, node: int, target: Target) -> Match | Refusal:
    op = context.op(ops.Conv2D, ops.DepthwiseConv2D)
    refusal = _int8(context) or _weights(context)
    if refusal is not None:
        return refusal
    x, w, y = context.input(0).shape, context.input(1).shape, context.output().shape
    is_depthwise = isinstance(op, ops.DepthwiseConv2D)
    if not is_depthwise and w[3] != x[3]:
        return Refusal("convolutions in groups are not among those that all versions take")
    window = WindowGeometry.of(op, x, y, (w[1], w[2]))
    scales = _scales(context, y[3])
    machine = Implementation.of(target)
    scratch = (depthwise if is_depthwise else convolution)(machine, window)
    multiplier = op.depth_multiplier if isinstance(op, ops.DepthwiseConv2D) else 0
    offsets = _offsets(context)
    return _weighted(context, node, LibraryCall(
        "depthwise" if is_depthwise else "convolution",
        ("weights", "bias", "multipliers", "shifts"),
        (
            ("input_offset", offsets[0]), ("output_offset", offsets[1]),
            ("multiplier", multiplier), ("stride", op.stride), ("dilation", op.dilation),
            ("padding", window.pad_before),
            ("limits", activation_range(op.activation, context.output())),
            ("x", x), ("w", w), ("y", y), ("bias", context.has(2)),
        ), scratch,
    ), [_int32("multipliers", [m for m, _ in scales]), _int32("shifts", [s for _, s in scales])])


def _weighted(context: Context, node: int, call: LibraryCall, further: list[Constant]) -> Match:
    """Returns the match with weights and bias of the model, then ``further`` constants."""
    bias = context.node.inputs[2] if context.has(2) else None
    tensors = [context.graph.required(context.node, position) for position in (0, 1)]
    names = tuple(name for name in call.inputs if name != "bias" or bias is not None)
    return Match(
        (node,), (*tensors, *([] if bias is None else [bias]), *further), context.node.outputs,
        call.scratch, LibraryCall(call.kind, names, call.numbers, call.scratch, str(context.node)),
    )


def _fully_connected(context: Context, node: int, target: Target) -> Match | Refusal:
    op = context.op(ops.FullyConnected)
    refusal = _int8(context) or _weights(context)
    if refusal is not None:
        return refusal
    channels, depth = context.input(1).shape
    scales = _scales(context, channels, fully_connected=True)
    offsets = _offsets(context)
    each = len(set(scales)) > 1
    more, names = [], ["weights", "bias"]
    if each:
        more += [_int32("multipliers", [m for m, _ in scales]),
                 _int32("shifts", [s for _, s in scales])]
        names += ["multipliers", "shifts"]
    if Implementation.of(target) is Implementation.MVE:
        # What arm_vector_sum_s8 would compute before the first inference.
        totals, _ = context.sums(1, 0, 0)
        bias = context.values(2).reshape(-1).tolist() if context.has(2) else [0] * channels
        more.append(_int32("sums", [
            b + offsets[0] * t for b, t in zip(bias, totals.tolist(), strict=True)
        ]))
        names.append("sums")
    return _weighted(context, node, LibraryCall(
        "per_channel" if each else "fully_connected", tuple(names),
        (
            ("input_offset", offsets[0]), ("output_offset", offsets[1]),
            ("limits", activation_range(op.activation, context.output())),
            ("scale", scales[0]),
            ("rows", context.output().elements // channels if channels else 0),
            ("depth", depth), ("channels", channels), ("bias", context.has(2)),
            ("sums", "sums" in names),
        ), 0,
    ), more)


def _pool(context: Context, node: int, target: Target) -> Match | Refusal:
    op = context.op(ops.AveragePool2D, ops.MaxPool2D)
    refusal = _int8(context)
    if refusal is not None:
        return refusal
    x, y = context.input(0).shape, context.output().shape
    mean = isinstance(op, ops.AveragePool2D)
    scratch = average_pool(Implementation.of(target), x[3]) if mean else 0
    return Match((node,), (context.graph.required(context.node, 0),), context.node.outputs, scratch,
                 LibraryCall("average_pool" if mean else "max_pool", (), (
                     ("stride", op.stride), ("padding", _corner(op.padding)),
                     ("limits", activation_range(op.activation, context.output())),
                     ("x", x), ("window", op.window), ("y", y),
                 ), scratch, str(context.node)))


def _softmax(context: Context, node: int, _target: Target) -> Match | Refusal:
    op = context.op(ops.Softmax)
    refusal = _int8(context)
    if refusal is not None:
        return refusal
    source = context.input(0)
    length = source.shape[-1] if source.shape else 1
    if not 0 < length <= _MOST_IN_A_ROW:
        return Refusal(f"rows may have up to {_MOST_IN_A_ROW} elements; found {length}")
    of = Exponentials.of(context.quant(source).scale[0], op.beta)
    if of.multiplier[1] < 0:
        scale = context.quant(source).scale[0] * op.beta
        return Refusal(f"scale and beta must be at least 2**-27 together; found {scale}")
    return Match((node,), (context.graph.required(context.node, 0),), context.node.outputs, 0,
                 LibraryCall("softmax", (), (
                     ("rows", source.elements // length), ("length", length),
                     ("scale", of.multiplier), ("least", of.radius),
                 ), 0, str(context.node)))


TAKERS: dict[type, Callable[[Context, int, Target], Match | Refusal]] = {
    ops.Conv2D: _convolution, ops.DepthwiseConv2D: _convolution,
    ops.FullyConnected: _fully_connected, ops.AveragePool2D: _pool, ops.MaxPool2D: _pool,
    ops.Softmax: _softmax,
}
"""By operator: the function that matches a node that the kernels' rules here accept."""

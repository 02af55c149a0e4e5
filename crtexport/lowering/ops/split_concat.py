"""Tensors cut into parts and put together: SPLIT, SPLIT_V, UNPACK, PACK, CONCATENATION."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from crtexport.ir.ops import Activation, Concatenation, Pack, Split, Unpack
from crtexport.ir.types import DType, Quantization, TensorType
from crtexport.kir.builder import add, cast, const, flat_index, load
from crtexport.kir.language import Buffer, Scalar
from crtexport.lowering.numerics.strided_copy import CopyAxis, move
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import same_types

COPYABLE = tuple(SCALAR_OF)


def equal_scales(context: Context) -> str | None:
    """Quantized inputs and outputs must have the same scale and zero point, but for uint8
    inputs."""
    output = context.output()
    if output.dtype not in (DType.INT8, DType.INT16):
        return None
    quants = {context.input(i).quant for i in range(len(context.node.inputs))}
    found = len(quants | {output.quant})
    return f"found {found} different ones" if found > 1 else None


def joined_scales(context: Context) -> str | None:
    """Int8 inputs and outputs must have the same scale and zero point; uint8 is rescaled, and the
    integers of int16 are taken as they are, as in the reference."""
    return None if context.output().dtype is DType.INT16 else equal_scales(context)


def no_activation(context: Context) -> str | None:
    """A concatenation can't have a fused activation."""
    op = context.node.op
    if isinstance(op, Concatenation) and op.activation is not Activation.NONE:
        return f"found {op.activation.value}"
    return None


@lowers(Concatenation, same_types(*COPYABLE), joined_scales, no_activation)
def concatenation(context: Context) -> Lowered:
    """Inputs side by side along one axis; uint8 inputs of other scales are rescaled."""
    op = context.op(Concatenation)
    return _joined(context, "concatenation", op.axis)


@lowers(Pack, same_types(*COPYABLE), equal_scales)
def pack(context: Context) -> Lowered:
    """Inputs side by side along a new axis."""
    op = context.op(Pack)
    return _joined(context, "pack", op.axis)


def _joined(context: Context, name: str, axis: int) -> Lowered:
    """Emits chunks of each input, one after the other, for each index in front of ``axis``."""
    lowering = Lowering(name, context)
    output = context.output()
    types = [context.input(i) for i in range(len(context.node.inputs))]
    sources = [lowering.input(i, f"input{i + 1}") for i in range(len(types))]
    tables = [_rescaling(lowering, type_, output) for type_ in types]
    target = lowering.output()
    outer = math.prod(output.shape[:axis])
    row = math.prod(output.shape[axis:])
    start = 0
    for source, type_, table in zip(sources, types, tables, strict=True):
        chunk = type_.elements // outer if outer else 0
        if table is None:
            move(
                lowering.b, source, target, [CopyAxis(outer, chunk, row), CopyAxis(chunk, 1, 1)],
                target_start=start,
            )
        elif chunk:
            _look_up(lowering, table, (source, target), (outer, chunk, row), start)
        start += chunk
    return lowering.finish()


def _look_up(
    lowering: Lowering, table: Buffer, ends: tuple[Buffer, Buffer],
    sizes: tuple[int, int, int], start: int,
) -> None:
    """Copies rows through a table of 256 values."""
    (source, target), (outer, chunk, row) = ends, sizes
    b = lowering.b
    with b.loop("o", outer) as o, b.loop("i", chunk) as i:
        value = load(source, flat_index([o, i], (outer, chunk)))
        at = add(flat_index([o, i], (outer, row)), const(start))
        b.store(target, at, load(table, cast(value, Scalar.INDEX)))


def _rescaling(lowering: Lowering, source: TensorType, target: TensorType) -> Buffer | None:
    """Returns what each uint8 becomes in the output's scale; None where that is what it is."""
    if source.dtype is not DType.UINT8 or source.quant == target.quant:
        return None
    given, wanted = (t.quant or Quantization((1.0,), (0,)) for t in (source, target))
    # TFLite ConcatenationWithScaling: float32 throughout, halves away from zero.
    inverse = np.float32(1.0) / np.float32(wanted.scale[0])
    factor = np.float32(np.float32(given.scale[0]) * inverse)
    offset = np.float32(np.float32(-given.zero_point[0]) * factor)
    steps = np.arange(256, dtype=np.float32) * factor + offset
    rounded = np.trunc(steps.astype(np.float64) + np.copysign(0.5, steps))
    values = np.clip(rounded + wanted.zero_point[0], 0, 255)
    return lowering.derived(
        "table", Scalar.U8, values.astype(np.uint8),
        "for each value of the input: the same in the scale of the output",
    )


@lowers(Split, same_types(*COPYABLE))
def split(context: Context) -> Lowered:
    """Parts of one axis, each its own output."""
    op = context.op(Split)
    return _parted(context, "split", op.axis, op.sizes)


@lowers(Unpack, same_types(*COPYABLE))
def unpack(context: Context) -> Lowered:
    """The positions of one axis, each its own output."""
    op = context.op(Unpack)
    return _parted(context, "unpack", op.axis, (1,) * len(context.node.outputs))


def _parted(context: Context, name: str, axis: int, sizes: Sequence[int]) -> Lowered:
    """Emits chunks for each output, one after the other."""
    lowering = Lowering(name, context)
    shape = context.input(0).shape
    source = lowering.input(0, "input")
    targets = [lowering.output(i, f"output{i + 1}") for i in range(len(sizes))]
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    row = shape[axis] * inner
    start = 0
    for target, size in zip(targets, sizes, strict=True):
        chunk = size * inner
        move(
            lowering.b, source, target, [CopyAxis(outer, row, chunk), CopyAxis(chunk, 1, 1)],
            source_start=start,
        )
        start += chunk
    return lowering.finish()

"""PAD, PADV2, MIRROR_PAD, SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND: copies that look at borders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

from crtexport.ir.ops import BatchToSpaceNd, MirrorPad, Pad, PadV2, SpaceToBatchNd
from crtexport.ir.types import DType, TensorType
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    const,
    flat_index,
    ge,
    load,
    lt,
    mul,
    select,
    sub,
)
from crtexport.kir.language import Buffer, Const, Expr
from crtexport.lowering.numerics.strided_copy import position, strides
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import equal_quantization, same_types

COPYABLE = tuple(SCALAR_OF)


def _zero(type_: TensorType) -> Expr:
    """Returns what stands for real 0."""
    scalar = SCALAR_OF[type_.dtype]
    if scalar.is_float:
        return Const(0.0, scalar)
    # Of wider integers the reference takes no notice of a zero point.
    scaled = type_.quant is not None and type_.dtype in (DType.INT8, DType.UINT8, DType.INT16)
    return Const(type_.quant.zero_point[0] if scaled and type_.quant else 0, scalar)


@lowers(Pad, same_types(*COPYABLE), equal_quantization)
def pad(context: Context) -> Lowered:
    """The input inside a frame of real 0 (the zero point of quantized tensors)."""
    op = context.op(Pad)
    return _framed(context, op.paddings)


@lowers(PadV2, same_types(*COPYABLE), equal_quantization)
def pad_v2(context: Context) -> Lowered:
    """The input inside a frame of a value that is stored as it is given."""
    op = context.op(PadV2)
    return _framed(context, op.paddings)


def _framed(context: Context, paddings: Sequence[tuple[int, int]]) -> Lowered:
    lowering = Lowering("pad", context)
    b, x, y = lowering.b, context.input(0), context.output()
    source = lowering.input(0, "input")
    given = lowering.input(1, "value") if context.has(1) else None
    output = lowering.output()
    if 0 in y.shape:
        return lowering.finish()
    filler = b.let("filler", load(given, const(0))) if given is not None else _zero(y)
    with ExitStack() as stack:
        outs = [stack.enter_context(b.loop(f"i{axis}", n)) for axis, n in enumerate(y.shape)]
        ins: list[Expr] = []
        conditions: list[Expr] = []
        for axis, (before, after) in enumerate(paddings):
            at = b.let(f"s{axis}", sub(outs[axis], const(before)))
            ins.append(at)
            conditions += _inside(at, before, after, x.shape[axis])
        _guarded(lowering, conditions, (
            output, flat_index(outs, y.shape), load(source, flat_index(ins, x.shape)), filler
        ))
    return lowering.finish()


def _inside(at: Expr, before: int, after: int, size: int) -> list[Expr]:
    """Returns what must hold for ``at``, which can be outside by so much, to be in an axis."""
    conditions = [ge(at, const(0))] if before else []
    return [*conditions, lt(at, const(size))] if after else conditions


def _guarded(
    lowering: Lowering, conditions: list[Expr], store: tuple[Buffer, Expr, Expr, Expr]
) -> None:
    """Stores one value where the conditions hold, and another where not."""
    output, at, value, other = store
    b = lowering.b
    with b.if_(and_(*conditions) if conditions else None):
        b.store(output, at, value)
    if conditions:
        with b.else_():
            b.store(output, at, other)


@lowers(MirrorPad, same_types(*COPYABLE), equal_quantization)
def mirror_pad(context: Context) -> Lowered:
    """The input inside a frame of its mirror image."""
    op = context.op(MirrorPad)
    lowering = Lowering("mirror_pad", context)
    b, x, y = lowering.b, context.input(0), context.output()
    source, output = lowering.input(0, "input"), lowering.output()
    if 0 in y.shape:
        return lowering.finish()
    edge = 1 if op.symmetric else 0
    with ExitStack() as stack:
        outs: list[Expr] = []
        ins: list[Expr] = []
        for axis, (before, after) in enumerate(op.paddings):
            outs.append(stack.enter_context(b.loop(f"i{axis}", y.shape[axis])))
            at = b.let(f"s{axis}", sub(outs[axis], const(before)))
            size = x.shape[axis]
            if after:
                beyond = sub(const(2 * (size - 1) + edge), at)
                at = b.let(f"m{axis}", select(lt(at, const(size)), at, beyond))
            if before:
                at = b.let(f"p{axis}", select(ge(at, const(0)), at, sub(const(-edge), at)))
            ins.append(at)
        b.store(output, flat_index(outs, y.shape), load(source, flat_index(ins, x.shape)))
    return lowering.finish()


@lowers(SpaceToBatchNd, same_types(*COPYABLE), equal_quantization)
def space_to_batch_nd(context: Context) -> Lowered:
    """Every position in a block becomes a batch; what lies outside is real 0."""
    op = context.op(SpaceToBatchNd)
    lowering = Lowering("space_to_batch", context)
    b, x, y = lowering.b, context.input(0), context.output()
    source, output = lowering.input(0, "input"), lowering.output()
    if 0 in y.shape:
        return lowering.finish()
    with ExitStack() as stack:
        at = _PadBlocks(b, stack, op.block, x.shape[0], y.shape[1:])
        ins: list[Expr] = []
        conditions: list[Expr] = []
        for axis, place in enumerate(at.places):
            before, after = op.paddings[axis]
            inner = b.let(f"s{axis}", sub(place, const(before)))
            ins.append(inner)
            conditions += _inside(inner, before, after, x.shape[axis + 1])
        read = position(0, [at.batch, *ins, at.rest], _steps(x.shape, len(op.block)))
        _guarded(lowering, conditions, (output, at.deep, load(source, read), _zero(y)))
    return lowering.finish()


@lowers(BatchToSpaceNd, same_types(*COPYABLE), equal_quantization)
def batch_to_space_nd(context: Context) -> Lowered:
    """Every batch becomes a position in blocks, except for what is cropped."""
    op = context.op(BatchToSpaceNd)
    lowering = Lowering("batch_to_space", context)
    b, x, y = lowering.b, context.input(0), context.output()
    source, output = lowering.input(0, "input"), lowering.output()
    if 0 in y.shape:
        return lowering.finish()
    with ExitStack() as stack:
        at = _PadBlocks(b, stack, op.block, y.shape[0], x.shape[1:])
        outs: list[Expr] = []
        conditions: list[Expr] = []
        for axis, place in enumerate(at.places):
            before, after = op.crops[axis]
            outer = b.let(f"s{axis}", sub(place, const(before)))
            outs.append(outer)
            conditions += _inside(outer, before, after, y.shape[axis + 1])
        written = position(0, [at.batch, *outs, at.rest], _steps(y.shape, len(op.block)))
        with b.if_(and_(*conditions) if conditions else None):
            b.store(output, written, load(source, at.deep))
    return lowering.finish()


def _steps(shape: Sequence[int], spatial: int) -> list[int]:
    """Returns how far apart neighbours are along batch, spatial axes and all that follows as
    one."""
    return [*strides(shape)[: spatial + 1], 1]


class _PadBlocks:
    """Loops over a tensor whose batches are positions in blocks, in its order in memory.

    ``deep`` is the position in that tensor; ``batch``, ``places`` (along the spatial axes) and
    ``rest`` (all further axes as one) that in the tensor with the space.
    """

    def __init__(
        self, b: KernelBuilder, stack: ExitStack, block: Sequence[int], batches: int,
        shape: Sequence[int],
    ) -> None:
        """``shape``: the axes behind the batch of the tensor that the loops run over."""
        spatial = len(block)
        rest = math.prod(shape[spatial:])
        sizes = (*block, batches, *shape[:spatial], rest)
        loops = [
            *(f"b{axis}" for axis in range(spatial)), "batch",
            *(f"i{axis}" for axis in range(spatial)), "c",
        ]
        at = [
            stack.enter_context(b.loop(name, size))
            for name, size in zip(loops, sizes, strict=True)
        ]
        self.deep = flat_index(at, sizes)
        self.batch, self.rest = at[spatial], at[-1]
        self.places = [
            add(mul(at[spatial + 1 + axis], const(size)), at[axis])
            for axis, size in enumerate(block)
        ]

"""Operators that only copy, in another order or as often as wanted.

RESHAPE is one where the plan can't make it a view.
"""

from __future__ import annotations

from collections.abc import Sequence

from crtexport.ir import ops
from crtexport.kir.builder import load
from crtexport.lowering.numerics.strided_copy import CopyAxis, move, strides
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import same_types

COPYABLE = tuple(SCALAR_OF)


@lowers(ops.Reshape, same_types(*COPYABLE))
def reshape(context: Context) -> Lowered:
    """The same elements in the same order."""
    lowering = Lowering("copy", context)
    source, output = lowering.input(0, "input"), lowering.output()
    with lowering.b.loop("i", context.output().elements) as i:
        lowering.b.store(output, i, load(source, i))
    return lowering.finish()


def _copied(context: Context, name: str, axes: Sequence[CopyAxis], start: int = 0) -> Lowered:
    """Returns a kernel that copies its input to its output in loops over ``axes``."""
    lowering = Lowering(name, context)
    source, output = lowering.input(0, "input"), lowering.output()
    move(lowering.b, source, output, axes, start)
    return lowering.finish()


@lowers(ops.Transpose, same_types(*COPYABLE))
def transpose(context: Context) -> Lowered:
    """Axes in another order; axes that stay neighbours are copied as one."""
    op = context.op(ops.Transpose)
    shape, source = context.output().shape, strides(context.input(0).shape)
    axes = [
        CopyAxis(extent, source[axis], step)
        for extent, axis, step in zip(shape, op.permutation, strides(shape), strict=True)
    ]
    return _copied(context, "transpose", axes)


@lowers(ops.Slice, same_types(*COPYABLE))
def slice_(context: Context) -> Lowered:
    """A part of each axis, in steps of any length and direction."""
    op = context.op(ops.Slice)
    source = strides(context.input(0).shape)
    axes = [
        CopyAxis(extent, stride * step, target)
        for extent, stride, step, target in zip(
            op.size, op.stride, source, strides(op.size), strict=True
        )
    ]
    start = sum(first * step for first, step in zip(op.begin, source, strict=True))
    return _copied(context, "slice", axes, start)


@lowers(ops.BroadcastTo, same_types(*COPYABLE))
def broadcast_to(context: Context) -> Lowered:
    """The input repeated along axes of size 1 and new ones."""
    shape, given = context.output().shape, context.input(0).shape
    new = len(shape) - len(given)
    source = [0] * new + [
        0 if extent == 1 else step for extent, step in zip(given, strides(given), strict=True)
    ]
    return _copied(
        context, "broadcast",
        [CopyAxis(*axis) for axis in zip(shape, source, strides(shape), strict=True)],
    )


@lowers(ops.Tile, same_types(*COPYABLE))
def tile(context: Context) -> Lowered:
    """The whole input repeated along each axis."""
    op = context.op(ops.Tile)
    given, target = context.input(0).shape, strides(context.output().shape)
    axes = []
    for extent, count, step, out in zip(
        given, op.multiples, strides(given), target, strict=True
    ):
        axes += [CopyAxis(count, 0, extent * out), CopyAxis(extent, step, out)]
    return _copied(context, "tile", axes)


@lowers(ops.SpaceToDepth, same_types(*COPYABLE))
def space_to_depth(context: Context) -> Lowered:
    """Each square block of pixels becomes the channels of one pixel."""
    axes = _blocks(context.output().shape, context.input(0).shape)
    # Written in order, read in blocks.
    order = [axes[i] for i in (0, 1, 3, 2, 4, 5)]
    return _copied(context, "space_to_depth", [CopyAxis(n, fine, deep) for n, deep, fine in order])


@lowers(ops.DepthToSpace, same_types(*COPYABLE))
def depth_to_space(context: Context) -> Lowered:
    """The channels of each pixel become a square block of pixels."""
    axes = _blocks(context.input(0).shape, context.output().shape)
    return _copied(context, "depth_to_space", [CopyAxis(n, deep, fine) for n, deep, fine in axes])


def _blocks(deep: Sequence[int], fine: Sequence[int]) -> list[tuple[int, int, int]]:
    """Returns the loops of a copy between pixels and blocks of pixels: for batches, rows, rows in a
    block, columns, columns in a block and channels, the extent, the stride in the smaller image and
    the stride in the larger one."""
    block = fine[1] // deep[1] if deep[1] else 1
    far, near = strides(deep), strides(fine)
    channels = fine[3]
    return [
        (deep[0], far[0], near[0]),
        (deep[1], far[1], near[1] * block),
        (block, block * channels, near[1]),
        (deep[2], far[2], near[2] * block),
        (block, channels, near[2]),
        (channels, 1, 1),
    ]

"""Copies whose source and target indices are linear in the loop variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

from msgspec import Struct

from crtexport.kir.builder import KernelBuilder, add, const, load, mul
from crtexport.kir.language import Buffer, Expr


class CopyAxis(Struct, frozen=True):
    """A loop: its extent, and the strides of the source and the target, in elements."""

    extent: int
    source: int
    target: int


def strides(shape: Sequence[int]) -> list[int]:
    """Returns the strides of a shape in row-major order, in elements."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def merged(axes: Sequence[CopyAxis]) -> list[CopyAxis]:
    """Returns the same copies, in the same order, with as few loops as possible."""
    result: list[CopyAxis] = []
    for axis in axes:
        if axis.extent == 1:
            continue
        outer = result[-1] if result else None
        if outer is not None and (outer.source, outer.target) == (
            axis.source * axis.extent, axis.target * axis.extent
        ):
            result[-1] = CopyAxis(outer.extent * axis.extent, axis.source, axis.target)
        else:
            result.append(axis)
    return result


def position(start: int, variables: Sequence[Expr], steps: Sequence[int]) -> Expr:
    """``start`` plus the sum of ``variables`` times ``steps``."""
    terms = [
        mul(variable, const(step))
        for variable, step in zip(variables, steps, strict=True) if step
    ]
    if start or not terms:
        # A start in front keeps what walks backwards from going below 0 on the way.
        return add(const(start), *terms)
    return add(terms[0], *terms[1:])


def move(
    b: KernelBuilder, source: Buffer, target: Buffer, axes: Sequence[CopyAxis],
    source_start: int = 0, target_start: int = 0,
) -> None:
    """Emits loops over ``axes``, the first outermost, that copy one element per iteration."""
    if any(axis.extent == 0 for axis in axes):
        return
    loops = merged(axes)
    with ExitStack() as stack:
        at = [stack.enter_context(b.loop("i", axis.extent)) for axis in loops]
        read = position(source_start, at, [axis.source for axis in loops])
        written = position(target_start, at, [axis.target for axis in loops])
        b.store(target, written, load(source, read))

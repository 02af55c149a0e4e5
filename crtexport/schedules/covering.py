"""Loops that cover pixels and output channels with blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from crtexport.kernels.build import KernelBuilder, add, const, min_, mul
from crtexport.kernels.ir import Expr


@contextmanager
def pixels_with_last_again(
    b: KernelBuilder, count: int, together: int
) -> Iterator[Callable[[Expr], Expr]]:
    """Goes through ``count`` pixels, ``together`` at a time; the last one fills the last block.

    Yields what gives the number of the pixel for each line of a block.
    """
    with b.loop("pixels", -(-count // together)) as number:
        first = mul(number, const(together))

        def pixel(line: Expr) -> Expr:
            at = add(first, line)
            return min_(at, const(count - 1)) if count % together else at

        yield pixel


@contextmanager
def pixels_overlapping(
    b: KernelBuilder, count: int, together: int, name: str = "pixels"
) -> Iterator[Expr]:
    """Goes through ``count`` pixels, or rows of them, ``together`` at a time; the last block begins
    earlier where it would not be full. Yields the number of a block's first pixel; ``name``: that
    of the loop. ``together`` <= ``count``."""
    with b.loop(name, -(-count // together)) as number:
        first = mul(number, const(together))
        if count % together:
            first = b.let("first", min_(first, const(count - together)))
        yield first


def in_steps(
    b: KernelBuilder, count: int, step: int, some: Callable[[Expr, int], None]
) -> None:
    """Goes through ``count`` words, ``step`` at a time in a loop and then those that are left.

    ``some`` gets the number of the first word and how many there are.
    """
    whole, rest = divmod(count, step)
    if whole:
        with b.loop("step", whole, unroll=1) as number:
            some(mul(number, const(step)), step)
    if rest:
        some(const(count - rest), rest)


def packed_channels(
    b: KernelBuilder, count: int, wide: int, size: int,
    block: Callable[[Expr, Expr, int], None],
) -> None:
    """Goes through ``count`` channels, ``wide`` at a time and then those that are left.

    ``block`` gets a block's first channel, where its weights begin, and how many channels it has.
    ``size``: elements of packed weights for ``wide`` channels.
    """
    whole, rest = divmod(count, wide)
    with b.loop("block", whole) as number:
        at = b.let("w", mul(number, const(size)))
        block(mul(number, const(wide)), at, wide)
    if rest:
        block(const(whole * wide), const(whole * size), rest)

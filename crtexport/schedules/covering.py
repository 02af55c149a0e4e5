"""Loops that cover pixels and output channels with blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

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
    with _overlapping(b, count, together, name, "first") as (_, first):
        yield first


@contextmanager
def _overlapping(
    b: KernelBuilder, count: int, together: int, name: str, begin: str
) -> Iterator[tuple[Expr, Expr]]:
    """Yields the number of a block, too; ``begin``: the name of where one begins."""
    with b.loop(name, -(-count // together)) as number:
        first = mul(number, const(together))
        if count % together:
            first = b.let(begin, min_(first, const(count - together)))
        yield number, first


class Vectors(Struct, frozen=True):
    """``channels`` in blocks of ``count`` vectors of ``lanes``.

    The last block begins earlier where it would not be full, and so does the last vector where all
    channels are in one block. Only where they are fewer than lanes, not all of those are there.
    """

    channels: int
    lanes: int
    count: int

    @classmethod
    def at_most(cls, count: int, channels: int, lanes: int) -> Vectors:
        """Blocks of so many vectors, or fewer where one block has all channels."""
        return cls(channels, lanes, min(count, -(-channels // lanes)))

    @classmethod
    def fewest(cls, most: int, channels: int, lanes: int) -> Vectors:
        """As few vectors as possible, in blocks of ``most`` at most, each of which takes as long as
        one vector more; the largest of such blocks."""
        needed = -(-channels // lanes)
        counts = range(min(most, needed), 0, -1)
        return cls(channels, lanes, min(counts, key=lambda n: -(-needed // n) * (n + 1)))

    @property
    def wide(self) -> int:
        """Channels of a block."""
        return min(self.count * self.lanes, self.channels)

    @property
    def there(self) -> int:
        """Lanes of a vector that are channels."""
        return min(self.lanes, self.channels)

    @property
    def whole(self) -> int:
        """Channels whose packed weights are as many for the last ones as for others: those of a
        block, or of a vector where there is but one block."""
        several = self.count * self.lanes
        return several if several <= self.channels else self.lanes

    def starts(self) -> list[int]:
        """Where vectors begin within a block."""
        return [min(i * self.lanes, self.wide - self.there) for i in range(self.count)]

    @contextmanager
    def each(self, b: KernelBuilder) -> Iterator[tuple[Expr, Expr]]:
        """Goes through the blocks; yields the number of one and its first channel."""
        with _overlapping(b, self.channels, self.wide, "block", "channel") as block:
            yield block


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

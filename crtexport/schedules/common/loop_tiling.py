"""Loops that cover pixels and output channels with blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from crtexport.kir.builder import KernelBuilder, const, min_, mul
from crtexport.kir.language import Expr


@contextmanager
def pixels_overlapping(
    b: KernelBuilder, count: int, pixels_per_block: int, name: str = "pixels"
) -> Iterator[Expr]:
    """Goes through ``count`` pixels, or rows of them, ``pixels_per_block`` at a time; the last
    block begins earlier where it would not be full. Yields the number of a block's first pixel;
    ``name``: that of the loop. ``pixels_per_block`` <= ``count``."""
    with _overlapping(b, count, pixels_per_block, name, "first") as (_, first):
        yield first


@contextmanager
def _overlapping(
    b: KernelBuilder, count: int, pixels_per_block: int, name: str, begin: str
) -> Iterator[tuple[Expr, Expr]]:
    """Yields the number of a block, too; ``begin``: the name of where one begins."""
    with b.loop(name, -(-count // pixels_per_block)) as number:
        first = mul(number, const(pixels_per_block))
        if count % pixels_per_block:
            first = b.let(begin, min_(first, const(count - pixels_per_block)))
        yield number, first


class VectorBlocks(Struct, frozen=True):
    """``channels`` in blocks of ``count`` vectors of ``lanes``.

    The last block begins earlier where it would not be full, and so does the last vector where all
    channels are in one block. Only where they are fewer than lanes, not all of those are there.
    """

    channels: int
    lanes: int
    count: int

    @classmethod
    def at_most(cls, count: int, channels: int, lanes: int) -> VectorBlocks:
        """Blocks of so many vectors, or fewer where one block has all channels."""
        return cls(channels, lanes, min(count, -(-channels // lanes)))

    @classmethod
    def fewest(cls, most: int, channels: int, lanes: int) -> VectorBlocks:
        """As few vectors as possible, in blocks of ``most`` at most, each of which takes as long as
        one vector more; the largest of such blocks."""
        needed = -(-channels // lanes)
        counts = range(min(most, needed), 0, -1)
        return cls(channels, lanes, min(counts, key=lambda n: -(-needed // n) * (n + 1)))

    @property
    def channels_per_block(self) -> int:
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
        """Returns where vectors begin within a block."""
        last = self.channels_per_block - self.there
        return [min(i * self.lanes, last) for i in range(self.count)]

    @contextmanager
    def each(self, b: KernelBuilder) -> Iterator[tuple[Expr, Expr]]:
        """Goes through the blocks; yields the number of one and its first channel."""
        with _overlapping(b, self.channels, self.channels_per_block, "block", "channel") as block:
            yield block


def in_steps(
    b: KernelBuilder, count: int, step: int, emit_words: Callable[[Expr, int], None]
) -> None:
    """Goes through ``count`` words, ``step`` at a time in a loop and then those that are left.

    ``emit_words`` gets the number of the first word and how many there are.
    """
    whole, rest = divmod(count, step)
    if whole:
        with b.loop("step", whole, unroll=1) as number:
            emit_words(mul(number, const(step)), step)
    if rest:
        emit_words(const(count - rest), rest)


def packed_channels(
    b: KernelBuilder, count: int, channels_per_block: int, size: int,
    block: Callable[[Expr, Expr, int], None],
) -> None:
    """Goes through ``count`` channels, ``channels_per_block`` at a time and then those that are
    left.

    ``block`` gets a block's first channel, where its weights begin, and how many channels it has.
    ``size``: elements of packed weights for ``channels_per_block`` channels.
    """
    whole, rest = divmod(count, channels_per_block)
    with b.loop("block", whole) as number:
        at = b.let("w", mul(number, const(size)))
        block(mul(number, const(channels_per_block)), at, channels_per_block)
    if rest:
        block(const(whole * channels_per_block), const(whole * size), rest)

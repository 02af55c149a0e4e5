"""Loops over blocks of pixels and of output channels."""

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
    """Loops over ``count`` pixels, or rows of them, ``pixels_per_block`` (at most ``count``) at a
    time. The last block begins earlier where it wouldn't be full, so that it computes some pixels
    again. Yields the number of a block's first pixel; ``name`` is the loop variable's."""
    with _overlapping(b, count, pixels_per_block, name, "first") as (_, first):
        yield first


@contextmanager
def _overlapping(
    b: KernelBuilder, count: int, pixels_per_block: int, name: str, begin: str
) -> Iterator[tuple[Expr, Expr]]:
    """As :func:`pixels_overlapping`; also yields the number of a block. ``begin``: the name of its
    first pixel."""
    with b.loop(name, -(-count // pixels_per_block)) as number:
        first = mul(number, const(pixels_per_block))
        if count % pixels_per_block:
            first = b.let(begin, min_(first, const(count - pixels_per_block)))
        yield number, first


class VectorBlocks(Struct, frozen=True):
    """``channels`` in blocks of ``count`` vectors of ``lanes``.

    The last block begins earlier where it wouldn't be full, and where all channels are in one
    block, so does its last vector. Only where there are fewer channels than lanes, some lanes of a
    vector are unused.
    """

    channels: int
    lanes: int
    count: int

    @classmethod
    def at_most(cls, count: int, channels: int, lanes: int) -> VectorBlocks:
        """Returns blocks of so many vectors, or of fewer where one block has all channels."""
        return cls(channels, lanes, min(count, -(-channels // lanes)))

    @classmethod
    def fewest(cls, most: int, channels: int, lanes: int) -> VectorBlocks:
        """Returns the blocks, of at most ``most`` vectors, that need the fewest vectors in all,
        counting one vector more for each block; of equal ones the largest."""
        needed = -(-channels // lanes)
        counts = range(min(most, needed), 0, -1)
        return cls(channels, lanes, min(counts, key=lambda n: -(-needed // n) * (n + 1)))

    @property
    def channels_per_block(self) -> int:
        """Returns the number of channels in a block."""
        return min(self.count * self.lanes, self.channels)

    @property
    def there(self) -> int:
        """Returns the number of a vector's lanes that hold channels."""
        return min(self.lanes, self.channels)

    @property
    def whole(self) -> int:
        """Returns the number of channels by which packed weights are padded to whole parts: those
        of a block, or of a vector where there is only one block."""
        several = self.count * self.lanes
        return several if several <= self.channels else self.lanes

    def starts(self) -> list[int]:
        """Returns the first channel of each vector, relative to its block."""
        last = self.channels_per_block - self.there
        return [min(i * self.lanes, last) for i in range(self.count)]

    @contextmanager
    def each(self, b: KernelBuilder) -> Iterator[tuple[Expr, Expr]]:
        """Loops over the blocks; yields a block's number and its first channel."""
        with _overlapping(b, self.channels, self.channels_per_block, "block", "channel") as block:
            yield block


def in_steps(
    b: KernelBuilder, count: int, step: int, emit_words: Callable[[Expr, int], None]
) -> None:
    """Loops over ``count`` words, ``step`` at a time, then handles the remaining ones.
    ``emit_words`` is called with the number of the first word and how many there are."""
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
    """Loops over ``count`` channels, ``channels_per_block`` at a time, then handles the remaining
    ones. ``block`` is called with a block's first channel, the position of its weights, and how
    many channels it has. ``size``: the number of packed weights for ``channels_per_block``
    channels."""
    whole, rest = divmod(count, channels_per_block)
    with b.loop("block", whole) as number:
        at = b.let("w", mul(number, const(size)))
        block(mul(number, const(channels_per_block)), at, channels_per_block)
    if rest:
        block(const(whole * channels_per_block), const(whole * size), rest)

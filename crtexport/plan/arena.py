"""Offsets for blocks of bytes with lifetimes, such that no two needed blocks overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crtexport.plan.liveness import Lifetime

_ATTEMPTS = 16
_EFFORT = 4_000_000  # pairs of blocks looked at in all attempts, so that large networks stay quick


@dataclass(frozen=True)
class Block:
    """``size`` bytes, needed during ``lifetime``."""

    size: int
    lifetime: Lifetime


def place(blocks: Sequence[Block], alignment: int) -> tuple[int, ...]:
    """The offset of each block, a multiple of ``alignment``: greedy, largest first.

    Each block goes to the lowest gap between the blocks that are already placed and needed at the
    same time. Where that takes more than the lower bound, the blocks that stuck out are placed
    first in another attempt; the best attempt counts, the first of equals.
    """
    order = sorted(
        range(len(blocks)), key=lambda i: (-blocks[i].size, blocks[i].lifetime.first, i)
    )
    bound = lower_bound(blocks)
    best = _greedy(blocks, order, alignment)
    offsets = best
    for _ in range(min(_ATTEMPTS, _EFFORT // max(1, len(blocks)) ** 2)):
        if extent(blocks, best) <= bound:
            break
        top = extent(blocks, offsets)
        order.sort(key=lambda i: offsets[i] + blocks[i].size < top)
        offsets = _greedy(blocks, order, alignment)
        best = min(best, offsets, key=lambda o: extent(blocks, o))
    return best


def extent(blocks: Sequence[Block], offsets: Sequence[int]) -> int:
    """Bytes from 0 to the end of the last block."""
    return max((o + b.size for o, b in zip(offsets, blocks, strict=True)), default=0)


def _greedy(blocks: Sequence[Block], order: Sequence[int], alignment: int) -> tuple[int, ...]:
    """Places the blocks in ``order``, each at the lowest offset where it fits."""
    offsets = [0] * len(blocks)
    placed: list[int] = []
    for i in order:
        taken = sorted(
            (offsets[j], offsets[j] + blocks[j].size) for j in placed
            if blocks[j].lifetime.meets(blocks[i].lifetime)
        )
        offset = 0
        for start, end in taken:
            if offset + blocks[i].size <= start:
                break
            offset = max(offset, _aligned(end, alignment))
        offsets[i] = offset
        placed.append(i)
    return tuple(offsets)


def lower_bound(blocks: Sequence[Block]) -> int:
    """Bytes that any placement needs: the largest sum of blocks needed at one time."""
    moments = {b.lifetime.first for b in blocks}
    return max(
        (
            sum(b.size for b in blocks if b.lifetime.first <= moment <= b.lifetime.last)
            for moment in moments
        ),
        default=0,
    )


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment

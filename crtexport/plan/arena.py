"""Offsets for blocks of bytes with lifetimes, such that no two needed blocks overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crtexport.plan.liveness import Lifetime


@dataclass(frozen=True)
class Block:
    """``size`` bytes, needed during ``lifetime``."""

    size: int
    lifetime: Lifetime


def place(blocks: Sequence[Block], alignment: int) -> tuple[int, ...]:
    """The offset of each block, a multiple of ``alignment``: greedy, largest first.

    Each block goes to the lowest gap between the blocks that are already placed and needed at the
    same time. Ties go to what is needed first, then to the order of ``blocks``.
    """
    offsets = [0] * len(blocks)
    placed: list[int] = []
    for i in sorted(
        range(len(blocks)), key=lambda i: (-blocks[i].size, blocks[i].lifetime.first, i)
    ):
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

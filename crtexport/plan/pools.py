"""Distributes blocks over several memories: the most accessed ones go to the fastest.

Memories are filled in their order, fastest first. Each holds the blocks with the most accesses per
byte that fit beside those already placed; the last holds all that are left.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from crtexport.plan.arena import Arena, extent, fill, place
from crtexport.plan.live_blocks import LiveBlocks

_ATTEMPTS = 8
"""The number of unplaced blocks that are tried again after a memory was packed better."""


class Spread(Struct, frozen=True):
    """The placement of blocks: (pool, offset) of each, and the bytes of each pool."""

    places: tuple[tuple[int, int], ...]
    sizes: tuple[int, ...]


def spread(
    arena: Arena | LiveBlocks, heat: Sequence[float], capacities: Sequence[int | None],
    alignment: int,
) -> Spread:
    """Places all blocks.

    ``heat`` has the accesses per byte of each block. ``capacities`` are those of the pools in
    bytes, None for no limit; the last pool's is ignored.
    """
    places: dict[int, tuple[int, int]] = {}
    sizes = []
    for pool, capacity in enumerate(capacities):
        last = pool == len(capacities) - 1
        left = [i for i in range(len(arena.sizes)) if i not in places]
        left.sort(key=lambda i: (-heat[i], -arena.sizes[i], i))
        chosen = _packed(arena, left, None if last else capacity, alignment)
        sizes.append(max((at + arena.sizes[i] for i, at in chosen.items()), default=0))
        places |= {block: (pool, at) for block, at in chosen.items()}
    return Spread(tuple(places[i] for i in range(len(arena.sizes))), tuple(sizes))


def _packed(
    arena: Arena | LiveBlocks, blocks: Sequence[int], capacity: int | None, alignment: int
) -> dict[int, int]:
    """Returns the offsets of those of ``blocks`` that fit into one pool; earlier ones take
    precedence."""
    found = fill(arena, blocks, capacity, alignment)
    found = _better(arena, found, alignment)
    tries = 0
    for block in blocks:
        if block in found or tries >= _ATTEMPTS:
            continue
        tries += 1
        more = _placed(arena, [*found, block], alignment)
        if capacity is None or _end(arena, more) <= capacity:
            found = more
    return found


def _better(arena: Arena | LiveBlocks, offsets: dict[int, int], alignment: int) -> dict[int, int]:
    """Returns better offsets for the same blocks if a new placement takes less."""
    anew = _placed(arena, list(offsets), alignment)
    return anew if _end(arena, anew) < _end(arena, offsets) else offsets


def _placed(arena: Arena | LiveBlocks, blocks: Sequence[int], alignment: int) -> dict[int, int]:
    chosen = sorted(blocks)
    return dict(zip(chosen, place(arena.only(chosen), alignment), strict=True))


def _end(arena: Arena | LiveBlocks, offsets: dict[int, int]) -> int:
    return extent([arena.sizes[i] for i in offsets], list(offsets.values()))

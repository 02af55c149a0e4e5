"""Spreads blocks over several memories: what is used most goes to the first, the rest further on.

Memories are taken in their order, fastest first. Into each go the blocks with the most accesses per
byte that find room among those already there; only the last takes whatever is left.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from crtexport.plan.arena import Arena, extent, fill, place
from crtexport.plan.crowd import Crowd

_ATTEMPTS = 8
"""The number of unplaced blocks that are tried again once a memory is packed well."""


class Spread(Struct, frozen=True):
    """The offsets of blocks: (pool, offset) of each, and the bytes that each pool takes."""

    places: tuple[tuple[int, int], ...]
    sizes: tuple[int, ...]


def spread(
    arena: Arena | Crowd, heat: Sequence[float], capacities: Sequence[int | None], alignment: int
) -> Spread:
    """Places all blocks; ``heat``: accesses per byte of each. ``capacities`` of the pools in bytes,
    None for no limit, which the last has whatever it says."""
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
    arena: Arena | Crowd, blocks: Sequence[int], capacity: int | None, alignment: int
) -> dict[int, int]:
    """The offsets of those of ``blocks``, the first before others, that fit one pool."""
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


def _better(arena: Arena | Crowd, found: dict[int, int], alignment: int) -> dict[int, int]:
    """The same blocks, placed anew if that takes less."""
    anew = _placed(arena, list(found), alignment)
    return anew if _end(arena, anew) < _end(arena, found) else found


def _placed(arena: Arena | Crowd, blocks: Sequence[int], alignment: int) -> dict[int, int]:
    chosen = sorted(blocks)
    return dict(zip(chosen, place(arena.only(chosen), alignment), strict=True))


def _end(arena: Arena | Crowd, offsets: dict[int, int]) -> int:
    return extent([arena.sizes[i] for i in offsets], list(offsets.values()))

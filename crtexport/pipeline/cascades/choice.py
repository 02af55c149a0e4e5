"""Decides which way a network is computed: with little memory, or with no more than may be."""

from __future__ import annotations

from crtexport.pipeline.cascades.ways import Made, Way, Ways

_WORTH = 10
"""Memory must shrink so many times faster than instructions grow."""
_FLASH = 8
"""Bytes of code that a byte of memory is worth."""
_TRIED = 3
"""Ways that are planned, of those that look best."""


def smallest(ways: Ways, whole: Made) -> Made:
    """Returns the way with the least memory that is worth what it costs; the ``whole`` tensors one
    after another where none is."""

    def weight(way: Way, nbytes: int) -> float:
        more = max(way.instructions, 0) / ways.instructions
        return float(nbytes * (1 + more) ** _WORTH + max(way.code, 0) / _FLASH)

    likely = sorted(ways.below(whole[1].total), key=lambda way: weight(way, way.nbytes))[:_TRIED]
    made = [(weight(way, ways.made(way)[1].total), number) for number, way in enumerate(likely)]
    least, number = min(made, default=(whole[1].total, 0))
    return ways.made(likely[number]) if least < whole[1].total else whole


def fitting(ways: Ways, whole: Made, nbytes: int) -> Made | None:
    """Returns the way of least cost that needs no more than ``nbytes``; None where none does."""
    if whole[1].total <= nbytes:
        return whole
    wanted = nbytes
    for _ in range(_TRIED):
        way = ways.within(wanted)
        if way is None:
            break
        made = ways.made(way)
        if made[1].total <= nbytes:
            return made
        wanted = min(wanted, way.nbytes) - (made[1].total - nbytes)
    cheapest = sorted(ways.below(nbytes + 1), key=lambda way: (way.instructions, way.nbytes))
    return next((
        made for made in map(ways.made, cheapest) if made[1].total <= nbytes
    ), None)


def least(ways: Ways, whole: Made) -> int:
    """Returns the bytes of the way with the least memory, whatever it costs."""
    found = ways.below(whole[1].total)[:_TRIED]
    return min([whole[1].total, *(ways.made(way)[1].total for way in found)])

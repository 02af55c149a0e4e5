"""Decides which way a network is computed: with little memory, or with no more than may be."""

from __future__ import annotations

import math

from crtexport.pipeline.cascades.ways import Made, Way, Ways

_WORTH = 10
"""Memory must shrink so many times faster than instructions grow."""
BEARABLE = 0.02
"""The part of the network's instructions that rows may take more, as estimated: counted ones were
up to one percent more then."""
BEARABLE_VECTORS = 0.07
"""The same with vectors, of which fewer lanes are full in few rows."""
_DEAR = 22
"""The percents of memory that each further percent of instructions costs more."""
_FLASH = 8
"""Bytes of code that a byte of memory is worth."""
CHEAP = 0.01
"""The part of the network's time that rows may take more where memory isn't all that matters."""
CHEAP_FLASH = 0.03
"""The part of the network's flash that they may take more."""
_SAVED = 2
"""Bytes of memory that each byte of code must save there."""
_CALL = 18
"""Bytes of code that calls a kernel."""
_CALLS = 64
"""Bytes of code that calls the kernels of a part, before it is known how often it stands there."""
_TRIED = 3
"""Ways that are planned, of those that look best."""


def smallest(ways: Ways, by_layer: Made | None = None, bearable: float = BEARABLE) -> Made | None:
    """Returns the way with the least memory that is worth what it costs; ``by_layer``, one whole
    tensor after another, where none is. None where there is neither. ``bearable``: the part of the
    network's instructions from which on more of them are worth much less."""
    most = math.inf if by_layer is None else by_layer[1].total

    def weight(way: Way, nbytes: int) -> float:
        more = max(way.instructions, 0) / ways.instructions
        return float(nbytes * (1 + more) ** _WORTH + max(way.more.code, 0) / _FLASH)

    def rank(way: Way, nbytes: int) -> float:
        more = way.instructions / ways.instructions
        return weight(way, nbytes) * (1 + _DEAR * max(more - bearable, 0))

    found = ways.below(None if by_layer is None else by_layer[1].total)
    best, least = None, math.inf
    for way in sorted(found, key=lambda way: rank(way, way.nbytes))[:_TRIED]:
        if rank(way, way.nbytes) >= least:
            break  # plans are never smaller than estimated
        made = rank(way, ways.made(way)[1].total)
        if made < least:
            best, least = way, made
    if best is None or weight(best, ways.made(best)[1].total) >= most:
        return by_layer
    return ways.made(best)


def cheap(ways: Ways, by_layer: Made) -> Made:
    """Returns the way with the least memory among those that take hardly more time and flash than
    ``by_layer``, one whole tensor after another, and save more memory than they take flash; that,
    where there is none."""
    whole_time, flash = max(ways.time_of(by_layer), 1), CHEAP_FLASH * ways.flash

    def weight(nbytes: int, longer: float, code: int) -> float:
        if longer > CHEAP or code > flash:
            return math.inf
        return nbytes * (1 + longer) ** _WORTH + _SAVED * code

    def estimated(way: Way) -> float:
        longer, code = max(way.more.time / ways.time, 0), way.more.code + _CALLS * way.parts
        return weight(way.nbytes, longer, code)

    best, least = by_layer, float(by_layer[1].total)
    found = dict.fromkeys(ways.cheap(by_layer[1].total, CHEAP * ways.time))
    for way in sorted(found, key=estimated)[:_TRIED]:
        if estimated(way) >= least:
            break  # it is hardly ever less than estimated
        made = ways.made(way)
        nbytes, longer = made[1].total, max(ways.time_of(made) / whole_time - 1, 0)
        if weight(nbytes, longer, way.more.code) >= least:
            continue
        exact = weight(nbytes, longer, way.more.code + _CALL * ways.calls(made))
        if exact < least:
            best, least = made, exact
    return best


def fitting(ways: Ways, by_layer: Made | None, nbytes: int) -> Made | None:
    """Returns the way of least cost that needs no more than ``nbytes``, which may be
    ``by_layer``, one whole tensor after another; None where none does."""
    if by_layer is not None and by_layer[1].total <= nbytes:
        return by_layer
    limit = nbytes
    for _ in range(_TRIED):
        way = ways.within(limit)
        if way is None:
            break
        made = ways.made(way)
        if made[1].total <= nbytes:
            return made
        limit = min(limit, way.nbytes) - (made[1].total - nbytes)
    cheapest = sorted(ways.below(nbytes + 1), key=lambda way: (way.instructions, way.nbytes))
    return next((
        made for made in map(ways.made, cheapest) if made[1].total <= nbytes
    ), None)


def least(ways: Ways, by_layer: Made | None) -> Made:
    """Returns the way with the least memory, whatever it costs; there must be one."""
    found = ways.below(None if by_layer is None else by_layer[1].total)[:_TRIED]
    made = [*([] if by_layer is None else [by_layer]), *map(ways.made, found)]
    return min(made, key=lambda one: one[1].total)

"""Decides for cascades of a network: those with little memory, or with no more than may be."""

from __future__ import annotations

import math

from crtexport.pipeline.cascades.search import Cascades, CascadeSearch, Made

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
"""Cascades that are planned, of those that look best."""


def smallest(
    search: CascadeSearch, by_layer: Made | None = None, bearable: float = BEARABLE
) -> Made | None:
    """Returns cascades with the least memory that is worth what it costs; ``by_layer``, one whole
    tensor after another, where none is. None where there is neither. ``bearable``: the part of the
    network's instructions from which on more of them are worth much less."""
    most = math.inf if by_layer is None else by_layer[1].total

    def weight(cascades: Cascades, nbytes: int) -> float:
        more = max(cascades.instructions, 0) / search.instructions
        return float(nbytes * (1 + more) ** _WORTH + max(cascades.more.code, 0) / _FLASH)

    def rank(cascades: Cascades, nbytes: int) -> float:
        more = cascades.instructions / search.instructions
        return weight(cascades, nbytes) * (1 + _DEAR * max(more - bearable, 0))

    found = search.below(None if by_layer is None else by_layer[1].total)
    best, least = None, math.inf
    for cascades in sorted(found, key=lambda cascades: rank(cascades, cascades.nbytes))[:_TRIED]:
        if rank(cascades, cascades.nbytes) >= least:
            break  # plans are never smaller than estimated
        made = rank(cascades, search.made(cascades)[1].total)
        if made < least:
            best, least = cascades, made
    if best is None or weight(best, search.made(best)[1].total) >= most:
        return by_layer
    return search.made(best)


def cheap(search: CascadeSearch, by_layer: Made) -> Made:
    """Returns cascades with the least memory among those that take hardly more time and flash than
    ``by_layer``, one whole tensor after another, and save more memory than they take flash; that,
    where there are none."""
    whole_time, flash = max(search.time_of(by_layer), 1), CHEAP_FLASH * search.flash

    def weight(nbytes: int, longer: float, code: int) -> float:
        if longer > CHEAP or code > flash:
            return math.inf
        return nbytes * (1 + longer) ** _WORTH + _SAVED * code

    def estimated(cascades: Cascades) -> float:
        code = cascades.more.code + _CALLS * cascades.parts
        return weight(cascades.nbytes, max(cascades.more.time / search.time, 0), code)

    best, least = by_layer, float(by_layer[1].total)
    found = dict.fromkeys(search.cheap(by_layer[1].total, CHEAP * search.time))
    for cascades in sorted(found, key=estimated)[:_TRIED]:
        if estimated(cascades) >= least:
            break  # it is hardly ever less than estimated
        made = search.made(cascades)
        nbytes, longer = made[1].total, max(search.time_of(made) / whole_time - 1, 0)
        if weight(nbytes, longer, cascades.more.code) >= least:
            continue
        exact = weight(nbytes, longer, cascades.more.code + _CALL * search.calls(made))
        if exact < least:
            best, least = made, exact
    return best


def fitting(search: CascadeSearch, by_layer: Made | None, nbytes: int) -> Made | None:
    """Returns ``by_layer``, one whole tensor after another, if it needs no more than ``nbytes``,
    else the cascades of least cost that need no more; None where there are none."""
    if by_layer is not None and by_layer[1].total <= nbytes:
        return by_layer
    limit = nbytes
    for _ in range(_TRIED):
        cascades = search.within(limit)
        if cascades is None:
            break
        made = search.made(cascades)
        if made[1].total <= nbytes:
            return made
        limit = min(limit, cascades.nbytes) - (made[1].total - nbytes)
    cheapest = sorted(search.below(nbytes + 1), key=lambda one: (one.instructions, one.nbytes))
    return next((
        made for made in map(search.made, cheapest) if made[1].total <= nbytes
    ), None)


def least(search: CascadeSearch, by_layer: Made | None) -> Made:
    """Returns the cascades with the least memory, whatever they cost; there must be some."""
    found = search.below(None if by_layer is None else by_layer[1].total)[:_TRIED]
    made = [*([] if by_layer is None else [by_layer]), *map(search.made, found)]
    return min(made, key=lambda one: one[1].total)

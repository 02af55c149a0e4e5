"""Scaling with one shift to the right for all channels, where that gives the same results.

TFLite multiplies a sum by a channel's multiplier, rounds, shifts to the right by the channel's
number of bits and rounds again. Of eight bits there are at most 255 sums from which on the result
is larger by one. ``((sum << left) + addend) * multiplier``, of which 31 bits, then ``right`` ones
are rounded off, has the same 255 for some addend and multiplier, as a rule: both have more bits
than these need. Then the shift, equal in all lanes, is a part of the instruction that narrows, the
zero point is a part of the addend, and saturation clamps.

Addends and multipliers are looked for while exporting, and proven: both functions never fall, so
that they are equal if they are at these sums and at those before. A layer for one of whose channels
none are found is scaled as TFLite does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.ir.channel_sums import Ints
from crtexport.ir.types import DType
from crtexport.lowering.numerics.requantize import Multiplier
from crtexport.support.fixedpoint import scale_in_float32

USUAL_LEFT, LEAST_LEFT, MOST_LEFT = 10, 6, 13
"""Bits that sums are shifted to the left, so that an addend can be a fraction of one. Layers with
the usual number share code."""
MOST_RIGHT = 16
"""Bits that VQRSHRN can shift by."""
_MOST_SCALED = 20
"""A larger shift has no room in 64 bits here."""
_TRIED = 100
"""Multipliers that are tried below and above the exact one."""
_FAR = 1 << 42
"""Beyond all shifted sums and addends."""
_REMEMBERED = 256
"""Layers whose scaling is remembered: each is lowered many times while a network is laid out."""
_AROUND = 3
"""Sums below and above an estimate that are looked at."""

Step = Callable[[Ints], Ints]
"""Gives the results of sums, int64[channels, sums]."""


class CommonShift(Struct, frozen=True, eq=False):
    """``left`` and ``right``: bits; ``addends`` and ``multipliers``: int64[channels]."""

    left: int
    right: int
    addends: Ints
    multipliers: Ints


class _Range(Struct, frozen=True, eq=False):
    """The reachable sums of each channel, bias included: int64[channels] each."""

    lowest: Ints
    highest: Ints


class Scaling(Struct, frozen=True):
    """The numbers by which the sums of a layer are scaled. ``sums``: the lowest and the highest
    reachable one of each channel, bias included. ``zero``: the zero point of the results, which are
    from ``low`` to ``high``. ``floats``: scaling is ONNX Runtime's, in float32."""

    multiplier: Multiplier
    sums: tuple[tuple[int, ...], tuple[int, ...]]
    zero: int
    low: int
    high: int
    floats: bool


@functools.lru_cache(_REMEMBERED)
def common_shift(scaling: Scaling) -> CommonShift | None:
    """Returns how to scale the sums of a layer; None where no such way is found."""
    zero, low, high, floats = scaling.zero, scaling.low, scaling.high, scaling.floats
    multiplier = scaling.multiplier
    sums = _Range(*(np.array(ends, np.int64) for ends in scaling.sums))
    least, largest = DType.INT8.limits
    shifts = np.broadcast_to(-np.array(multiplier.shifts, np.int64), sums.lowest.shape)
    if not (least <= low < high <= largest) or not sums.lowest.size:
        return None
    if shifts.min() < 1 or shifts.max() > _MOST_SCALED or (low < zero and not floats):
        return None
    mantissas = np.broadcast_to(np.array(multiplier.mantissas, np.int64), sums.lowest.shape)
    reals = np.ldexp(mantissas.astype(np.float64), -31 - shifts)
    wanted = np.arange(low + 1, high + 1)
    step = _in_floats(reals) if floats else _in_integers(mantissas, shifts)
    firsts = _firsts(step, reals, wanted - zero)
    if firsts is None:
        return None
    alike = len(multiplier.mantissas) == 1
    bound = int(max(abs(sums.lowest).max(), abs(sums.highest).max()))
    most = min(MOST_LEFT, 30 - bound.bit_length())
    for left in sorted({min(USUAL_LEFT, most), most}):
        right = min(MOST_RIGHT, left + int(shifts.min()))
        near = np.rint(np.ldexp(reals, 31 + right - left)).astype(np.int64)
        if left >= LEAST_LEFT:
            found = _fitted(firsts, wanted, sums, (left, right, near), alike=alike)
            if found is not None:
                return CommonShift(left, right, *found)
    return None


def _in_integers(mantissas: Ints, shifts: Ints) -> Step:
    """TFLite's scaling of sums whose results aren't negative, for right shifts."""
    halves = np.left_shift(1, shifts - 1)[:, None]

    def step(sums: Ints) -> Ints:
        high = (sums * mantissas[:, None] + (1 << 30)) >> 31
        return (high + halves) >> shifts[:, None]

    return step


def _in_floats(reals: npt.NDArray[np.float64]) -> Step:
    def step(sums: Ints) -> Ints:
        lines = zip(sums, reals.tolist(), strict=True)
        return np.stack([scale_in_float32(line, scale) for line, scale in lines])

    return step


def _firsts(step: Step, reals: npt.NDArray[np.float64], wanted: Ints) -> Ints | None:
    """The first sum whose result is at least as large as each wanted one: int64[channels, wanted];
    None where they are not where they are looked for."""
    near = np.floor((wanted[None] - 0.5) / reals[:, None]).astype(np.int64)
    firsts = near - _AROUND
    smaller = step(firsts) < wanted
    if not smaller.all():
        return None
    for _ in range(2 * _AROUND):
        firsts = firsts + smaller
        smaller &= step(firsts) < wanted
    return None if smaller.any() else firsts


def _fitted(
    firsts: Ints, wanted: Ints, sums: _Range, scaling: tuple[int, int, Ints], *, alike: bool
) -> tuple[Ints, Ints] | None:
    """An addend and a multiplier for each channel, with which results are at least as large as each
    wanted one from its first sum on. ``scaling``: bits to the left and to the right, and
    multipliers near which one is looked for; ``alike``: one for all channels."""
    left, right, near = scaling
    channels = len(near)
    least = (wanted << 31 + right) - (1 << 30) - (1 << 30 + right)
    lowest, highest = sums.lowest[:, None], sums.highest[:, None]
    # The first reachable sum with a result, if there is one, and the last one without, shifted.
    starts = np.where(firsts <= highest, np.maximum(firsts, lowest) << left, _FAR)
    stops = np.where(firsts > lowest, np.minimum(firsts - 1, highest) << left, -_FAR)
    addends, multipliers = np.zeros(channels, np.int64), near.copy()
    missing = np.arange(channels)
    for distance in sorted(range(-_TRIED, _TRIED + 1), key=abs):
        tried = near[missing] + distance
        if tried.min() < 1 or tried.max() >= 1 << 31:
            return None
        # The first value of (sum << left) + addend with the result.
        enough = -(-least // tried[:, None])
        lower = (enough - starts[missing]).max(axis=1)
        upper = (enough - 1 - stops[missing]).min(axis=1)
        fits = lower <= upper
        if alike and not fits.all():
            continue  # all have one
        where = missing[fits]
        addends[where] = (lower + upper >> 1)[fits]
        multipliers[where] = tried[fits]
        missing = missing[~fits]
        if not missing.size:
            break
    # Where scales are tiny the zero point takes a large addend.
    ends = [abs((end << left) + addends).max(initial=0) for end in (sums.lowest, sums.highest)]
    return (addends, multipliers) if max(ends) < 1 << 31 and not missing.size else None

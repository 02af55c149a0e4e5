"""Scaling with one product and one shift for all channels, where that gives the same results.

TFLite multiplies a sum by a channel's multiplier, rounds, shifts to the right by the channel's
number of bits and rounds again; ONNX Runtime does it in float32. Of eight bits there are at most
255 sums from which on the result is larger by one. ``((sum << left) + addend) * multiplier``, of
which the upper word, then ``right`` bits are cut off, has the same 255 for some addend and
multiplier, as a rule: both have more bits than these need. The zero point is a part of the addend.

Addends and multipliers are looked for while exporting, and proven: both functions never fall, so
that they are equal if they are at these sums and at those before.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.ir.types import DType
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.numerics.requantize import Multiplier
from crtexport.support.fixedpoint import Ints, Rounding, scale_in_float32

_MOST_SCALED = 20
"""A larger shift of TFLite's has no room in 64 bits here."""
_TRIED = 12
"""Multipliers that are tried below and above the exact one."""
_FAR = 1 << 42
"""Beyond all shifted sums and addends."""
REMEMBERED = 256
"""Layers whose scaling is remembered: each is lowered many times while a network is laid out."""
_AROUND = 3
"""Sums below and above an estimate that are looked at."""

class Shifts(Struct, frozen=True):
    """Numbers of bits that an instruction set's instructions leave: sums are shifted to the left by
    ``left`` bits, or by another number from ``least_left`` to ``most_left``; products to the right
    by ``right`` bits, or by up to ``most_right``. The first ones are tried first, so that layers
    share code. ``rounded``: upper words are those of doubled products, rounded, and shifts round;
    both round down otherwise."""

    left: int
    least_left: int
    most_left: int
    right: int
    most_right: int
    rounded: bool


class CommonShift(Struct, frozen=True, eq=False):
    """``left`` and ``right``: bits; ``addends``, without biases, and ``multipliers``:
    int64[channels]."""

    left: int
    right: int
    addends: Ints
    multipliers: Ints

    def __post_init__(self) -> None:
        # Several layers may share them.
        self.addends.flags.writeable = self.multipliers.flags.writeable = False


class Scaling(Struct, frozen=True):
    """Facts that decide how a layer's sums are scaled. ``sums``: the lowest and the highest
    reachable one of each channel, bias included. ``zero``: the zero point of the results, which are
    from ``low`` to ``high``. ``floats``: scaling is ONNX Runtime's, in float32."""

    multiplier: Multiplier
    sums: tuple[tuple[int, ...], tuple[int, ...]]
    zero: int
    low: int
    high: int
    floats: bool

    @staticmethod
    def of(sums: IntegerSums, zero: int, limits: tuple[int, int]) -> Scaling:
        """Returns that of the sums of a layer with int8 inputs."""
        ends = sums.folded - sums.reach, sums.folded + sums.reach
        lowest, highest = (tuple(end.tolist()) for end in ends)
        floats = sums.rounding is Rounding.FLOAT
        return Scaling(sums.multiplier, (lowest, highest), zero, *limits, floats)


@functools.lru_cache(REMEMBERED)
def common_shift(scaling: Scaling, shifts: Shifts) -> CommonShift | None:
    """Returns how to scale the sums of a layer; None where no such way is found."""
    zero, low, high, multiplier = scaling.zero, scaling.low, scaling.high, scaling.multiplier
    least, largest = DType.INT8.limits
    lowest, highest = (np.array(ends, np.int64) for ends in scaling.sums)
    rights = np.broadcast_to(-np.array(multiplier.shifts, np.int64), lowest.shape)
    mantissas = np.broadcast_to(np.array(multiplier.mantissas, np.int64), lowest.shape)
    if not (least <= low < high <= largest) or not lowest.size or mantissas.min() < 1:
        return None
    bound = int(max(abs(lowest).max(), abs(highest).max()))
    if rights.min() < 1 or rights.max() > _MOST_SCALED or bound >= 1 << 30:
        return None
    if low < zero and not scaling.floats:
        return None  # TFLite rounds halves away from zero, which no one line does
    reals = np.ldexp(mantissas.astype(np.float64), -31 - rights)
    wanted = np.arange(low + 1, high + 1)
    if scaling.floats:
        firsts = _firsts_in_floats(reals, wanted - zero)
    else:
        firsts = _firsts_in_integers(mantissas, rights, wanted - zero)
    if firsts is None:
        return None
    for left, right in _pairs(shifts, bound, int(rights.min())):
        search = _ShiftSearch(wanted, firsts, (lowest, highest), left, right, shifts.rounded)
        found = search.found(reals, alike=len(multiplier.mantissas) == 1)
        if found is not None:
            return CommonShift(left, right, *found)
    return None


def _pairs(shifts: Shifts, bound: int, right: int) -> list[tuple[int, int]]:
    """Returns the numbers of bits to try, to the left and to the right. ``bound``: the largest
    magnitude of a sum; ``right``: by how many bits TFLite shifts at least."""
    pairs = []
    most_left = min(shifts.most_left, 30 - bound.bit_length())
    for left in sorted({min(shifts.left, most_left), most_left}):
        if left >= shifts.least_left:
            most_right = min(shifts.most_right, left + right - (not shifts.rounded))
            pairs += [(left, each) for each in sorted({min(shifts.right, most_right), most_right})]
    return [(left, right) for left, right in pairs if right > 0]


def _firsts_in_integers(mantissas: Ints, rights: Ints, wanted: Ints) -> Ints:
    """Returns the first sum that TFLite scales to at least each wanted multiple, above 0:
    int64[channels, wanted]."""
    highs = (2 * wanted - 1) << rights[:, None] - 1
    firsts: Ints = -(((1 << 30) - (highs << 31)) // mantissas[:, None])
    return firsts


def _firsts_in_floats(reals: npt.NDArray[np.float64], wanted: Ints) -> Ints | None:
    """Returns the same of ONNX Runtime's scaling, of any sign; None where they are not where they
    are looked for."""
    def results(sums: Ints) -> Ints:
        lines = zip(sums, reals.tolist(), strict=True)
        return np.stack([scale_in_float32(line, scale) for line, scale in lines])

    near = np.floor((wanted[None] - 0.5) / reals[:, None]).astype(np.int64)
    firsts = near - _AROUND
    smaller = results(firsts) < wanted
    if not smaller.all():
        return None
    for _ in range(2 * _AROUND):
        firsts = firsts + smaller
        smaller &= results(firsts) < wanted
    return None if smaller.any() else firsts


class _ShiftSearch:
    """A search for addends and multipliers with which results are at least as large as each wanted
    one from its first sum on: ``firsts``, int64[channels, wanted]; ``sums``: the lowest and the
    highest of each channel."""

    def __init__(
        self, wanted: Ints, firsts: Ints, sums: tuple[Ints, Ints], left: int, right: int,
        rounded: bool,
    ) -> None:
        self._places = (31 if rounded else 32) + right
        self._left, self._sums = left, sums
        halves = (1 << 30) + (1 << 30 + right) if rounded else 0
        self._least = (wanted << self._places) - halves
        lowest, highest = (end[:, None] for end in sums)
        # The first reachable sum with a result, if there is one, and the last one without, shifted.
        reached = np.maximum(firsts, lowest) << left
        missed = np.minimum(firsts - 1, highest) << left
        self._starts = np.where(firsts <= highest, reached, _FAR)
        self._stops = np.where(firsts > lowest, missed, -_FAR)

    def found(
        self, reals: npt.NDArray[np.float64], *, alike: bool
    ) -> tuple[Ints, Ints] | None:
        """Returns an addend and a multiplier for each channel, that nearest to ``reals``; None if
        one has none. ``alike``: one multiplier for all channels."""
        exact = np.ldexp(reals, self._places - self._left)
        # By how much the results of the largest sums may move: a 128th of one for each trial.
        apart = np.maximum(np.ldexp(exact * reals, -15), 1)
        addends, multipliers = np.zeros(len(reals), np.int64), np.rint(exact).astype(np.int64)
        missing = np.arange(len(reals))
        for distance in sorted(range(-_TRIED, _TRIED + 1), key=abs):
            tried = np.rint(exact[missing] + distance * apart[missing]).astype(np.int64)
            if tried.min() < 1 or tried.max() >= 1 << 31:
                return None
            # The first value of (sum << left) + addend with the result.
            enough = -(-self._least // tried[:, None])
            lower = (enough - self._starts[missing]).max(axis=1)
            upper = (enough - 1 - self._stops[missing]).min(axis=1)
            fits = lower <= upper
            if alike and not fits.all():
                continue
            where = missing[fits]
            addends[where] = (lower + upper >> 1)[fits]
            multipliers[where] = tried[fits]
            missing = missing[~fits]
            if not missing.size:
                break
        # Where scales are tiny the zero point takes a large addend.
        ends = [abs((end << self._left) + addends).max() for end in self._sums]
        return (addends, multipliers) if max(ends) < 1 << 31 and not missing.size else None

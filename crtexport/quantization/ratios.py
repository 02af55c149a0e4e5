"""The error of quantized tensors beside their signal; the samples that it is measured on.

Imported by workers, in a Python of their own: nothing here needs more than NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Arrays = dict[str, Any]


CANDIDATES = 3  # layers that are tried for the hint
HINT_SAMPLES = 64
ENOUGH = 30.0  # dB: outputs with less error, 3 % of the signal, need no hint
GAIN = 3.0  # dB, half of the error, that a layer must be worth
CLEAN = 60.0  # dB: what a layer is given that isn't measured, or has no error


class RefusedError(Exception):
    """The user's input can't be taken. Arguments: the problem, its place, what to do."""


class Samples:
    """The calibration data, one sample after the other; what the library calls a reader."""

    def __init__(self, names: list[str], path: str) -> None:
        with np.load(path, allow_pickle=False) as archive:
            self.arrays = {name: archive[str(i)] for i, name in enumerate(names)}
        self.count = min(map(len, self.arrays.values()), default=0)
        self.next = 0

    def get_next(self) -> Arrays | None:
        self.next += 1
        return self.at(self.next - 1) if self.next <= self.count else None

    def at(self, index: int) -> Arrays:
        return {name: array[index] for name, array in self.arrays.items()}

    def each(self, most: int | None = None) -> Iterator[Arrays]:
        """Yields all samples, or ``most`` of them, evenly spaced."""
        count = self.count if most is None else min(most, self.count)
        for index in np.linspace(0, self.count - 1, count).astype(int):
            yield self.at(index)


class Error:
    """Energy of a tensor and of its error, by channel, over all samples that were added."""

    def __init__(self, axis: int) -> None:
        self.axis = axis
        self.signal: Any = 0.0
        self.noise: Any = 0.0

    def add(self, exact: Any, quantized: Any) -> None:
        exact, quantized = np.asarray(exact, np.float64), np.asarray(quantized, np.float64)
        others = tuple(i for i in range(exact.ndim) if i != self.axis % max(exact.ndim, 1))
        self.signal = self.signal + np.square(exact).sum(axis=others)
        self.noise = self.noise + np.square(exact - quantized).sum(axis=others)

    @property
    def sqnr(self) -> float:
        return decibels(np.sum(self.signal), np.sum(self.noise))

    def channels(self) -> list[tuple[float, int]]:
        """Returns the ratios of channels that have a signal, and their numbers."""
        return [
            (decibels(signal, noise), channel) for channel, (signal, noise)
            in enumerate(zip(np.ravel(self.signal), np.ravel(self.noise))) if signal > 0
        ]

    @property
    def typical(self) -> float:
        """Returns the ratio that half of the channels don't reach."""
        found = sorted(ratio for ratio, _ in self.channels())
        return found[len(found) // 2] if found else self.sqnr

    def worst(self) -> tuple[int, float] | None:
        """Returns the channel with the largest error beside its signal; None without a signal."""
        found = self.channels()
        return (min(found)[1], min(found)[0]) if found else None


def lost(result: Error, inputs: list[Error]) -> float:
    """Returns by how many dB the result of a layer is worse than the worst of what it was given: as
    a whole, or in a typical channel, where that is more, since one channel that is much larger than
    the others hides their errors."""
    whole = min((CLEAN, *(one.sqnr for one in inputs))) - result.sqnr
    typical = min((CLEAN, *(one.typical for one in inputs))) - result.typical
    return max(whole, typical)


def best_hint(
    before: float, floats: list[tuple[float, str]], words: list[tuple[float, str]],
    all_words: Callable[[], float] | None,
) -> dict[str, Any] | None:
    """Returns what takes the outputs from ``before`` dB furthest: one layer in 16 bits, or in float
    where that is worth GAIN more; where no layer is worth GAIN, all in 16 bits; None where that
    isn't either. ``floats`` and ``words`` are ratios with one layer more in float or 16 bits."""
    tried = [(after, name, 32) for after, name in floats]
    tried += [(after, name, 16) for after, name in words]
    best = max(tried, key=lambda one: one[0] + (GAIN if one[2] == 16 else 0), default=None)
    if best is None or best[0] < before + GAIN:
        best = None if all_words is None else (all_words(), "", 16)
    if best is None or not (math.isfinite(best[0]) and best[0] >= before + GAIN):
        return None
    after, name, bits = best
    return {"layer": name, "before": before, "after": after, "bits": bits}


def decibels(signal: float, noise: float) -> float:
    """Returns the ratio of two energies in dB: inf without noise, -inf without a signal, nan where
    either isn't finite."""
    if noise == 0:
        return math.inf
    with np.errstate(all="ignore"):
        return float(10 * np.log10(np.divide(signal, noise)))


def ratios(error: Error) -> dict[str, Any]:
    """Returns the ratios of signal to error in dB; None for an infinite one."""
    worst = error.worst()
    return {
        "sqnr": finite(error.sqnr), "channel": None if worst is None else worst[0],
        "channel_sqnr": None if worst is None else finite(worst[1]),
    }


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

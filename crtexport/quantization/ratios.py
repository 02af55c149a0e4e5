"""The error of quantized tensors beside their signal; the samples that it is measured on.

Imported by workers, in a Python of their own: nothing here needs more than NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

Arrays = dict[str, Any]


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
        """All samples, or ``most`` of them, evenly spaced."""
        count = self.count if most is None else min(most, self.count)
        for index in np.linspace(0, self.count - 1, count).astype(int):
            yield self.at(index)


class Error:
    """Energy of a tensor and of its error, by channel, over all samples that were added."""

    def __init__(self, axis: int) -> None:
        self.axis = axis
        self.signal: Any = 0.0
        self.noise: Any = 0.0

    def add(self, exact: Any, found: Any) -> None:
        exact, found = np.asarray(exact, np.float64), np.asarray(found, np.float64)
        others = tuple(i for i in range(exact.ndim) if i != self.axis % max(exact.ndim, 1))
        self.signal = self.signal + np.square(exact).sum(axis=others)
        self.noise = self.noise + np.square(exact - found).sum(axis=others)

    @property
    def sqnr(self) -> float:
        return decibels(np.sum(self.signal), np.sum(self.noise))

    def worst(self) -> tuple[int, float] | None:
        """Returns the channel with the largest error beside its signal; None without a signal."""
        found = [
            (decibels(signal, noise), channel) for channel, (signal, noise)
            in enumerate(zip(np.ravel(self.signal), np.ravel(self.noise))) if signal > 0
        ]
        return (min(found)[1], min(found)[0]) if found else None


def decibels(signal: float, noise: float) -> float:
    """Returns the ratio of two energies in dB: inf without noise, -inf without a signal, nan where
    either isn't finite."""
    if noise == 0:
        return math.inf
    with np.errstate(all="ignore"):
        return float(10 * np.log10(np.divide(signal, noise)))


def ratios(error: Error) -> dict[str, Any]:
    """The ratios of signal to error in dB; None for an infinite one."""
    worst = error.worst()
    return {
        "sqnr": finite(error.sqnr), "channel": None if worst is None else worst[0],
        "channel_sqnr": None if worst is None else finite(worst[1]),
    }


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

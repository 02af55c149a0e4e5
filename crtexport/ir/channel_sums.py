"""Sums over the channels of constants of any size, with one window of the constant in memory at a
time."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from crtexport.ir.types import ConstantRef, TensorType

Ints = npt.NDArray[np.int64]

_NARROW = 1 << 15
_BYTES = 1 << 22
"""The most bytes, less a zero point, whose sum fits 32 bits."""


def channel_sums(
    constant: ConstantRef, type_: TensorType, axis: int, zero: int = 0
) -> tuple[Ints, Ints]:
    """Returns the sums of w - ``zero``, and of its magnitude, over each slice of ``axis``, as
    int64.

    For integers of at most 16 bits, of which no more than 2**46 are in a slice.
    """
    channels, inner = type_.shape[axis], math.prod(type_.shape[axis + 1 :])
    sums, magnitudes = np.zeros(channels, np.int64), np.zeros(channels, np.int64)
    at = 0
    for chunk in constant.chunks():
        values = np.frombuffer(chunk, type_.dtype.numpy).astype(np.int32)
        values -= np.int32(zero)
        if inner * channels <= _NARROW:
            which = np.arange(at, at + len(values)) // inner % channels
            sums += _by_channel(which, values, channels)
            magnitudes += _by_channel(which, np.abs(values), channels)
        else:
            starts, which = _runs(at, len(values), inner, channels)
            # Additions that needn't be widened take a tenth of the time.
            small = type_.dtype.itemsize == 1 and len(values) <= _BYTES
            total = np.int32 if small else np.int64
            np.add.at(sums, which, np.add.reduceat(values, starts, dtype=total))
            np.abs(values, out=values)
            np.add.at(magnitudes, which, np.add.reduceat(values, starts, dtype=total))
        at += len(values)
    return sums, magnitudes


def _by_channel(which: npt.NDArray[np.int64], values: npt.NDArray[np.int32], count: int) -> Ints:
    """Few channels whose values may alternate; doubles hold such sums of a chunk exactly."""
    totals = np.bincount(which, values, count)
    result: Ints = totals.astype(np.int64)
    return result


def _runs(at: int, count: int, inner: int, channels: int) -> tuple[Ints, Ints]:
    """Returns the positions, from ``at`` on, where the channel changes, and the channel after each.
    """
    first = at // inner
    edges = np.arange(first, (at + count - 1) // inner + 1, dtype=np.int64)
    return np.maximum(edges * inner - at, 0), edges % channels

"""Operators of audio front ends in NumPy's and Python's whole numbers, from their definitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

CHANNELS = {
    1: np.array([900, 7, 32767, 20000, 1, 5], np.int16),
    2: np.array([0, 32760, 1, 400, 30, 9], np.int16), 3: np.array([1, 0, 4, 2], np.int16),
    4: np.array([0, 2, 3, 3], np.int16), 5: np.array([2, 1, 0, 3], np.int16),
}
"""Constants of a filter bank of three channels and one more in front: weights, complements, first
bins, first weights, widths."""


def window(shift: int) -> Callable[[Array, Array], Array]:
    return lambda x, w: np.clip(
        x.astype(np.int64) * w >> shift, -(1 << 15), (1 << 15) - 1
    ).astype(np.int16)


def fft_auto_scale(x: Array) -> tuple[Array, Array]:
    """So far that the largest magnitude stays below 2**15."""
    largest = int(np.abs(x.astype(np.int64)).max())
    bits = 15 - largest.bit_length() if largest else 0
    return (x.astype(np.int64) << bits).astype(np.int16), np.array(bits, np.int32)


def energy(start: int, end: int) -> Callable[[Array], Array]:
    def compute(x: Array) -> Array:
        bins = (x.reshape(-1, 2).astype(np.int64) ** 2).sum(1)
        inside = (np.arange(len(bins)) >= start) & (np.arange(len(bins)) < end)
        return np.where(inside, bins, 0).astype(np.uint32)

    return compute


def filter_bank(x: Array, *tables: Array) -> Array:
    weights, complements, starts, firsts, widths = (table.astype(np.int64) for table in tables)
    result = np.zeros(len(starts) - 1, np.int64)
    for channel, (start, first, width) in enumerate(zip(starts, firsts, widths, strict=True)):
        bins, own = x[start : start + width].astype(np.int64), slice(first, first + width)
        if channel:
            result[channel - 1] += bins @ weights[own]
        if channel < len(result):
            result[channel] += bins @ complements[own]
    return result


def square_root(x: Array, bits: Array) -> Array:
    def root(value: int) -> int:
        found = math.isqrt(max(value, 0))
        found += value - found * found > found
        return min(found, 0xFFFF if value < 1 << 32 else 0xFFFFFFFF) >> (int(bits) & 31)

    return np.array([root(int(value)) for value in x], np.uint32)


def log(output_scale: int, correction_bits: int) -> Callable[[Array], Array]:
    """The real numbers, from which lines between 128 points of each octave differ by little."""
    def compute(x: Array) -> Array:
        scaled = (x.astype(np.uint64) << correction_bits) & 0xFFFFFFFF
        return np.minimum(output_scale * np.log(np.maximum(scaled, 1)), (1 << 15) - 1)

    return compute


def log_in_lines(output_scale: int) -> Callable[[Array], Array]:
    """The same numbers as TensorFlow Lite Micro has them: integers, with lines of 16 places."""
    steps = np.arange(129) / 128
    bulge = np.round((np.log2(1 + steps) - steps) * 65536).astype(np.int64).tolist()

    def one(value: int) -> int:
        if value < 2:
            return 0
        whole = value.bit_length() - 1
        fraction = (value << 16 >> whole) - 65536
        line, within = divmod(fraction, 512)
        bent = (bulge[line + 1] - bulge[line]) * within >> 16
        log2 = (whole << 16) + fraction + bulge[line] + bent
        natural = log2 * 45426 + 32768 >> 16
        return int(min(natural * output_scale + 32768 >> 16, 32767))

    return lambda x: np.array([one(int(value)) for value in x.reshape(-1)], np.int16)


def spectral_subtraction(
    weights: tuple[int, int, int, int], least: int, places: int, bits: int, *, clamping: bool
) -> Callable[[Array, Array], tuple[Array, Array]]:
    """``weights``: of the number and of the noise before, in even channels, then in odd ones."""
    def compute(x: Array, before: Array) -> tuple[Array, Array]:
        result, noise = [], []
        for i, (value, former) in enumerate(zip(x.tolist(), before.tolist(), strict=True)):
            own, other = weights[2 * (i & 1) : 2 * (i & 1) + 2]
            scaled = (value << places) % (1 << 32)
            estimate = ((scaled * own + former * other) >> bits) % (1 << 32)
            within = min(estimate, scaled)
            result.append(max((scaled - within) >> places, (value * least >> bits) % (1 << 32)))
            noise.append(within if clamping else estimate)
        return np.array(result, np.uint32), np.array(noise, np.uint32)

    return compute


GAINS = {2: (np.arange(125) * 137 % 9000 - 1000).astype(np.int16)}


def pcan(snr_shift: int) -> Callable[[Array, Array, Array], Array]:
    def gain(level: int, table: list[int]) -> int:
        if level <= 2:
            return table[level]
        bits = level.bit_length()
        fraction = (level << 11 >> bits) & 0x3FF
        c0, c1, c2 = table[4 * bits - 6 : 4 * bits - 3]
        parabola = ((c2 * fraction >> 5) + (c1 << 5)) * fraction
        return (((parabola + (1 << 14)) >> 15) + c0 + (1 << 15)) % (1 << 16) - (1 << 15)

    def shrunk(value: int, factor: int) -> int:
        ratio = (value * (factor % (1 << 32)) >> snr_shift) % (1 << 32)
        return ratio * ratio >> 20 if ratio < 2 << 12 else (ratio >> 6) - (1 << 6)

    def compute(x: Array, noise: Array, table: Array) -> Array:
        gains = [gain(level, table.tolist()) for level in noise.tolist()]
        return np.array(list(map(shrunk, x.tolist(), gains)), np.uint32)

    return compute


def rfft(length: int) -> Callable[[Array], Array]:
    def compute(x: Array) -> Array:
        bins = np.fft.rfft(x, length)
        return np.stack([bins.real, bins.imag], -1).reshape(*x.shape[:-1], length + 2)

    return compute


def irfft(length: int) -> Callable[[Array], Array]:
    def compute(x: Array) -> Array:
        pairs = x.reshape(*x.shape[:-1], -1, 2)
        return np.fft.irfft(pairs[..., 0] + 1j * pairs[..., 1], length)

    return compute


def overlap_add(step: int) -> Callable[[Array, Array], tuple[Array, Array]]:
    def compute(x: Array, before: Array) -> tuple[Array, Array]:
        *outer, count, size = x.shape
        total = np.zeros((*outer, count * step + size - step), x.dtype)
        total[..., : size - step] = before
        for i in range(count):
            total[..., i * step : i * step + size] += x[..., i, :]
        return total[..., : count * step], total[..., count * step :]

    return compute

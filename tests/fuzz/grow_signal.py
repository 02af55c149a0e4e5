"""Nodes of audio front ends."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crtexport.ir import ops
from crtexport.ir.ops import Op
from crtexport.ir.types import DType, TensorType
from tests.fuzz.growing import F32, I16, I32, I64, Growing, full

U32 = DType.UINT32


def _samples(g: Growing) -> int:
    return g.pick((I16,), lambda t: full(t) and bool(t.shape))


def _numbers(g: Growing, dtype: DType = U32) -> int:
    """A vector of whole numbers."""
    return g.pick((dtype,), full, rank=1)


def window(g: Growing) -> None:
    x = _samples(g)
    weights = g.fresh(TensorType(I16, g.type(x).shape[-1:]))
    g.add(ops.Window(g.draw.integer(0, 31)), x, weights)


def fft_auto_scale(g: Growing) -> None:
    g.add(ops.FftAutoScale(), _samples(g))


def energy(g: Growing) -> None:
    x = g.pick((I16,), lambda t: full(t) and t.elements % 2 == 0, rank=1)
    bins = g.type(x).elements // 2
    start = g.draw.integer(0, bins)
    g.add(ops.Energy(start, g.draw.integer(start, bins)), x)


def filter_bank(g: Growing) -> None:
    x, rng = _numbers(g), g.draw.numpy()
    bins, channels = g.type(x).elements, g.draw.integer(1, 5)
    widths = rng.integers(0, bins + 1, channels + 1)
    total = max(int(widths.sum()), 1)
    tables = (
        rng.integers(0, 1 << 15, total), rng.integers(0, 1 << 15, total),
        rng.integers(0, bins - widths + 1), np.cumsum(widths) - widths, widths,
    )
    g.add(ops.FilterBank(), x, *(g.constant(table, dtype=I16) for table in tables))


def square_root(g: Growing) -> None:
    g.add(ops.FilterBankSquareRoot(), _numbers(g, I64), g.fresh(TensorType(I32, ()), (0, 15)))


def log(g: Growing) -> None:
    g.add(ops.FilterBankLog(g.draw.choice((1, 64, 70000)), g.draw.integer(0, 31)), _numbers(g))


def _transformed(g: Growing, wanted: Callable[[TensorType], bool]) -> int:
    return g.pick((F32, I16, I32), lambda t: full(t) and bool(t.shape) and wanted(t))


def rfft(g: Growing) -> None:
    x = _transformed(g, lambda t: t.shape[-1] <= _LENGTHS[-1])
    given = g.type(x).shape[-1]
    g.add(ops.Rfft(g.draw.choice([n for n in _LENGTHS if n >= given])), x)


def irfft(g: Growing) -> None:
    x = _transformed(g, lambda t: t.shape[-1] - 2 in _LENGTHS)
    g.add(ops.Irfft(g.type(x).shape[-1] - 2), x)


def spectral_subtraction(g: Growing) -> None:
    x = _numbers(g)
    shares = [g.draw.integer(0, 1 << 14) for _ in range(5)]
    places, clamping = g.draw.integer(0, 31), g.draw.chance(50)
    op = ops.FilterBankSpectralSubtraction(*shares, places, g.draw.integer(0, 32), clamping)
    g.add(op, x, g.fresh(TensorType(U32, g.type(x).shape)))


def pcan(g: Growing) -> None:
    x, gains = _numbers(g), g.fresh(TensorType(I16, (125,)))
    g.add(ops.Pcan(g.draw.integer(0, 32)), x, g.fresh(TensorType(U32, g.type(x).shape)), gains)


def overlap_add(g: Growing) -> None:
    x = g.pick((F32, I16), lambda t: full(t) and len(t.shape) > 1)
    *outer, _, size = g.type(x).shape
    step = g.draw.integer(1, size)
    g.add(ops.OverlapAdd(step), x, g.fresh(TensorType(g.type(x).dtype, (*outer, size - step))))


_LENGTHS = (4, 6, 8, 10, 12, 16, 18, 24, 30, 32)
"""Of transforms, in their order."""

PRODUCERS: dict[type[Op], Callable[[Growing], None]] = {
    ops.Window: window, ops.FftAutoScale: fft_auto_scale, ops.Energy: energy,
    ops.FilterBank: filter_bank, ops.FilterBankSquareRoot: square_root, ops.FilterBankLog: log,
    ops.Rfft: rfft, ops.Irfft: irfft, ops.FilterBankSpectralSubtraction: spectral_subtraction,
    ops.Pcan: pcan, ops.OverlapAdd: overlap_add,
}

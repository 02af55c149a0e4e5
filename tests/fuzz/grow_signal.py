"""Nodes of audio front ends."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crtexport.ir import ops
from crtexport.ir.ops import Op
from crtexport.ir.types import DType, TensorType
from tests.fuzz.growing import I16, I32, I64, Growing, full

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


PRODUCERS: dict[type[Op], Callable[[Growing], None]] = {
    ops.Window: window, ops.FftAutoScale: fft_auto_scale, ops.Energy: energy,
    ops.FilterBank: filter_bank, ops.FilterBankSquareRoot: square_root, ops.FilterBankLog: log,
}

"""The real values that quantized tensors can have, as bars on one axis."""

from __future__ import annotations

import math

from msgspec import Struct

from crtexport.reports.figures import Report
from crtexport.reports.page.words import real, shape


class RowRange(Struct, frozen=True):
    """The range of a tensor's real values. ``left`` and ``width`` are in percent of the axis. Its
    distances from zero are square roots of the values, so that small ranges are visible beside
    large ones."""

    name: str
    type: str
    scale: str
    zero_point: str
    low: str
    high: str
    left: str
    width: str


class RangeTable(Struct, frozen=True):
    """All ranges, and zero in percent of the axis."""

    rows: tuple[RowRange, ...]
    zero: str


def ranges(report: Report) -> RangeTable:
    """Returns the ranges of all quantized tensors, in the report's order."""
    in_order = sorted(report.tensors, key=lambda tensor: tensor.first)
    quantized = [(one, one.quantization) for one in in_order if one.quantization is not None]
    ends = [_root(end) for _, quant in quantized for end in (quant.low, quant.high)]
    low, high = min((*ends, 0.0)), max((*ends, 0.0))
    width = (high - low) or 1

    def at(value: float) -> float:
        return 100 * (_root(value) - low) / width

    return RangeTable(tuple(
        RowRange(
            tensor.name, shape(tensor.dtype, tensor.shape),
            real(quant.scale[0]) if quant.channels == 1 else f"{quant.channels} scales",
            str(quant.zero_point[0]) if quant.channels == 1 else "",
            real(quant.low), real(quant.high), f"{at(quant.low):.2f}",
            f"{max(at(quant.high) - at(quant.low), 0.5):.2f}",
        )
        for tensor, quant in quantized
    ), f"{at(0):.2f}")


def _root(value: float) -> float:
    return math.copysign(math.sqrt(abs(value)), value) if math.isfinite(value) else 0.0

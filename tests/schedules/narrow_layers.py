"""Layers whose weights fit 4 or 2 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.schedules.layers import Integer, Layers

Array = np.ndarray[Any, Any]
RANGES = {"int4": (4, -8, 7), "int2": (2, -2, 1), "ternary": (2, -1, 1)}
"""The bits of weights, the smallest and the largest."""
TYPES = ("int8", "int16", "float32")


class NarrowLayers(Layers):
    """Layers of ``dtype`` and int8 weights in a range, with scales of their own for the channels.
    """

    sides, units, taps, dilations = 6, 19, 3, (2, 2)

    def __init__(self, integer: Integer, seed: int, weights: str, dtype: str = "int8") -> None:
        super().__init__(integer, seed)
        self.range, self.dtype = RANGES[weights], dtype

    def channels(self, kind: str) -> int:
        return self.integer(1, 13)

    def tensor(self, shape: tuple[int, ...]) -> int:
        if self.dtype == "float32":
            return self.m.tensor(self.name(), shape)
        zero = 0 if self.dtype == "int16" else int(self.rng.integers(-128, 128))
        scale = 0.05 if self.dtype == "int8" else 1 / 8192
        return self.m.tensor(self.name(), shape, self.dtype, scale=scale, zero_point=zero)

    def weights(self, shape: tuple[int, ...], axis: int) -> list[int | None]:
        units, (_, low, high) = shape[axis], self.range
        data = self.rng.integers(low, high + 1, shape)
        if self.integer(0, 3) == 0:
            data = self.rng.choice([low, high], shape)
        data.flat[0] = low  # so that it takes all bits
        several = self.dtype != "float32" and units > 1
        scales = self.rng.uniform(0.005, 0.3, units if several else 1).astype(np.float32)
        along: dict[str, Any] = {"axis": axis} if several else {}
        w = self.m.tensor(
            self.name(), shape, "int8", scale=scales.tolist(), data=data, **along
        )
        if self.dtype == "float32":
            return [w, self.m.tensor(self.name(), (units,), data=self.rng.normal(size=units))]
        scale = 0.05 if self.dtype == "int8" else 1 / 8192
        bias = self.m.tensor(
            self.name(), (units,), "int32" if self.dtype == "int8" else "int64",
            scale=[float(s) * scale for s in scales], data=self.rng.integers(-500, 500, units),
            **({"axis": 0} if several else {}),
        )
        return [w, bias]

    def values(self, shape: tuple[int, ...]) -> Array:
        if self.dtype == "float32":
            return self.rng.normal(size=shape).astype(np.float32)
        limits = np.iinfo(self.dtype)
        if self.integer(0, 3) == 0:
            return self.rng.choice([limits.min, limits.max], shape).astype(self.dtype)
        return self.rng.integers(limits.min, limits.max + 1, shape).astype(self.dtype)

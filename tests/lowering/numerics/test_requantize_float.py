"""Sums are scaled as float32 arithmetic does it, next to halves and anywhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crtexport.lowering.numerics.requantize import Multiplier
from crtexport.support.fixedpoint import Rounding, scale_in_float32
from tests.lowering.numerics.test_requantize import scaled

Array = np.ndarray[Any, Any]


def next_to_halves(rng: np.random.Generator, scale: float, count: int, bound: int) -> Array:
    """Sums whose product with the scale is as near a half as there are whole numbers, and others
    around them; half of them negative."""
    steps = rng.integers(0, 300, count) + 0.5
    sums = np.rint(steps / scale) + rng.integers(-1, 2, count)
    chosen = np.where(rng.random(count) < 0.5, sums, rng.integers(0, bound, count))
    return np.clip(chosen * rng.choice((-1, 1), count), -bound, bound).astype(np.int64)


def plain(sums: Array, scale: float) -> Array:
    """As ONNX Runtime does: in NumPy's float32."""
    return np.rint(sums.astype(np.float32) * np.float32(scale))


@pytest.mark.parametrize("bound", [(1 << 24) - 1, (1 << 31) - 1])
def test_integers_give_what_float32_does(bound: int) -> None:
    rng = np.random.default_rng(bound)
    for _ in range(12):
        scales = [float(np.float32(2.0 ** -rng.uniform(-2, 28))) for _ in range(2)]
        sums = np.concatenate([next_to_halves(rng, s, 100, bound) for s in scales])
        found = scaled(Multiplier.of(scales), bound, sums.tolist(), Rounding.FLOAT)
        for row, scale in zip(found, scales, strict=True):
            np.testing.assert_array_equal(
                np.clip(row, -300, 300), np.clip(plain(sums, scale), -300, 300), str(scale)
            )
            np.testing.assert_array_equal(
                scale_in_float32(sums, scale), plain(sums, scale).astype(np.int64), str(scale)
            )

"""Sums of integers decide on ONNX Runtime's averages of floats, or say that they don't."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.ir.types import Quantization
from crtexport.lowering.numerics.real_average import AverageSteps, average_steps

Array = np.ndarray[Any, Any]
LIMITS = -128, 127
BYTES = st.integers(*LIMITS)


def of_onnx_runtime(cells: Array, source: Quantization, target: Quantization, less: int) -> Array:
    """``QLinearPool2DTask`` in NumPy's float32; cells are (windows, count)."""
    real = (cells.astype(np.int64) - source.zero_point[0]).astype(np.float32)
    real *= np.float32(source.scale[0])
    total = np.zeros(len(cells), np.float32)
    for column in real.T:
        total += column
    steps = total / np.float32(real.shape[1]) / np.float32(target.scale[0])
    moved = np.rint(steps + np.float32(target.zero_point[0] + less)).astype(np.int64) - less
    return np.clip(moved, *LIMITS)


def by_sums(found: AverageSteps, cells: Array) -> tuple[Array, Array]:
    """The results, and where they are decided."""
    whole = (cells.astype(np.int64).sum(axis=1) << found.places) + found.addend
    high = whole * found.factor >> 32
    ends = [np.clip(high + side >> found.shift, *LIMITS) for side in (-found.margin, found.margin)]
    return ends[0], ends[0] == ends[1]


def windows(rng: np.random.Generator, count: int, zero: int, ratio: float) -> Array:
    """Of count cells, more than half of them with sums next to the middle of two results."""
    cells = rng.integers(-128, 128, (4000, count))
    wanted = np.rint((rng.integers(-100, 100, len(cells)) + 0.5) * count / ratio) + zero * count
    more = wanted.astype(np.int64) - cells.sum(axis=1)
    for column in range(count):
        moved = np.clip(cells[:, column] + more, -128, 127)
        more -= moved - cells[:, column]
        cells[:, column] = np.where(np.arange(len(cells)) % 4 == 0, cells[:, column], moved)
    return rng.permuted(cells, axis=1)


@settings(max_examples=60)
@given(
    st.floats(2.0**-8, 1.0, width=32), st.one_of(st.none(), st.floats(0.3, 3.0)),
    BYTES, BYTES, st.sampled_from([0, 128]), st.integers(2, 30), st.integers(0, 99),
)
def test_decided_averages_are_onnx_runtimes(
    scale: float, ratio: float | None, zero: int, zero_out: int, less: int, count: int, seed: int
) -> None:
    """``ratio``: of the scales; None: both tensors have the same scale and zero point."""
    source = Quantization((scale,), (zero,))
    target = source if ratio is None else Quantization(
        (float(np.float32(scale / ratio)),), (zero_out,)
    )
    found = average_steps(source, target, count, less, LIMITS)
    assert found is not None
    cells = windows(np.random.default_rng(seed), count, zero, ratio or 1.0)
    results, decided = by_sums(found, cells)
    wanted = of_onnx_runtime(cells, source, target, less)
    np.testing.assert_array_equal(results[decided], wanted[decided])
    assert decided.all() or not found.decided
    anywhere = np.random.default_rng(seed).integers(-128, 128, (4000, count))
    assert by_sums(found, anywhere)[1].mean() > 0.3


@pytest.mark.parametrize("count", [3, 9, 15, 25])
def test_odd_windows_on_one_scale_need_no_floats(count: int) -> None:
    quant = Quantization((0.0371,), (-128,))
    found = average_steps(quant, quant, count, 128, LIMITS)
    assert found is not None
    assert found.decided


def test_halves_of_even_windows_are_left_to_floats() -> None:
    quant = Quantization((0.0371,), (-128,))
    found = average_steps(quant, quant, 4, 128, LIMITS)
    assert found is not None
    cells = np.array([[0, 0, 1, 1], [0, 0, 0, 1], [3, 3, 3, 3]])
    assert by_sums(found, cells)[1].tolist() == [False, True, True]

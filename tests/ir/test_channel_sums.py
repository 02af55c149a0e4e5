"""Sums over channels, window by window, are those of the whole array."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtexport.ir.channel_sums import channel_sums
from crtexport.ir.types import ConstantRef, DType, TensorType


def _expected(
    values: np.ndarray[tuple[int, ...], np.dtype[np.generic]], axis: int, zero: int
) -> tuple[list[int], list[int]]:
    others = tuple(a for a in range(values.ndim) if a != axis)
    shifted = values.astype(np.int64) - zero
    return shifted.sum(axis=others).tolist(), np.abs(shifted).sum(axis=others).tolist()


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 3),
    st.sampled_from([DType.INT8, DType.UINT8, DType.INT16]), st.integers(-128, 127),
    st.integers(0, 99),
)
def test_any_shape_and_axis(
    shape: list[int], axis: int, dtype: DType, zero: int, seed: int
) -> None:
    axis %= len(shape)
    low, high = dtype.limits
    rng = np.random.default_rng(seed)
    values = rng.integers(low, high, shape, endpoint=True).astype(dtype.value)
    found = channel_sums(ConstantRef.of(values), TensorType(dtype, tuple(shape)), axis, zero)
    assert tuple(part.tolist() for part in found) == _expected(values, axis, zero)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((3, 1500000), 0), ((70001, 31), 0), ((1, 2, 300001), 0), ((2, 50001, 7), 1),
     ((1, 3, 3, 40000), 3), ((1, 300, 300, 8), 3)],
)
def test_windows_that_end_anywhere(shape: tuple[int, ...], axis: int) -> None:
    values = np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "weights"
        path.write_bytes(b"abc" + values.tobytes())
        constant = ConstantRef(values.nbytes, path=path, offset=3)
        found = channel_sums(constant, TensorType(DType.INT8, shape), axis, 3)
    assert tuple(part.tolist() for part in found) == _expected(values, axis, 3)

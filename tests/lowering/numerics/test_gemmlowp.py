"""Fixed-point functions in Kernel IR: equal to their exact integer forms, and near to the truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crtexport.kir import interpreter
from crtexport.kir.builder import KernelBuilder, load
from crtexport.kir.language import Expr, Scalar
from crtexport.kir.verifier import verify
from crtexport.lowering.numerics.gemmlowp import inverse_root, log_of_sum, saturating_shl
from crtexport.support.fixedpoint import inverse_sqrt_multiplier

Array = npt.NDArray[Any]
Function = Callable[[KernelBuilder, Expr], tuple[Expr, ...]]


def run(function: Function, values: list[int], results: int = 1) -> list[Array]:
    """The results of ``function`` for each value."""
    b = KernelBuilder("probe")
    source = b.buffer("x", Scalar.I32, len(values))
    targets = [b.buffer("y", Scalar.I32, len(values), writable=True) for _ in range(results)]
    with b.loop("i", len(values)) as i:
        for target, result in zip(targets, function(b, load(source, i)), strict=True):
            b.store(target, i, result)
    kernel = b.finish()
    verify(kernel)
    outputs = [np.zeros(len(values), np.int32) for _ in range(results)]
    interpreter.run(kernel, [np.array(values, np.int32), *outputs])
    return outputs


def sums() -> list[int]:
    rng = np.random.default_rng(3)
    powers = [1 << n for n in range(31)]
    anything = (rng.integers(0, 1 << 31, 200) >> rng.integers(0, 31, 200)).tolist()
    return [0, 1, 2, 3, (1 << 31) - 1, *powers, *(p - 1 for p in powers), *anything]


def test_inverse_roots_equal_the_exact_ones() -> None:
    values = sums()
    roots, rights = run(inverse_root, values, 2)
    expected = [inverse_sqrt_multiplier(v) for v in values]
    assert roots.tolist() == [m for m, _ in expected]
    assert rights.tolist() == [-shift for _, shift in expected]


@pytest.mark.parametrize("value", [2, 3, 7, 1000, 65025, (1 << 29) - 1, 1 << 29, (1 << 31) - 1])
def test_inverse_roots_are_near_the_truth(value: int) -> None:
    mantissa, shift = inverse_sqrt_multiplier(value)
    assert math.ldexp(mantissa, shift - 31) == pytest.approx(value**-0.5, rel=2e-6)


def test_logarithms_of_sums_are_near_the_truth() -> None:
    values = [1 << 19, (1 << 19) + 1, 3 << 18, 5 << 19, 12345 << 10, 1000 << 19, (1 << 31) - 1]
    (logs,) = run(lambda b, x: (log_of_sum(b, x),), values)
    expected = [math.log(v / (1 << 19)) for v in values]
    np.testing.assert_allclose(logs / (1 << 26), expected, atol=2e-6)


def test_shifts_saturate() -> None:
    values = [0, 1, -1, (1 << 28) - 1, 1 << 28, -(1 << 28), -(1 << 28) - 1, (1 << 31) - 1]
    (got,) = run(lambda b, x: (saturating_shl(b, x, 3),), values)
    low, high = -(1 << 31), (1 << 31) - 1
    assert got.tolist() == [min(max(v << 3, low), high) for v in values]

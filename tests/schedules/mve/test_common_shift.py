"""Scaling with one shift for all channels gives what the two roundings of TFLite give, and the
float32 of ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crtexport.lowering.numerics.requantize import Multiplier
from crtexport.schedules.mve.common_shift import CommonShift, Scaling, common_shift
from crtexport.support.fixedpoint import Rounding, multiply_by_quantized_multiplier

Array = np.ndarray[Any, Any]


def drawn(seed: int, *, floats: bool, relu: bool) -> Scaling:
    """A layer's scaling: channels whose scales differ up to eightfold."""
    rng = np.random.default_rng(seed)
    channels = int(rng.integers(1, 7))
    many = rng.random() < 0.8
    scales = (2.0 ** -rng.uniform(5, 8, channels if many else 1)).tolist()
    zero = int(rng.integers(-128, 128))
    low, high = (zero, int(rng.integers(zero + 1, 129))) if relu and zero < 127 else (-128, 127)
    bias, reach = rng.integers(-20_000, 20_000, channels), rng.integers(1, 200_000, channels)
    return Scaling(
        Multiplier.of(scales), (tuple((bias - reach).tolist()), tuple((bias + reach).tolist())),
        zero, low, min(high, 127), floats,
    )


def expected(scaling: Scaling, sums: Array, channel: int) -> list[int]:
    numbers = scaling.multiplier
    which = channel if len(numbers.mantissas) > 1 else 0
    rounding = Rounding.FLOAT if scaling.floats else Rounding.DOUBLE
    scaled = (
        multiply_by_quantized_multiplier(
            value, numbers.mantissas[which], numbers.shifts[which], rounding
        )
        for value in sums.tolist()
    )
    return [min(max(value + scaling.zero, scaling.low), scaling.high) for value in scaled]


def computed(found: CommonShift, scaling: Scaling, sums: Array, channel: int) -> list[int]:
    """What the instructions do: VMLA, VQRDMULH, VQRSHRN and VQMOVN."""
    shifted = (sums << found.left) + found.addends[channel]
    assert abs(shifted).max() < 1 << 31
    high = (shifted * found.multipliers[channel] + (1 << 30)) >> 31
    halves = np.clip((high + (1 << found.right - 1)) >> found.right, -(1 << 15), (1 << 15) - 1)
    results: list[int] = np.clip(halves, scaling.low, scaling.high).tolist()
    return results


def looked_at(scaling: Scaling, channel: int, rng: np.random.Generator) -> Array:
    """Sums near those at which results change, the ends, and others."""
    low, high = (ends[channel] for ends in scaling.sums)
    reals = scaling.multiplier.reals
    scale = float(reals[channel if len(reals) > 1 else 0])
    steps = (np.arange(-256, 256) + 0.5) / scale
    near = (np.rint(steps)[:, None] + np.arange(-2, 3)).astype(np.int64).reshape(-1)
    some = rng.integers(low, high + 1, 50)
    return np.unique(np.concatenate([near[(near >= low) & (near <= high)], some, [low, high]]))


@pytest.mark.parametrize(
    ("floats", "relu"), [(False, True), (True, True), (True, False)],
    ids=["two roundings", "float32, clamped", "float32"],
)
def test_results_are_the_same(floats: bool, relu: bool) -> None:
    found = 0
    for seed in range(16):
        scaling = drawn(seed, floats=floats, relu=relu)
        common = common_shift(scaling)
        if common is None:
            continue
        found += 1
        for channel in range(len(scaling.sums[0])):
            sums = looked_at(scaling, channel, np.random.default_rng(seed))
            assert computed(common, scaling, sums, channel) == expected(scaling, sums, channel)
    assert found >= 10


def test_what_rounds_negative_results_otherwise_is_refused() -> None:
    scaling = drawn(3, floats=False, relu=False)
    assert scaling.low < scaling.zero
    assert common_shift(scaling) is None


@pytest.mark.parametrize(("scale", "reach"), [(0.01, 1 << 25), (1.5, 1000), (2.0**-25, 1 << 20)])
def test_what_has_no_room_is_refused(scale: float, reach: int) -> None:
    """Sums too large to be shifted to the left, scales from one on, and tiny ones."""
    scaling = Scaling(Multiplier.of([scale]), ((-reach,), (reach,)), -128, -128, 127, False)
    assert common_shift(scaling) is None


def test_channels_with_one_multiplier_keep_one() -> None:
    scaling = Scaling(
        Multiplier.of([0.007]), ((-90_000, -80_000, -70_000), (90_000, 80_000, 95_000)),
        -128, -128, 127, False,
    )
    found = common_shift(scaling)
    assert found is not None
    assert len(set(found.multipliers.tolist())) == 1

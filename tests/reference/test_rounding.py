"""The reference runtimes scale sums down, on scales that are powers of two: ties abound.

``Rounding`` and what ``verify`` compares with rest on these facts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crtexport.simulation.runtimes import RuntimeName
from crtexport.support.fixedpoint import (
    Rounding,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
)
from tests.helpers import reference
from tests.tflite_builder import ModelBuilder

Array = npt.NDArray[Any]

OUTPUT_SCALE = 64.0
SUMS = np.arange(-127 * 60, 127 * 60 + 1, 60, dtype=np.int64)[:, None] + np.arange(60)
SUMS = SUMS[:-1]  # every integer once; in units of 1/64 of an output step


def convolution(kind: str) -> bytes:
    """One input channel times 60, plus a bias of 0..59: SUMS, scaled to steps of 64."""
    model = ModelBuilder()
    weights = np.full((60, 1), 60)
    if kind == "FULLY_CONNECTED":
        x = model.tensor("x", (254, 1), "int8", scale=1.0)
        w = model.tensor("w", (60, 1), "int8", scale=1.0, data=weights)
        y = model.tensor("y", (254, 60), "int8", scale=OUTPUT_SCALE)
    else:
        x = model.tensor("x", (1, 254, 1, 1), "int8", scale=1.0)
        w = model.tensor(
            "w", (60, 1, 1, 1), "int8", scale=1.0, data=weights.reshape(60, 1, 1, 1)
        )
        y = model.tensor("y", (1, 254, 1, 60), "int8", scale=OUTPUT_SCALE)
    b = model.tensor("b", (60,), "int32", scale=1.0, data=np.arange(60))
    model.op(kind, [x, w, b], [y])
    return model.build([x], [y])


def run(kind: str, runtime: RuntimeName) -> Array:
    """The runtime's outputs for SUMS."""
    model = reference(convolution(kind), runtime)
    x = np.arange(-127, 127).astype(np.int8).reshape(model.inputs[0].shape)
    (output,) = model.run([x])
    return output.reshape(SUMS.shape)


def doubly_rounded() -> Array:
    multiplier, shift = quantize_multiplier(1 / OUTPUT_SCALE)
    rounded = [
        multiply_by_quantized_multiplier(int(value), multiplier, shift, Rounding.DOUBLE)
        for value in SUMS.flat
    ]
    return np.clip(np.reshape(rounded, SUMS.shape), -128, 127)


def halves_away_from_zero() -> Array:
    real = np.abs(SUMS) / OUTPUT_SCALE
    return np.clip(np.sign(SUMS) * np.floor(real + 0.5), -128, 127).astype(np.int64)


@pytest.mark.parametrize("kind", ["CONV_2D", "FULLY_CONNECTED"])
def test_tflite_runtime_rounds_twice(kind: str) -> None:
    np.testing.assert_array_equal(run(kind, "tflite-runtime"), doubly_rounded())


def test_litert_rounds_convolutions_twice() -> None:
    np.testing.assert_array_equal(run("CONV_2D", "ai-edge-litert"), doubly_rounded())


def test_litert_rounds_fully_connected_layers_once_with_halves_away_from_zero() -> None:
    result = run("FULLY_CONNECTED", "ai-edge-litert")
    np.testing.assert_array_equal(result, halves_away_from_zero())
    assert (result != doubly_rounded()).any()

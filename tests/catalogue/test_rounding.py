"""Evaluation in double precision, and what it says of networks that magnify rounding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crtexport.importers import load
from tests.catalogue.rounding import Distances, distances
from tests.catalogue.wide import UnknownOperatorError, evaluate
from tests.differential.cases import CASES, SeededDraw
from tests.tflite_builder import ModelBuilder, run_reference

EVALUATED = (
    "add", "conv_2d", "depthwise_conv_2d", "div", "exp", "fully_connected", "log", "logistic",
    "max_pool_2d", "mean", "mul", "pad", "pow_", "prelu", "relu", "relu6", "resize_bilinear",
    "rsqrt", "sqrt", "squared_difference", "sub", "tanh", "transpose_conv_2d",
)


@pytest.mark.parametrize("name", EVALUATED)
def test_double_precision_is_near_to_the_reference(name: str, tmp_path: Path) -> None:
    path, evaluated = tmp_path / "model.tflite", 0
    for seed in range(12):
        case = CASES[name](SeededDraw(seed), "float32")
        path.write_bytes(case.content)
        try:
            found = evaluate(load(path), case.inputs)
        except UnknownOperatorError:  # convolutions of groups, and depth multipliers
            continue
        evaluated += 1
        for wide, single in zip(found, run_reference(case.content, *case.inputs), strict=True):
            scale = max(float(np.abs(single).max(initial=0)), 1e-3)
            np.testing.assert_allclose(wide, single, rtol=0, atol=1e-5 * scale)
    assert evaluated


def test_what_magnifies_rounding_is_told_from_what_is_wrong(tmp_path: Path) -> None:
    """A layer with a large bias, which is taken off again: the reference rounds sums to its digits.
    """
    rng, m = np.random.default_rng(5), ModelBuilder()
    weights, bias = rng.standard_normal((32, 16)), np.full(32, 5000.0)
    x, y, result = m.tensor("x", (1, 16)), m.tensor("y", (1, 32)), m.tensor("result", (1, 32))
    w, b = m.tensor("w", (32, 16), data=weights), m.tensor("b", (32,), data=bias)
    m.op("FULLY_CONNECTED", [x, w, b], [y])
    m.op("SUB", [y, b], [result])
    path = tmp_path / "model.tflite"
    path.write_bytes(m.build([x], [result]))
    found = distances(path, "tflite", 3)
    assert found
    (distance,) = found
    assert distance.is_rounding
    assert distance.theirs > 1e-5


@pytest.mark.parametrize(("ours", "theirs", "expected"), [
    (2e-5, 1e-5, True), (2e-5, 1e-6, False), (1e-8, 2e-3, False), (2e-3, 2e-3, False),
    (float("inf"), 1e-5, False),
])
def test_rounding_is_small_and_of_the_references_size(
    ours: float, theirs: float, expected: bool
) -> None:
    assert Distances(ours, theirs).is_rounding == expected


def test_what_nothing_evaluates_in_double_precision_has_no_distances(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(CASES["softmax"](SeededDraw(1), "float32").content)
    assert distances(path, "tflite", 1) is None

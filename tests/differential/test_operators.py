"""Every operator: the interpreted kernel gives what TensorFlow Lite's reference kernels give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crtexport.importers import load
from tests.differential.cases import CASES, PAIRS, SeededDraw
from tests.differential.network import interpret
from tests.tflite_builder import run_reference

FLOAT_TOLERANCE = 1e-5  # of full scale


SCALED = [pair for pair in PAIRS if pair[1] not in ("int32", "int64", "bool", "uint32")]
"""Those whose elements stand for real numbers: each type is computed with in its own way."""
CHECKS = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)


@pytest.mark.parametrize(("name", "dtype"), SCALED)
@settings(max_examples=30, suppress_health_check=CHECKS)
@given(seed=st.integers(0, 2**32 - 1))
def test_kernel_equals_the_reference(name: str, dtype: str, tmp_path: Path, seed: int) -> None:
    compare(name, dtype, tmp_path / "model.tflite", seed)


@pytest.mark.parametrize(("name", "dtype"), [pair for pair in PAIRS if pair not in SCALED])
@settings(max_examples=15, suppress_health_check=CHECKS)
@given(seed=st.integers(0, 2**32 - 1))
def test_plain_numbers_are_those_of_the_reference(
    name: str, dtype: str, tmp_path: Path, seed: int
) -> None:
    """The same shapes are drawn of each type, and nothing of these is scaled: fewer will do."""
    compare(name, dtype, tmp_path / "model.tflite", seed)


def compare(name: str, dtype: str, path: Path, seed: int) -> None:
    case = CASES[name](SeededDraw(seed), dtype)
    path.write_bytes(case.content)
    expected = run_reference(case.content, *case.inputs)
    got = interpret(load(path), case.inputs)
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.shape == theirs.shape
        if theirs.dtype == np.float32:
            full_scale = max(float(np.abs(theirs).max(initial=0)), 1e-3)
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=FLOAT_TOLERANCE * full_scale)
        else:
            np.testing.assert_array_equal(ours, theirs)

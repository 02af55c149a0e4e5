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


@pytest.mark.parametrize(("name", "dtype"), PAIRS)
@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**32 - 1))
def test_kernel_equals_the_reference(name: str, dtype: str, tmp_path: Path, seed: int) -> None:
    case = CASES[name](SeededDraw(seed), dtype)
    path = tmp_path / "model.tflite"
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

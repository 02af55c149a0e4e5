"""Every operator: the interpreted kernel gives what TensorFlow Lite's reference kernels give."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crtexport.importers import load
from tests.differential.cases import CASES, PAIRS
from tests.differential.network import interpret
from tests.tflite_builder import run_reference

FLOAT_TOLERANCE = 1e-5  # of full scale


class HypothesisDraw:
    """Choices from Hypothesis, so that a failure shrinks to a small network."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def integer(self, low: int, high: int) -> int:
        return self._data.draw(st.integers(low, high))

    def choice(self, options: Sequence[Any]) -> Any:
        return self._data.draw(st.sampled_from(list(options)))


@pytest.mark.parametrize(("name", "dtype"), PAIRS)
@settings(
    max_examples=40, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_kernel_equals_the_reference(
    name: str, dtype: str, tmp_path: Path, data: st.DataObject
) -> None:
    case = CASES[name](HypothesisDraw(data), dtype)
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

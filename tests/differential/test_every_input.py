"""Operators that map each 8-bit number to another, for every number there is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crtexport.importers import load
from tests.differential.network import interpret
from tests.helpers import reference
from tests.tflite_builder import ModelBuilder, run_reference

SCALES = ((0.01, 0.01), (0.05, 0.02), (0.05, 0.11), (0.09, 0.03), (0.3, 0.3), (1.3, 0.7))
"""Of input and output."""
FIXED = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)}
"""Scale and zero point that the output must have, of int8."""


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize(("operator", "dtype"), [
    (operator, dtype) for operator in ("HARD_SWISH", "LOGISTIC", "TANH", "ELU", "LEAKY_RELU")
    for dtype in ("int8", "uint8") if (operator, dtype) != ("ELU", "uint8")
])
def test_every_number_becomes_what_the_reference_says(
    operator: str, dtype: str, scales: tuple[float, float], tmp_path: Path
) -> None:
    low = 0 if dtype == "uint8" else -128
    values = np.arange(low, low + 256).astype(dtype).reshape(1, 256)
    for zeros in ((low + 128, low + 100), (low + 3, low + 128), (low + 250, low + 20)):
        m = ModelBuilder()
        x = m.tensor("x", values.shape, dtype, scale=scales[0], zero_point=zeros[0])
        scale, zero = scales[1], zeros[1]
        if operator in FIXED:
            scale, zero = FIXED[operator][0], FIXED[operator][1] + low + 128
        y = m.tensor("y", values.shape, dtype, scale=scale, zero_point=zero)
        options = {"alpha": 0.17} if operator == "LEAKY_RELU" else {}
        versions = {"version": 1} if operator in ("HARD_SWISH", "ELU") else {}
        m.op(operator, [x], [y], **options, **versions)
        content = m.build([x], [y])
        (tmp_path / "net.tflite").write_bytes(content)
        (found,) = interpret(load(tmp_path / "net.tflite"), [values])
        np.testing.assert_array_equal(found, run_reference(content, values)[0])


def test_every_number_is_negated_as_litert_does(tmp_path: Path) -> None:
    """tflite-runtime 2.14 has no NEG of int8."""
    values = np.arange(-128, 128).astype(np.int8)
    m = ModelBuilder()
    x, y = (m.tensor(name, values.shape, "int8", scale=0.1) for name in "xy")
    m.op("NEG", [x], [y], version=1)
    content = m.build([x], [y])
    (tmp_path / "net.tflite").write_bytes(content)
    (found,) = interpret(load(tmp_path / "net.tflite"), [values])
    (expected,) = reference(content, "ai-edge-litert").run([values])
    np.testing.assert_array_equal(found, expected)

"""Operators that map each 8-bit or int16 number to another, for every number there is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crtexport.importers import load
from crtexport.ir.numerics import Numerics
from crtexport.simulation.runtimes import RuntimeName
from tests.differential.backends import assert_backends_agree
from tests.differential.network import interpret, steps
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


def elementwise(
    operator: str, dtype: str, scales: tuple[float, float], zeros: tuple[int, int], count: int
) -> bytes:
    """One operator over ``count`` numbers."""
    m = ModelBuilder()
    x, y = (
        m.tensor(name, (1, count), dtype, scale=scale, zero_point=zero)
        for name, scale, zero in zip("xy", scales, zeros, strict=True)
    )
    m.op(operator, [x], [y], version=1)
    return m.build([x], [y])


@pytest.mark.parametrize("scales", [(0.01, 0.01), (0.05, 0.02), (2.0**-11, 2.0**-12), (1.3, 0.7)])
@pytest.mark.parametrize(("operator", "dtype", "runtime"), [
    ("LOG", "int8", "ai-edge-litert"), ("LOG", "int16", "ai-edge-litert"),
    ("SQRT", "int8", "ai-edge-litert"), ("SQRT", "int16", "ai-edge-litert"),
    ("RSQRT", "int16", "ai-edge-litert"), ("RSQRT", "int16", "tflite-micro"),
    ("GELU", "int16", "ai-edge-litert"),
])
def test_every_number_becomes_what_the_runtime_that_has_it_says(
    operator: str, dtype: str, runtime: RuntimeName, scales: tuple[float, float], tmp_path: Path
) -> None:
    """tflite-runtime 2.14 has none of these. Roots of negative numbers are refused by all."""
    limits = np.iinfo(dtype)
    zeros = (-100, 7) if dtype == "int8" else (0, 0)
    least = zeros[0] if operator in ("SQRT", "RSQRT") else limits.min
    values = np.arange(least, limits.max + 1).astype(dtype)[None]
    content = elementwise(operator, dtype, scales, zeros, values.size)
    (tmp_path / "net.tflite").write_bytes(content)
    numerics = Numerics.TFLM if runtime == "tflite-micro" else Numerics.LITERT
    (found,) = interpret(load(tmp_path / "net.tflite", numerics=numerics), [values])
    (expected,) = reference(content, runtime).run([values])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("numerics", [Numerics.LITERT, Numerics.TFLM])
@pytest.mark.parametrize("operator", ["LOG", "SQRT", "RSQRT", "GELU"])
def test_functions_of_int16_are_equal_in_all_backends(
    operator: str, numerics: Numerics, tmp_path: Path
) -> None:
    """Of negative numbers, too."""
    values = np.random.default_rng(5).integers(-(2**15), 2**15, (1, 200)).astype(np.int16)
    values[0, :4] = -(2**15), 0, 1, 2**15 - 1
    content = elementwise(operator, "int16", (0.003, 0.002), (0, 0), values.size)
    (tmp_path / "net.tflite").write_bytes(content)
    graph = load(tmp_path / "net.tflite", numerics=numerics)
    assert_backends_agree(list(steps(graph, {graph.inputs[0]: values})), tmp_path)

"""Softmax over rows so long that the runtimes' fixed-point arithmetic ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crtexport.importers import load
from crtexport.support.errors import CrtExportError
from tests.differential.network import interpret
from tests.tflite_builder import ModelBuilder, run_reference

Array = npt.NDArray[Any]


def network(elements: int, source: str = "int8", target: str = "int8") -> bytes:
    scales = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (
        (1 / 32768, 0) if source == "int16" else (1 / 65536, -32768)
    )}
    m = ModelBuilder()
    x = m.tensor("x", (1, elements), source, scale=0.1, zero_point=0)
    scale, zero = scales[target]
    y = m.tensor("y", (1, elements), target, scale=scale, zero_point=zero)
    m.op("SOFTMAX", [x], [y], beta=1.0)
    return m.build([x], [y])


def result(content: bytes, x: Array, folder: Path) -> Array:
    (folder / "net.tflite").write_bytes(content)
    (got,) = interpret(load(folder / "net.tflite"), [x])
    return got


@pytest.mark.parametrize("elements", [511, 512, 5000])
def test_rows_with_one_large_number_are_those_of_the_reference(
    elements: int, tmp_path: Path
) -> None:
    x = np.full((1, elements), -100, np.int8)
    x[0, 7:20] = np.arange(100, 113)
    content = network(elements)
    np.testing.assert_array_equal(result(content, x, tmp_path), run_reference(content, x)[0])


@pytest.mark.parametrize("largest", [1, 255, 256, 257, 300, 400, 510, 511])
def test_long_rows_are_those_of_the_reference_where_fewer_than_512_are_large(
    largest: int, tmp_path: Path
) -> None:
    """With 256 and more of them the shift is by 31 bits, of which the runtimes are still sure."""
    x = np.full((1, 1000), -128, np.int8)
    x[0, 100 : 100 + largest] = 120
    content = network(1000)
    np.testing.assert_array_equal(result(content, x, tmp_path), run_reference(content, x)[0])


@pytest.mark.parametrize(("dtype", "low"), [("int8", -128), ("uint8", 0)])
@pytest.mark.parametrize("elements", [511, 512, 4095, 4096, 9000])
def test_of_many_equal_numbers_each_is_nothing(
    elements: int, dtype: str, low: int, tmp_path: Path
) -> None:
    x = np.full((1, elements), 100, dtype)
    exact = np.full((1, elements), low + (1 if elements < 512 else 0), dtype)
    content = network(elements, dtype, dtype)
    got = result(content, x, tmp_path)
    np.testing.assert_array_equal(got, exact)
    if elements < 512:  # from there on the runtimes shift by more than 31 bits
        np.testing.assert_array_equal(got, run_reference(content, x)[0])


@pytest.mark.parametrize(
    ("source", "most"), [("int8", 4095), ("int16", 65535)]
)
def test_rows_whose_sums_may_not_fit_are_refused(
    source: str, most: int, tmp_path: Path
) -> None:
    x = np.full((1, most), 100, source)
    content = network(most, source, "int16")
    got = result(content, x, tmp_path)
    np.testing.assert_array_equal(got, run_reference(content, x)[0])
    with pytest.raises(CrtExportError, match=f"at most 4095 .*found {most + 1}"):
        result(network(most + 1, source, "int16"), np.full((1, most + 1), 1, source), tmp_path)

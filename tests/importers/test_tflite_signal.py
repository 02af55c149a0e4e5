"""Operators of TensorFlow Lite Micro's signal library that can't be exported are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crtexport.importers import load
from crtexport.ir.types import DType
from crtexport.lowering.operator_table import check
from crtexport.lowering.registry import Context
from crtexport.support.errors import CrtExportError
from tests.differential.cases_signal import signal
from tests.tflite_builder import ModelBuilder


def window(shift: int) -> bytes:
    m = ModelBuilder()
    x, w, y = (m.tensor(name, (3,), "int16") for name in "xwy")
    signal(m, "Window", [x, w], [y], shift=shift)
    return m.build([x, w], [y])


def bank(weights: list[int], widths: list[int], channels: int = 2) -> bytes:
    """A filter bank over 4 bins."""
    m = ModelBuilder()
    x, y = m.tensor("x", (4,), "uint32"), m.tensor("y", (2,), "uint64")
    tables = [
        m.tensor(f"t{i}", (len(table),), "int16", data=table)
        for i, table in enumerate((weights, weights, [0, 0, 0], [0, 1, 2], widths))
    ]
    signal(m, "FilterBank", [x, *tables], [y], num_channels=channels)
    return m.build([x], [y])


def root_of_input() -> bytes:
    m = ModelBuilder()
    x, y = m.tensor("x", (4,), "uint64"), m.tensor("y", (4,), "uint32")
    bits = m.tensor("bits", (), "int32")
    signal(m, "FilterBankSquareRoot", [x, bits], [y])
    return m.build([x, bits], [y])


def energy(end: int) -> bytes:
    m = ModelBuilder()
    x, y = m.tensor("x", (6,), "int16"), m.tensor("y", (3,), "uint32")
    signal(m, "Energy", [x], [y], start_index=1, end_index=end)
    return m.build([x], [y])


def problems(content: bytes, folder: Path) -> str:
    """Returns what keeps a network from being exported; "" where nothing does."""
    path = folder / "model.tflite"
    path.write_bytes(content)
    try:
        graph = load(path)
    except CrtExportError as error:
        return str(error)
    return "; ".join(line for node in graph.nodes for line in check(Context(graph, node)))


@pytest.mark.parametrize(("make", "expected"), [
    (lambda: window(32), "must be from 0 to 31"),
    (lambda: bank([1, -2, 3, 4], [1, 2, 2]), "found negative weights"),
    (lambda: bank([1, 2, 3, 4], [1, 5, 2]), "found channels beyond the 4 bins"),
    (lambda: bank([1, 2, 3, 4], [1, 2, 3]), "found channels beyond the 4 weights"),
    (lambda: bank([1, 2, 3, 4], [1, -2, 1]), "found negative numbers of bins or weights"),
    (lambda: bank([1, 2, 3, 4], [1, 2, 2], 3), "3 channels have tables of 3"),
    (root_of_input, "the element type UINT64 is not supported"),
    (lambda: energy(4), "bins 1 to 4 of int16"),
])
def test_what_would_not_be_as_in_the_library_is_refused(
    make: Callable[[], bytes], expected: str, tmp_path: Path
) -> None:
    assert expected in problems(make(), tmp_path)


def test_sums_of_64_bits_are_signed(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(bank([1, 2, 3, 4], [1, 2, 2]))
    graph = load(path)
    assert graph.type(graph.outputs[0]).dtype is DType.INT64
    assert not problems(path.read_bytes(), tmp_path)

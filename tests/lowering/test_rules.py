"""Rules of operators look at each tensor of a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from crtexport.importers import load
from crtexport.lowering.operator_table import check
from crtexport.lowering.registry import Context
from tests.tflite_builder import ModelBuilder


@pytest.mark.parametrize("place", range(3))
def test_int16_has_no_zero_point_anywhere(place: int, tmp_path: Path) -> None:
    m = ModelBuilder()
    x, w, y = (
        m.tensor(name, (4,), "int16", scale=0.1, zero_point=5 if number == place else 0)
        for number, name in enumerate("xwy")
    )
    m.op("MUL", [x, w], [y])
    (tmp_path / "m.tflite").write_bytes(m.build([x, w], [y]))
    graph = load(tmp_path / "m.tflite")
    assert any("found 5" in problem for problem in check(Context(graph, graph.nodes[0])))


@pytest.mark.parametrize(("depth", "fits"), [(33025, True), (33026, False)])
def test_squares_of_a_row_that_is_normalized_fit_32_bits(
    depth: int, fits: bool, tmp_path: Path
) -> None:
    m = ModelBuilder()
    x = m.tensor("x", (1, depth), "int8", scale=0.1)
    y = m.tensor("y", (1, depth), "int8", scale=1 / 128)
    m.op("L2_NORMALIZATION", [x], [y])
    (tmp_path / "m.tflite").write_bytes(m.build([x], [y]))
    graph = load(tmp_path / "m.tflite")
    problems = check(Context(graph, graph.nodes[0]))
    assert any("found 33026" in problem for problem in problems) is not fits


def test_rows_of_floats_that_are_normalized_may_be_longer(tmp_path: Path) -> None:
    m = ModelBuilder()
    x, y = (m.tensor(name, (1, 33026)) for name in "xy")
    m.op("L2_NORMALIZATION", [x], [y])
    (tmp_path / "m.tflite").write_bytes(m.build([x], [y]))
    graph = load(tmp_path / "m.tflite")
    assert not check(Context(graph, graph.nodes[0]))

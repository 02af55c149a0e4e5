"""Shapes and indices that a .tflite file computes are known when it has been read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crtexport.importers import load
from crtexport.ir.graph import Graph
from crtexport.ir.ops import BroadcastTo, Reshape, Slice
from crtexport.passes import run
from crtexport.support.errors import CrtExportError
from tests.differential.network import interpret
from tests.tflite_builder import ModelBuilder, run_reference


def load_bytes(folder: Path, content: bytes) -> Graph:
    path = folder / "model.tflite"
    path.write_bytes(content)
    return load(path)


def given(m: ModelBuilder, name: str, values: Any, dtype: str = "int32") -> int:
    array = np.array(values)
    return m.tensor(name, array.shape, dtype, data=array)


def test_a_shape_that_is_put_together_steers_a_slice_and_a_broadcast(tmp_path: Path) -> None:
    """SHAPE, STRIDED_SLICE, MUL and PACK, as converters write ``tf.shape(x)[1] * 2``."""
    m = ModelBuilder()
    x = m.tensor("x", (2, 3, 4))
    shape = m.tensor("shape", (3,), "int32")
    m.op("SHAPE", [x], [shape], out_type=2)
    middle = m.tensor("middle", (), "int32")
    m.op(
        "STRIDED_SLICE",
        [shape, given(m, "b", [1]), given(m, "e", [2]), given(m, "s", [1])], [middle],
        begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0, shrink_axis_mask=1,
    )
    double = m.tensor("double", (), "int32")
    m.op("MUL", [middle, given(m, "two", 2)], [double])
    less = m.tensor("less", (), "int32")
    m.op("SUB", [middle, given(m, "one", 1)], [less])
    size = m.tensor("size", (3,), "int32")
    m.op("PACK", [given(m, "first", 1), less, given(m, "last", -1)], [size], values_count=3)
    part = m.tensor("part", (1, 2, 4))
    m.op("SLICE", [x, given(m, "begin", [1, 1, 0]), size], [part])
    wide = m.tensor("wide", (4,), "int32")
    m.op("CONCATENATION", [given(m, "five", [5]), given(m, "rest", [1, 2, 4])], [wide], axis=0)
    y = m.tensor("y", (5, 1, 2, 4))
    m.op("BROADCAST_TO", [part, wide], [y], version=2)
    out = m.tensor("out", (6,), "int32")
    m.op("FILL", [given(m, "dims", [6]), double], [out])
    content = m.build([x], [y, out])
    graph = load_bytes(tmp_path, content)
    assert [type(node.op) for node in graph.nodes] == [Slice, BroadcastTo]
    data = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    simplified = run(graph)
    assert [type(node.op) for node in simplified.nodes] == [Slice, BroadcastTo, Reshape]
    for ours, theirs in zip(
        interpret(simplified, [data]), run_reference(content, data), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [
        ("int32", (0, 5, 1)), ("int32", (2, 9, 3)), ("int32", (5, -3, -2)), ("int64", (-4, 4, 3)),
        ("float32", (0.0, 1.0, 0.1)), ("float32", (1.0, -2.0, -0.7)),
    ],
)
def test_ranges(dtype: str, numbers: tuple[float, ...], tmp_path: Path) -> None:
    m = ModelBuilder()
    inputs = [given(m, f"n{i}", n, dtype) for i, n in enumerate(numbers)]
    y = m.tensor("y", (1,), dtype)
    m.op("RANGE", inputs, [y])
    content = m.build([], [y])
    (expected,) = run_reference(content)
    (ours,) = interpret(run(load_bytes(tmp_path, content)), [])
    np.testing.assert_array_equal(ours, expected)
    assert ours.dtype == expected.dtype


@pytest.mark.parametrize("options", [{"out_type": 4}, {"out_type": 2}, {"options_kind": None}])
def test_shapes_and_ranks(options: dict[str, Any], tmp_path: Path) -> None:
    wide = options.get("out_type") == 4
    m = ModelBuilder()
    x = m.tensor("x", (2, 5), "int8")
    shape = m.tensor("shape", (2,), "int64" if wide else "int32")
    m.op("SHAPE", [x], [shape], **options)
    rank = m.tensor("rank", (), "int32")
    m.op("RANK", [x], [rank], options_kind=None)
    both = m.tensor("both", (3,), "int32")
    m.op(
        "BROADCAST_ARGS", [given(m, "a", [4, 1, 3]), given(m, "b", [2, 1])], [both],
        options_kind=None,
    )
    graph = run(load_bytes(tmp_path, m.build([x], [shape, rank, both])))
    results = interpret(graph, [np.zeros((2, 5), np.int8)])
    assert [r.tolist() for r in results] == [[2, 5], 2, [4, 2, 3]]
    assert results[0].dtype == (np.int64 if wide else np.int32)


def test_a_range_of_what_is_computed_at_run_time_is_refused(tmp_path: Path) -> None:
    m = ModelBuilder()
    x = m.tensor("x", (), "int32")
    y = m.tensor("y", (1,), "int32")
    m.op("RANGE", [given(m, "start", 0), x, given(m, "step", 1)], [y])
    with pytest.raises(CrtExportError, match="computed at run time"):
        load_bytes(tmp_path, m.build([x], [y]))


@pytest.mark.parametrize(
    ("numbers", "problem"), [((0, 5, 0), "a step of 0"), ((0, 2**31 - 1, 1), "numbers; the most")]
)
def test_ranges_without_end_are_refused(
    numbers: tuple[int, ...], problem: str, tmp_path: Path
) -> None:
    m = ModelBuilder()
    inputs = [given(m, f"n{i}", n) for i, n in enumerate(numbers)]
    y = m.tensor("y", (1,), "int32")
    m.op("RANGE", inputs, [y])
    with pytest.raises(CrtExportError, match=problem):
        load_bytes(tmp_path, m.build([], [y]))


def test_constants_that_do_not_fit_are_refused_before_they_are_computed(tmp_path: Path) -> None:
    m = ModelBuilder()
    y = m.tensor("y", (5,), "int32")
    m.op("ADD", [given(m, "a", [1, 2]), given(m, "b", [1, 2, 3])], [y])
    with pytest.raises(CrtExportError, match=r"operator 0 \(ADD\)"):
        load_bytes(tmp_path, m.build([], [y]))


def test_what_would_grow_is_not_folded(tmp_path: Path) -> None:
    m = ModelBuilder()
    y = m.tensor("y", (5000,), "int32")
    m.op("FILL", [given(m, "dims", [5000]), given(m, "value", 3)], [y])
    graph = run(load_bytes(tmp_path, m.build([], [y])))
    assert [type(node.op) for node in graph.nodes] == [BroadcastTo]

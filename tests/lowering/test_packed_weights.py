"""Weights of 4 and 2 bits that stay packed: the same results, from a half or a quarter of the
bytes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtexport.firmware.board import load_board
from crtexport.importers import load
from crtexport.ir.graph import Graph
from crtexport.lowering import operator_table
from crtexport.lowering.registry import Context, Derived
from crtexport.passes.pack_weights import pack_weights
from crtexport.pipeline.driver import Optimize, prepare
from tests.differential.backends import assert_backends_agree
from tests.differential.network import Values, interpret, steps
from tests.schedules.layers import drawing, search
from tests.schedules.narrow_layers import RANGES, TYPES, NarrowLayers
from tests.tflite_builder import ModelBuilder, run_reference


def all_packed(graph: Graph) -> Graph:
    return pack_weights(graph, lambda *_: True)


def stored_weights(graph: Graph) -> int:
    """The bytes of weights that the plain kernel of a graph's only node reads."""
    lowered = operator_table.lower(Context(graph, graph.nodes[0]))
    return sum(
        arg.data.nbytes for arg in lowered.args
        if isinstance(arg, Derived) and arg.purpose == "weights"
    )


@pytest.mark.parametrize("kind", ["conv", "pointwise", "dense", "depthwise"])
@pytest.mark.parametrize("weights", RANGES)
@search(3)
@given(data=st.data(), dtype=st.sampled_from(TYPES))
def test_packed_weights_give_the_same_results_in_every_backend(
    weights: str, kind: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject,
    dtype: str,
) -> None:
    folder = tmp_path_factory.mktemp("layer")
    n = NarrowLayers(drawing(data), data.draw(st.integers(0, 99)), weights, dtype)
    shape, *_ = layer = n.add(kind)
    path = n.write(folder, [layer])
    graph, value = load(path), n.values(shape)
    packed = all_packed(graph)
    values: Values = {packed.inputs[0]: value}
    found = list(steps(packed, values))
    result = values[packed.outputs[0]]
    np.testing.assert_array_equal(result, interpret(graph, [value])[0])
    if dtype != "float32":
        np.testing.assert_array_equal(result, run_reference(path.read_bytes(), value)[0])
    assert_backends_agree(found, folder)
    units, *others = graph.type(graph.required(graph.nodes[0], 1)).shape
    if kind == "depthwise":
        units, others = units * math.prod(others), []
    if units > 1:
        assert stored_weights(packed) == -(-units * n.range[0] // 8) * math.prod(others)


@pytest.mark.parametrize("weights", RANGES)
def test_transposed_convolutions_read_packed_weights(weights: str, tmp_path: Path) -> None:
    m, rng = ModelBuilder(), np.random.default_rng(4)
    bits_, low, high = RANGES[weights]
    data = rng.integers(low, high + 1, (3, 2, 3, 5)).astype(np.int8)
    data.flat[0] = low
    size = m.tensor("size", (4,), "int32", data=np.array([1, 6, 7, 3], np.int32))
    x = m.tensor("x", (1, 3, 3, 5), "int8", 0.05, 9)
    w = m.tensor("w", data.shape, "int8", 0.05, data=data)
    y = m.tensor("y", (1, 6, 7, 3), "int8", 0.03)
    m.op("TRANSPOSE_CONV", [size, w, x], [y], padding="VALID", stride=(2, 2))
    (tmp_path / "m.tflite").write_bytes(m.build([x], [y]))
    graph = load(tmp_path / "m.tflite")
    packed, value = all_packed(graph), rng.integers(-128, 128, (1, 3, 3, 5)).astype(np.int8)
    values: Values = {packed.inputs[0]: value}
    found = list(steps(packed, values))
    np.testing.assert_array_equal(
        values[packed.outputs[0]], run_reference((tmp_path / "m.tflite").read_bytes(), value)[0]
    )
    assert_backends_agree(found, tmp_path)
    assert stored_weights(packed) == -(-data.size * bits_ // 8)


def network(
    folder: Path, weights: np.ndarray, *, groups: int = 1, twice: bool = False
) -> Graph:
    """A convolution with ``weights``; ``twice``: which are added to another input, too."""
    m = ModelBuilder()
    units, rows, columns, depth = weights.shape
    x = m.tensor("x", (1, 5, 4, depth * groups), "int8", 0.05)
    w = m.tensor("w", weights.shape, "int8", 0.05, data=weights)
    y = m.tensor("y", (1, 6 - rows, 5 - columns, units), "int8", 0.05)
    m.op("CONV_2D", [x, w], [y], padding="VALID")
    inputs, outputs = [x], [y]
    if twice:
        inputs.append(m.tensor("z", weights.shape, "int8", 0.05))
        outputs.append(m.tensor("sum", weights.shape, "int8", 0.05))
        m.op("ADD", [inputs[1], w], [outputs[1]])
    (folder / "m.tflite").write_bytes(m.build(inputs, outputs))
    return load(folder / "m.tflite")


def bits(graph: Graph) -> int | None:
    return all_packed(graph).tensors[graph.required(graph.nodes[0], 1)].packed_bits


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(-1, 1, 2), (-2, 1, 2), (-3, 0, 4), (0, 2, 4), (-8, 7, 4), (-9, 0, None), (0, 8, None)],
)
def test_all_values_decide_how_many_bits_weights_need(
    low: int, high: int, expected: int | None, tmp_path: Path
) -> None:
    weights = np.zeros((6, 3, 2, 5), np.int8)
    weights[5, 2, 1, 3:] = low, high
    assert bits(network(tmp_path, weights)) == expected


@pytest.mark.parametrize(
    ("units", "groups", "value", "expected"),
    [
        (1, 1, 1, None), (3, 1, 1, 2), (6, 2, 1, None), (8, 2, 1, 2), (4, 2, 1, 4), (4, 2, 7, 4),
        (3, 3, 1, None),
    ],
)
def test_channels_of_different_groups_share_no_byte(
    units: int, groups: int, value: int, expected: int | None, tmp_path: Path
) -> None:
    graph = network(tmp_path, np.full((units, 2, 3, 5), value), groups=groups)
    assert bits(graph) == expected
    value_ = np.random.default_rng(1).integers(-128, 128, (1, 5, 4, 5 * groups)).astype(np.int8)
    assert interpret(all_packed(graph), [value_])[0].tolist() == (
        interpret(graph, [value_])[0].tolist()
    )


def test_weights_that_others_read_keep_their_bytes(tmp_path: Path) -> None:
    weights = np.ones((4, 1, 1, 3), np.int8)
    assert bits(network(tmp_path, weights)) == 2
    assert bits(network(tmp_path, weights, twice=True)) is None


@pytest.mark.parametrize(
    ("board", "optimize", "rows", "packed"),
    [
        ("mps2_an386", "balanced", 1, True), ("mps2_an386", "speed", 1, True),
        ("mps2_an386", "size", 1, False), ("mps2_an386", "balanced", 2, False),
        ("mps2_an385", "balanced", 1, False), ("mps3_an547", "balanced", 1, False),
        ("host", "balanced", 1, False),
    ],
)
def test_weights_stay_packed_by_default_where_unpacking_is_free(
    board: str, optimize: Optimize, rows: int, packed: bool, tmp_path: Path
) -> None:
    m = ModelBuilder()
    x = m.tensor("x", (rows, 50), "int8", 0.05)
    w = m.tensor("w", (30, 50), "int4", 0.05, data=np.full((30, 50), -8))
    y = m.tensor("y", (rows, 30), "int8", 0.5)
    m.op("FULLY_CONNECTED", [x, w], [y])
    (tmp_path / "m.tflite").write_bytes(m.build([x], [y]))
    prepared = prepare(load(tmp_path / "m.tflite"), load_board(board), optimize=optimize)
    assert prepared.graph.tensors[1].packed_bits == (4 if packed else None)
    largest = max(constant.data.nbytes for constant in prepared.artifact.constants)
    # Four channels share words of two values.
    assert largest == 8 * 25 * 4 if packed else largest >= 1500

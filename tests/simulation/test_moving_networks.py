"""Networks of operators that move elements, exported whole: several outputs, views, tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import crtexport
from crtexport.importers import load
from crtexport.ir import text
from crtexport.ir.ops import Gather, GatherNd
from tests.differential.network import interpret
from tests.tflite_builder import ModelBuilder, run_reference


def constant(m: ModelBuilder, name: str, values: object) -> int:
    array = np.array(values)
    return m.tensor(name, array.shape, "int32", data=array)


def shuffle() -> bytes:
    """Channels are split, shuffled and joined; a part that nobody reads, one that is an output."""
    m = ModelBuilder()
    quant = {"scale": 0.5, "zero_point": -3}

    def data(name: str, *shape: int) -> int:
        return m.tensor(name, shape, "int8", **quant)

    x = data("x", 1, 4, 6, 8)
    parts = [data("a", 1, 4, 6, 3), data("b", 1, 4, 6, 3), data("c", 1, 4, 6, 2)]
    m.op("SPLIT_V", [x, constant(m, "sizes", [3, 3, 2]), constant(m, "axis", 3)], parts,
         version=1, num_splits=3)
    rows = [data(f"row{i}", 1, 6, 3) for i in range(4)]
    m.op("UNPACK", [parts[0]], rows, axis=1, num=4)
    packed = data("packed", 1, 2, 6, 3)
    m.op("PACK", [rows[3], rows[1]], [packed], axis=1, values_count=2)
    large = data("large", 1, 4, 6, 3)
    m.op("RESIZE_NEAREST_NEIGHBOR", [packed, constant(m, "size", [4, 6])], [large])
    joined = data("joined", 1, 4, 6, 6)
    m.op("CONCATENATION", [large, parts[1]], [joined], axis=3)
    turned = data("turned", 1, 6, 6, 4)
    m.op("TRANSPOSE", [joined, constant(m, "order", [0, 3, 2, 1])], [turned])
    flat = data("flat", 1, 144)
    m.op("RESHAPE", [turned, constant(m, "shape", [1, 144])], [flat])
    return m.build([x], [parts[1], flat])


@pytest.mark.parametrize("emit", ["c", "llvm"])
@pytest.mark.parametrize("workspace", ["static", "caller"])
def test_nodes_with_several_outputs_are_exported(
    emit: str, workspace: str, tmp_path: Path
) -> None:
    model = tmp_path / "shuffle.tflite"
    model.write_bytes(shuffle())
    exported = crtexport.export(
        model, board="host", emit=emit, workspace=workspace, output=tmp_path / "shuffle.tar"
    )
    rng = np.random.default_rng(1)
    image = rng.integers(-128, 128, (1, 4, 6, 8)).astype(np.int8)
    (outputs,) = crtexport.simulate(exported.path, {"x": image[None]})
    for ours, expected in zip(
        outputs.values(), run_reference(shuffle(), image), strict=True
    ):
        np.testing.assert_array_equal(ours.reshape(-1), expected.reshape(-1))


def test_several_outputs_are_written_as_text(tmp_path: Path) -> None:
    model = tmp_path / "shuffle.tflite"
    model.write_bytes(shuffle())
    (line,) = [line for line in text.dump(load(model)).splitlines() if "Split(" in line]
    assert line.split(" = ")[0].count("int8[") == 3
    assert "Split(%0) {axis=3, sizes=(3, 3, 2)}" in line


@pytest.mark.parametrize("code", ["GATHER", "GATHER_ND"])
def test_indices_outside_take_the_nearest(code: str, tmp_path: Path) -> None:
    """The runtimes refuse to run; exported code has no errors and reads nothing outside."""
    m = ModelBuilder()
    x = m.tensor("x", (3, 2), "float32")
    numbers = m.tensor("numbers", (4, 1) if code == "GATHER_ND" else (4,), "int64")
    y = m.tensor("y", (4, 2), "float32")
    m.op(code, [x, numbers], [y])
    path = tmp_path / "model.tflite"
    path.write_bytes(m.build([x, numbers], [y]))
    graph = load(path)
    assert isinstance(graph.nodes[0].op, Gather | GatherNd)
    data = np.arange(6, dtype=np.float32).reshape(3, 2)
    indices = np.array([-1, 3, 2**62, -(2**62)]).reshape(graph.type(graph.inputs[1]).shape)
    (result,) = interpret(graph, [data, indices])
    assert result.tolist() == data[[0, 2, 2, 0]].tolist()

"""int4 and int2 constants: several elements to a byte in the file, int8 in the graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crtexport.importers import load
from crtexport.ir.types import DType
from crtexport.pipeline import driver
from crtexport.support.errors import CrtExportError
from tests.differential.network import interpret
from tests.helpers import reference
from tests.tflite_builder import ModelBuilder

WEIGHTS = [[-8, 7, 0], [1, -1, 5], [-7, 2, 3]]
NARROW = [[-2, 1, 0], [1, -1, 1], [-1, 0, -2]]


def dense(
    shape: tuple[int, int] = (3, 3), data: object = WEIGHTS, kind: str = "int4"
) -> bytes:
    model = ModelBuilder()
    x = model.tensor("x", (1, 3), "int8", 0.5)
    w = model.tensor("w", (3, 3), kind, 0.25, data=data)
    model._tensors[w].shape = shape
    y = model.tensor("y", (1, 3), "int8", 0.5)
    model.op("FULLY_CONNECTED", [x, w], [y])
    return model.build([x] if data is not None else [x, w], [y])


@pytest.mark.parametrize(("kind", "values"), [("int4", WEIGHTS), ("int2", NARROW)])
def test_parts_of_bytes_become_bytes(
    kind: str, values: list[list[int]], tmp_path: Path
) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(dense(data=values, kind=kind))
    graph = load(path)
    weights = graph.tensors[1]
    assert weights.type.dtype is DType.INT8
    assert weights.constant is not None
    np.testing.assert_array_equal(weights.constant.array(weights.type), values)


def test_int2_weights_count_as_in_litert(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(dense(data=NARROW, kind="int2"))
    graph = driver.load(path, numerics="litert")
    value = np.array([[100, -77, 3]], np.int8)
    expected = reference(path, "ai-edge-litert").run([value])
    np.testing.assert_array_equal(interpret(graph, [value]), expected)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (dense((3, 5), NARROW, "int2"), "15 int2 elements are in 3 bytes, not 4"),
        (dense((3, 4)), "12 int4 elements are in 5 bytes, not 6"),
        (dense((3, 1)), "3 int4 elements are in 5 bytes, not 2"),
        (dense(data=None), "int4 tensors are supported as constants only"),
    ],
)
def test_what_is_no_packed_constant_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(content)
    with pytest.raises(CrtExportError, match=message) as caught:
        load(path)
    assert "tensor 1 'w'" in caught.value.location

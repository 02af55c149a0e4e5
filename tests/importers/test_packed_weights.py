"""int4 constants: two elements to a byte in the file, int8 in the graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crtexport.importers import load
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError
from tests.tflite_builder import ModelBuilder

WEIGHTS = [[-8, 7, 0], [1, -1, 5], [-7, 2, 3]]


def dense(shape: tuple[int, int] = (3, 3), data: object = WEIGHTS) -> bytes:
    model = ModelBuilder()
    x = model.tensor("x", (1, 3), "int8", 0.5)
    w = model.tensor("w", (3, 3), "int4", 0.25, data=data)
    model._tensors[w].shape = shape
    y = model.tensor("y", (1, 3), "int8", 0.5)
    model.op("FULLY_CONNECTED", [x, w], [y])
    return model.build([x] if data is not None else [x, w], [y])


def test_halves_of_bytes_become_bytes(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(dense())
    graph = load(path)
    weights = graph.tensors[1]
    assert weights.type.dtype is DType.INT8
    assert weights.constant is not None
    np.testing.assert_array_equal(weights.constant.array(weights.type), WEIGHTS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
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

"""CONV_3D as convolutions of images; its results are compared in tests/differential."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crtexport.importers import load
from crtexport.ir.ops import Conv2D
from crtexport.passes import simplify
from crtexport.support.errors import CrtExportError
from crtexport.verification import verify
from tests.helpers import require, require_reference
from tests.tflite_builder import ModelBuilder

RNG = np.random.default_rng(4)
SHAPES = {"x": (1, 5, 6, 7, 2), "w": (3, 2, 3, 2, 4), "y": (1, 3, 5, 5, 4)}


def written(
    path: Path, *, dtype: str = "float32", stored: str = "float32",
    shapes: dict[str, tuple[int, ...]] = SHAPES, **options: Any,
) -> Path:
    """A network of one CONV_3D whose weights are ``stored`` so."""
    m = ModelBuilder()
    x, y = (m.tensor(name, shapes[name], dtype) for name in "xy")
    w = m.tensor("w", shapes["w"], stored, data=RNG.normal(size=shapes["w"]))
    if stored != "float32":
        narrow, w = w, m.tensor("wide", shapes["w"])
        m.op("DEQUANTIZE", [narrow], [w])
    fields: dict[str, Any] = {"padding": "VALID", "stride": 1, "stride_d": 1, **options}
    m.op("CONV_3D", [x, w], [y], version=1, **fields)
    path.write_bytes(m.build([x], [y]))
    return path


@pytest.mark.parametrize("stored", ["float32", "float16"])
def test_exported_code_agrees_with_the_runtime(stored: str, tmp_path: Path) -> None:
    require_reference()
    require("gcc")
    path = written(tmp_path / "m.tflite", stored=stored, activation="RELU")
    assert verify(path, samples=2, emit="c").agrees
    nodes = simplify(load(path)).graph.nodes
    assert sum(isinstance(node.op, Conv2D) for node in nodes) == SHAPES["w"][0]


@pytest.mark.parametrize(("given", "message"), [
    ({"dtype": "int32"}, r"must be float32 of 5 axes, found int32\[1x5x6x7x2\]"),
    ({"shapes": SHAPES | {"w": (3, 2, 3, 1, 4)}}, "takes 1 channels, not those of"),
    ({"shapes": SHAPES | {"w": (0, 2, 3, 2, 4)}}, r"float32\[0x2x3x2x4\] has no elements"),
    ({"shapes": SHAPES | {"y": (1, 4, 5, 5, 4)}}, "doesn't follow from"),
    ({"stride_d": 0}, "strides and dilations must be at least 1"),
    ({"dilation": 0}, "strides and dilations must be at least 1"),
])
def test_mistakes_are_said(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = written(tmp_path / "m.tflite", **given)
    with pytest.raises(CrtExportError, match=rf"operator 0 \(CONV_3D\).*{message}"):
        load(path)

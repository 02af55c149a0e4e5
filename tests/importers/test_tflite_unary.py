"""Options of functions of one input, as .tflite files have them or leave them out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crtexport.importers import load
from crtexport.ir.ops import Cast, Gelu, L2Normalization, LeakyRelu, LogSoftmax, Op
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError
from tests.tflite_builder import ModelBuilder


def imported(tmp_path: Path, code: str, out: str = "float32", **options: Any) -> tuple[Op, DType]:
    """The operator and the type of its output."""
    model = ModelBuilder()
    x, y = model.tensor("x", (2, 3)), model.tensor("y", (2, 3), out)
    model.op(code, [x], [y], **options)
    path = tmp_path / "net.tflite"
    path.write_bytes(model.build([x], [y]))
    graph = load(path)
    return graph.nodes[0].op, graph.type(graph.outputs[0]).dtype


@pytest.mark.parametrize(("code", "options", "expected"), [
    ("LEAKY_RELU", {"alpha": 0.25}, LeakyRelu(0.25)),
    ("GELU", {"approximate": True}, Gelu(True)),
    ("GELU", {"approximate": False}, Gelu(False)),
    ("GELU", {"options_kind": None}, Gelu(False)),
    ("L2_NORMALIZATION", {}, L2Normalization()),
    ("L2_NORMALIZATION", {"options_kind": None}, L2Normalization()),
    ("LOG_SOFTMAX", {}, LogSoftmax()),
])
def test_options_become_attributes(
    code: str, options: dict[str, Any], expected: Op, tmp_path: Path
) -> None:
    assert imported(tmp_path, code, **options)[0] == expected


def test_a_cast_goes_by_the_type_of_its_output(tmp_path: Path) -> None:
    assert imported(tmp_path, "CAST", "int16") == (Cast(), DType.INT16)


@pytest.mark.parametrize(("code", "options", "message"), [
    ("LEAKY_RELU", {"alpha": float("inf")}, "alpha must be finite, found inf"),
    ("L2_NORMALIZATION", {"activation": "RELU"}, "fused activation"),
])
def test_options_without_a_meaning_are_refused(
    code: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(CrtExportError, match=message):
        imported(tmp_path, code, **options)

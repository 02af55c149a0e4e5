"""Promises that lowering any node keeps, whatever the operator."""

from __future__ import annotations

from pathlib import Path

import pytest

from crtexport.firmware.board import load_board
from crtexport.importers import load
from crtexport.ir.graph import Graph
from crtexport.lowering.operator_table import lower
from crtexport.lowering.registry import Context
from crtexport.support.errors import CrtExportError
from tests import lowered
from tests.tflite_builder import ModelBuilder


def graph_of(code: str, scale: float, output: float, folder: Path) -> Graph:
    model = ModelBuilder()
    x = model.tensor("x", (4,), "int8", scale=scale)
    y = model.tensor("y", (4,), "int8", scale=output)
    options = {"alpha": 0.5} if code == "LEAKY_RELU" else {}
    model.op(code, [x, x] if code == "MUL" else [x], [y], **options)
    path = folder / "m.tflite"
    path.write_bytes(model.build([x], [y]))
    return load(path)


@pytest.mark.parametrize("code", ["MUL", "RELU", "RELU6", "LEAKY_RELU"])
def test_scales_beyond_arithmetic_are_refused(code: str, tmp_path: Path) -> None:
    graph = graph_of(code, 1e38, 1e-38, tmp_path)
    with pytest.raises(CrtExportError, match="scales are too large") as caught:
        lower(Context(graph, graph.nodes[0]))
    assert caught.value.location == ("m.tflite", f"operator 0 ({code})")


@pytest.mark.parametrize("board", ["host", "mps2_an386", "mps2_an385"])
def test_fast_forms_refuse_such_scales_alike(board: str, tmp_path: Path) -> None:
    model = ModelBuilder()
    x = model.tensor("x", (1, 16), "int8", scale=1e38)
    w = model.tensor("w", (4, 16), "int8", scale=1e38, data=range(64))
    y = model.tensor("y", (1, 4), "int8", scale=1.0)
    model.op("FULLY_CONNECTED", [x, w], [y])
    (tmp_path / "m.tflite").write_bytes(model.build([x], [y]))
    graph = load(tmp_path / "m.tflite")
    with pytest.raises(CrtExportError, match="scales are too large"):
        lowered.lower(Context(graph, graph.nodes[0]), load_board(board).target, "balanced")


@pytest.mark.parametrize("code", ["MUL", "RELU", "RELU6", "LEAKY_RELU"])
def test_scales_so_small_that_all_results_are_zero_are_lowered(code: str, tmp_path: Path) -> None:
    graph = graph_of(code, 1e-38, 1e38, tmp_path)
    assert lower(Context(graph, graph.nodes[0])).args

"""Exports: nothing is written unless the proofs succeed that are made while LLVM works; tensors
without elements are tensors, too."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import crtexport
from crtexport.artifact import calls
from crtexport.ir.ops import Add, Relu
from crtexport.mlf.reader import open_package
from crtexport.pipeline import driver
from crtexport.simulation.package import load_package
from crtexport.support.errors import CrtExportError
from tests.plan.graphs import GraphBuilder
from tests.several.networks import WEIGHTS, network


@pytest.mark.parametrize("emit", ["c", "llvm"])
@pytest.mark.parametrize(
    ("module", "name"), [(driver.plan_check, "check"), (calls, "verify")], ids=["plan", "kernels"]
)
def test_what_is_not_sound_is_not_exported(
    module: object, name: str, emit: driver.Emit, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object) -> None:
        raise CrtExportError("this is not sound")

    monkeypatch.setattr(module, name, refused)
    model = network(tmp_path, "small", WEIGHTS)
    with pytest.raises(CrtExportError, match="this is not sound"):
        crtexport.export(model, board="host", emit=emit, output=tmp_path / "small.tar")
    assert not (tmp_path / "small.tar").exists()
    with pytest.raises(CrtExportError, match="this is not sound"):
        driver.prepare(driver.load(model), driver.resolve_board("host"))


@pytest.mark.parametrize("workspace", ["static", "caller"])
@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_tensors_of_no_bytes_in_a_workspace_of_none_are_exported(
    emit: driver.Emit, workspace: driver.Owner, tmp_path: Path
) -> None:
    b = GraphBuilder()
    x, y = b.input(0, 3), b.input(2)
    graph = b.finish(b.node(Add(), b.node(Relu(), x), x), b.node(Relu(), y))
    path = tmp_path / "empty.tar"
    crtexport.export(graph, emit=emit, workspace=workspace, output=path)
    given = np.array([-1, 2], np.float32)
    empty, kept = load_package(open_package(path)).run([np.zeros((0, 3), np.float32), given])
    assert empty.shape == (0, 3)
    np.testing.assert_array_equal(kept, [0, 2])


@pytest.mark.parametrize("workspace", ["static", "caller"])
@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_variables_of_no_bytes_alone_are_exported(
    emit: driver.Emit, workspace: driver.Owner, tmp_path: Path
) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps({
        "format": "crtexport-model", "version": 1, "name": "empty",
        "inputs": ["x", "y"], "outputs": ["x"],
        "tensors": [
            {"name": "x", "dtype": "int32", "shape": [2]},
            {"name": "v", "dtype": "int32", "shape": [0, 5], "variable": True, "data": []},
            {"name": "y", "dtype": "int32", "shape": [0, 5]},
        ],
        "nodes": [{"op": "AssignVariable", "inputs": ["v", "y"], "outputs": []}],
    }))
    package = tmp_path / "empty.tar"
    crtexport.export(path, emit=emit, workspace=workspace, output=package)
    given = np.array([-1, 2], np.int32)
    model = load_package(open_package(package))
    np.testing.assert_array_equal(model.run([given, np.zeros((0, 5), np.int32)])[0], given)


@pytest.mark.parametrize(("board", "optimize", "alignment"), [
    ("mps2_an386", "balanced", 16), ("mps2_an386", "speed", 16), ("mps2_an386", "compact", 8),
    ("qemu_riscv32", "size", 8), ("mps3_an547", "compact", 16), ("host", "size", 16),
])
def test_constants_lie_closer_together_where_code_counts_and_no_vectors_are_loaded(
    board: str, optimize: driver.Optimize, alignment: int, tmp_path: Path
) -> None:
    graph = driver.load(network(tmp_path, "small", WEIGHTS))
    made = driver.prepare(graph, driver.resolve_board(board), optimize=optimize)
    aligned = {one.align for one in made.artifact.constants if one.data.nbytes >= 64}
    assert aligned == {alignment}
    assert all(one.align <= 4 for one in made.artifact.constants if one.data.nbytes < 64)

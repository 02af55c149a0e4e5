"""Weights that a network turns or joins before it uses them are moved while they are written.

By default there are 64 MiB of them; with ``CRTEXPORT_LARGE=1`` 2.5 GiB, which takes 8 GiB of disk
in ``TMPDIR``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import crtexport
from tests.large.models import Table, write_tables
from tests.large.test_large import FULL, GIB, MOST_MEMORY, check_room, export

UNITS = 2048
SIZE = 5 * GIB // 2 if FULL else 64 << 20
ROOM = (8 * GIB, 8 * GIB) if FULL else (GIB, GIB)
MOST = MOST_MEMORY if FULL else 150  # MB, of which the weights alone would be 64
QUANT = {"scale": 0.5}

Numbers = npt.NDArray[np.int8]

pytestmark = pytest.mark.slow


def _tensor(name: str, *shape: int, **more: object) -> dict[str, object]:
    return {"name": name, "dtype": "int8", "shape": shape, "quantization": QUANT, **more}


def _write(folder: Path, tables: list[Table], size: int, nodes: list[dict[str, object]]) -> Path:
    """A network of three operators: two that make weights of ``size`` features, and a layer."""
    write_tables(folder / "weights.safetensors", tables)
    held = [
        _tensor(t.name, t.rows, t.width, data={"file": "weights.safetensors", "tensor": t.name})
        for t in tables
    ]
    made = _tensor("w", UNITS, size)
    layer = {"op": "FullyConnected", "inputs": ["x", "w"], "outputs": ["y"], "attributes": {}}
    result = _tensor("y", 1, UNITS, quantization={"scale": 4096.0})
    path = folder / "moved.json"
    path.write_text(json.dumps({
        "format": "crtexport-model", "version": 1, "inputs": ["x"], "outputs": ["y"],
        "tensors": [_tensor("x", 1, size), *held, made, result], "nodes": [*nodes, layer],
    }))
    return path


def _run(model: Path, weights: npt.NDArray[np.float64], units: list[int], tmp_path: Path) -> None:
    """Exports within bounds, and compares some units with what their weights say."""
    x = np.random.default_rng(8).integers(-128, 128, (1, weights.shape[1])).astype(np.int8)
    package = tmp_path / "moved.tar"
    memory, seconds = export(model, Path("host"), package)
    sys.stdout.write(f"{SIZE} bytes: {memory:.0f} MB, {seconds:.1f} s\n")
    assert memory < MOST
    (outputs,) = crtexport.simulate(package, {"x": x})
    real = np.clip(weights @ x[0].astype(np.float64) * (0.25 / 4096), -128, 127)
    assert np.abs(outputs["y"][0, units].astype(np.float64) - real).max() <= 0.5
    assert len(np.unique(outputs["y"])) > 20


def test_a_transposed_matrix(tmp_path: Path) -> None:
    check_room(tmp_path, *ROOM)
    size = SIZE // UNITS
    table = Table("stored", 7, size, UNITS)
    turn: dict[str, object] = {
        "op": "Transpose", "inputs": ["stored"], "outputs": ["w"],
        "attributes": {"permutation": [1, 0]},
    }
    units = [0, 1, UNITS // 2 + 3, UNITS - 1]
    columns = np.stack([table.row(row)[units] for row in range(size)], 1)
    _run(_write(tmp_path, [table], size, [turn]), columns.astype(np.float64), units, tmp_path)


def test_matrices_that_are_joined(tmp_path: Path) -> None:
    check_room(tmp_path, *ROOM)
    size = SIZE // UNITS
    tables = [Table("first", 7, UNITS, size // 2), Table("second", 9, UNITS, size // 2)]
    join: dict[str, object] = {
        "op": "Concatenation", "inputs": ["first", "second"], "outputs": ["w"],
        "attributes": {"axis": 1},
    }
    units = [0, 1, UNITS // 2 + 3, UNITS - 1]
    rows = np.stack([np.concatenate([t.row(unit) for t in tables]) for unit in units])
    _run(_write(tmp_path, tables, size, [join]), rows.astype(np.float64), units, tmp_path)

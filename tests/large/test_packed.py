"""Weights that kernels read in another order are packed while they are written, of any size.

By default there are 64 MiB of them; with ``CRTEXPORT_LARGE=1`` 2.5 GiB, which takes 8 GiB of disk
in ``TMPDIR``, and of memory for files that stay in caches.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import crtexport
from crtexport.firmware.board import load_board
from crtexport.importers import load
from crtexport.lowering.weight_packing import Packed
from crtexport.pipeline.driver import prepare
from tests.helpers import ROOT
from tests.large.models import Large, Table
from tests.large.test_large import FULL, GIB, MOST_MEMORY, PRINT_PEAK, check_room, export

SIZE = 5 * GIB // 2 if FULL else 64 << 20
WIDTH = 4096
LESS = 3
"""Bits that weights are short of, so that sums of two channels fit the words of Cortex-M4."""
ROOM = (8 * GIB, 8 * GIB) if FULL else (GIB, GIB)
MOST = MOST_MEMORY if FULL else 150  # MB, of which the weights alone would be 64

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Case:
    """A fully connected layer on disk, with a number of units that fills no block."""

    weights: Table
    model: Path
    inputs: dict[str, npt.NDArray[np.generic]]

    def check(self, sums: npt.NDArray[np.generic]) -> None:
        """Compares units before and past each half GiB with what the weights' definition says."""
        x, rows = self.inputs["given"][0].astype(np.float64), self.weights.rows
        places = {0, 1, rows - 2, rows - 1, *(rows * part // 5 for part in range(1, 5))}
        for unit in sorted(places):
            row = self.weights.row(unit).astype(np.float64)
            if self.weights.floats:
                assert sums[0, unit] == pytest.approx(x @ row, rel=1e-4, abs=1e-3)
            else:
                # Halves are rounded away from zero, after a product that is rounded itself.
                real = np.clip((x - 3) @ row * 0.25 / self.weights.sums, -128, 127)
                assert abs(float(sums[0, unit]) - real) <= 0.5
        assert len(np.unique(sums)) > 50


@pytest.fixture(scope="module", params=["int8", "float32"])
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Case]:
    folder = tmp_path_factory.mktemp("packed")
    check_room(folder, *ROOM)
    floats, rng = request.param == "float32", np.random.default_rng(4)
    rows = SIZE // WIDTH // (4 if floats else 1) + 5
    weights = Table("dense", 7, rows, WIDTH, floats, less=LESS)
    given = rng.standard_normal((1, WIDTH)) * 60
    values = given.astype(np.float32) if floats else given.clip(-128, 127).astype(np.int8)
    yield Case(weights, Large((), dense=weights).write(folder), {"given": values})
    shutil.rmtree(folder)


@pytest.mark.parametrize("board", ["host", "host_avx2"])
def test_packed_weights_are_streamed(case: Case, board: str, tmp_path: Path) -> None:
    """Integers and floats on both boards, and each of these with both backends."""
    emit = "llvm" if case.weights.floats == (board == "host_avx2") else "c"
    package = tmp_path / "packed.tar"
    memory, seconds = export(case.model, Path(board), package, "--emit", emit)
    sys.stdout.write(f"{case.weights.nbytes} bytes: {memory:.0f} MB, {seconds:.1f} s\n")
    assert memory < MOST
    (outputs,) = crtexport.simulate(package, case.inputs)
    package.unlink()
    case.check(outputs["sums"])


def test_they_are_packed(case: Case) -> None:
    for board in ("host", "host_avx2"):
        _check_packed(case, board)


def _check_packed(case: Case, board: str | Path) -> None:
    artifact = prepare(load(case.model), load_board(board)).artifact
    (held,) = (c for c in artifact.constants if c.data.nbytes >= case.weights.nbytes)
    assert isinstance(held.data.made, Packed)


@pytest.mark.skipif(FULL, reason="no such board reaches 2.5 GiB of constants")
@pytest.mark.parametrize("name", ["mps2_an386", "mps3_an547", "rpi_pico", "qemu_riscv32_v"])
def test_weights_for_boards_are_streamed_as_well(case: Case, name: str, tmp_path: Path) -> None:
    if name == "rpi_pico" and case.weights.floats:
        pytest.skip("weights of floats stay in their order where nothing multiplies them at once")
    board, package = tmp_path / "board.yaml", tmp_path / "packed.tar"
    board.write_text(
        f"extends: {name}\nname: external\ndescription: with a memory for constants\n"
        'memory: {store: {origin: "0x60000000", size: 256MiB}}\n'
        "placement: {constants: store}\n" + ("npu: null\n" if name == "mps3_an547" else "")
    )
    _check_packed(case, board)
    memory, _ = export(case.model, board, package)
    assert memory < MOST


def test_simulation_holds_no_copy(case: Case, tmp_path: Path) -> None:
    code = (
        "import re, sys, numpy, crtexport; from pathlib import Path\n"
        "given = dict(numpy.load(sys.argv[2]))\n"
        "crtexport.simulate(sys.argv[1], given)\n"
        f"{PRINT_PEAK}"
    )
    package, given = tmp_path / "packed.tar", tmp_path / "given.npz"
    export(case.model, Path("host_avx2"), package)
    np.savez(given, **case.inputs)  # type: ignore[arg-type]
    done = subprocess.run(
        [sys.executable, "-c", code, package, given], check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    package.unlink()
    mapped = case.weights.nbytes >> 20  # pages of the file, which nobody but the system holds
    assert int(done.stdout) - mapped < MOST_MEMORY

"""Whole networks of drawn shapes give in emulated processors, and on this computer, what the
reference gives: how loops of a network's layers share functions and registers shows only there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import crtexport
from crtexport.mlf.reader import open_package
from crtexport.simulation.tflite_writer import to_tflite
from tests.bench.drawn import drawn
from tests.helpers import reference, require, require_processor, require_reference

NETWORKS = [
    *(("mps3_an547", seed) for seed in range(1, 6)), ("mps2_an386", 1), ("mps2_an386", 2),
    ("mps2_an385", 1), ("mps2_an385", 3), ("mps2_an500", 1), ("mps2_an500", 4),
    ("mps2_an505", 1), ("mps2_an505", 5), ("qemu_riscv32", 2), ("host", 7), ("host_avx2", 6),
    ("host_vnni", 4), ("host_avx512", 3), ("host_avx512", 8),
]

TOOLS = {"qemu": ("riscv64-unknown-elf-gcc", "qemu-system-riscv32"), "host": ("gcc",)}
"""By the beginnings of boards' names; others have an Arm processor."""


@pytest.mark.qemu
@pytest.mark.parametrize(("board", "seed"), NETWORKS)
def test_outputs_are_those_of_the_reference(board: str, seed: int, tmp_path: Path) -> None:
    require_reference()
    for tool in TOOLS.get(board.partition("_")[0], ("arm-none-eabi-gcc", "qemu-system-arm")):
        require(tool)
    require_processor(board)
    path = tmp_path / "drawn.tflite"
    path.write_bytes(to_tflite(drawn("int8", seed)))
    package = tmp_path / "drawn.tar"
    crtexport.export(path, board=board, emit="llvm", output=package)
    (given,) = open_package(package).inputs
    shape = given.shape or ()
    values = np.random.default_rng(seed).integers(-128, 128, (2, *shape)).astype(np.int8)
    found = crtexport.run(package, {given.field: values}).outputs
    model = reference(path)
    for value, row in zip(values, found, strict=True):
        np.testing.assert_array_equal(row[0], model.run([value])[0])

"""Casts to and from wide integers need no more of the compiler's runtime than firmware has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import crtexport
from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.ops import Cast
from crtexport.ir.types import DType, TensorType
from tests.helpers import require

F32, I64, U32 = DType.FLOAT32, DType.INT64, DType.UINT32
BOARDS = ("qemu_cortex_m0", "mps2_an386", "qemu_riscv32", "qemu_x86")


def cast(source: DType, target: DType) -> Graph:
    tensors = (Tensor("x", TensorType(source, (4,))), Tensor("y", TensorType(target, (4,))))
    return Graph("cast", tensors, (Node(Cast(), (0,), (1,)),), (0,), (1,))


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize(("source", "target"), [(F32, I64), (I64, F32), (F32, U32), (U32, F32)])
def test_every_board_has_what_casts_need(
    source: DType, target: DType, board: str, tmp_path: Path
) -> None:
    crtexport.export(cast(source, target), board=board, emit="llvm", output=tmp_path / "c.tar")


def test_a_processor_without_floats_casts_exactly(tmp_path: Path) -> None:
    require("qemu-system-arm")
    require("arm-none-eabi-gcc")
    path = tmp_path / "cast.tar"
    crtexport.export(cast(F32, U32), board="qemu_cortex_m0", emit="llvm", output=path)
    x = np.array([[0.75, -3.5, 4e9, 1e20]], np.float32)
    (row,) = crtexport.run(path, {"x": x}).outputs
    assert row[0].tolist() == [0, 0, 4_000_000_000, 4_294_967_295]

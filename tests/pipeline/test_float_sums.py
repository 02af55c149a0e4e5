"""Packages don't depend on the version of Python: from 3.12 on, ``sum`` adds floats otherwise."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import crtexport
from crtexport.pipeline.driver import Optimize
from crtexport.simulation.tflite_writer import to_tflite
from tests.bench.drawn import KINDS, drawn

BOARDS = ("host", "host_avx512", "mps2_an386", "mps2_an500", "mps3_an547", "qemu_riscv32")
_sum = builtins.sum


def _integers(items: Iterable[Any], /, start: Any = 0) -> Any:
    """As ``sum``, but not of floats."""
    several = list(items)
    assert not any(isinstance(item, float) for item in several), "math.fsum adds floats"
    return _sum(several, start)


@pytest.mark.parametrize("optimize", ["balanced", "ram"])
@pytest.mark.parametrize("board", BOARDS)
def test_exports_add_no_floats_by_sum(
    board: str, optimize: Optimize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtins, "sum", _integers)
    for seed, kind in enumerate(KINDS):
        model = tmp_path / f"{kind}.tflite"
        model.write_bytes(to_tflite(drawn(kind, seed)))
        crtexport.export(
            model, board=board, optimize=optimize, emit="c", output=tmp_path / f"{kind}.tar"
        )

"""Each level of ``--optimize`` has less code than the next, and takes longer."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

import crtexport
from crtexport.support.levels import LEVELS
from tests.helpers import require, shared_model

pytestmark = pytest.mark.models

BOARD = "mps2_an386"


@pytest.mark.parametrize("emit", ["llvm", "c"])
def test_less_code_takes_more_cycles(emit: str, tmp_path: Path) -> None:
    require("qemu-system-arm")
    require("arm-none-eabi-gcc")
    found = []
    for level in LEVELS:
        package = tmp_path / f"{level}.tar"
        crtexport.export(
            shared_model("kws_int8"), board=BOARD, emit=emit, optimize=level, output=package
        )
        found.append(crtexport.run(package, board=BOARD))
    for small, fast in pairwise(found):
        assert sum(small.flash.values()) < sum(fast.flash.values())
        assert _cycles(small) > _cycles(fast)
        assert [array.tobytes() for array in small.outputs[0]] == [
            array.tobytes() for array in fast.outputs[0]
        ]


def _cycles(result: crtexport.RunResult) -> float:
    assert result.spent is not None
    assert result.spent.cycles is not None
    return result.spent.cycles.mid

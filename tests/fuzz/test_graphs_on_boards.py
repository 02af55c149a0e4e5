"""Some drawn networks on microcontrollers: several in one firmware, in QEMU."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import crtexport
from crtexport.firmware.board import load_board
from crtexport.mlf.arrays import key_of
from crtexport.mlf.reader import open_package
from crtexport.pipeline import driver
from crtexport.support.errors import CrtExportError
from tests.fuzz.artifacts import Interpreted
from tests.fuzz.graphs import example
from tests.fuzz.growing import Grown
from tests.helpers import require

COUNT = 8


def networks() -> dict[str, Grown]:
    """Drawn ones with inputs that a firmware can be given."""
    found: dict[str, Grown] = {}
    for seed in range(500, 600):
        grown = example(seed).grown
        types = [grown.graph.type(t) for t in (*grown.graph.inputs, *grown.graph.outputs)]
        plain = all(t.elements and t.dtype.numpy.kind in "iuf" for t in types)
        if plain and grown.graph.inputs and len(types) < 8:
            with suppress(CrtExportError):  # now and then one breaks a rule
                driver.prepare(grown.graph, load_board("host"))
                found[f"n{seed}"] = grown
        if len(found) == COUNT:
            break
    return found


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547"])
def test_boards_compute_what_the_interpreter_computes(board: str, tmp_path: Path) -> None:
    for tool in ("arm-none-eabi-gcc", "make", "qemu-system-arm"):
        require(tool)
    drawn = networks()
    made = crtexport.export(
        [grown.graph for grown in drawn.values()], board=board, module_name=list(drawn),
        output=tmp_path / "drawn.tar",
    )
    package = open_package(made.path)
    given = {
        f"{name}/{key_of(tensor)}": np.stack([run[number] for run in grown.runs])
        for name, grown in drawn.items()
        for number, tensor in enumerate(package.select(name).inputs)
    }
    ran = crtexport.run_all(made.path, given)
    bits = load_board(board).target.pointer_bits
    functions = tuple(f for one in made.models for f in one.artifact.functions)
    constants = tuple(c for one in made.models for c in one.artifact.constants)
    for one, (name, grown) in zip(made.models, drawn.items(), strict=True):
        machine = Interpreted(one.artifact, bits, functions, constants)
        for run, results in zip(grown.runs, ran[name].outputs, strict=True):
            for wanted, found in zip(machine.run(run), results, strict=True):
                np.testing.assert_array_equal(found, wanted, err_msg=name)

"""Every operator: compiled C and LLVM give what the interpreted kernel gives, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from crtexport.importers import load
from tests.differential.backends import assert_backends_agree
from tests.differential.cases import CASES, DTYPES, TYPES, SeededDraw
from tests.differential.network import Step, Values, steps

SEEDS = range(3)


def steps_of(name: str, folder: Path) -> list[Step]:
    """The kernels of an operator's cases: a few networks of each element type."""
    found = []
    path = folder / "model.tflite"
    for dtype in TYPES[name]:
        for seed in SEEDS:
            case = CASES[name](SeededDraw(seed), dtype)
            path.write_bytes(case.content)
            graph = load(path)
            values: Values = dict(zip(graph.inputs, case.inputs, strict=True))
            found += steps(graph, values)
    return found


@pytest.mark.parametrize("name", CASES)
def test_c_and_llvm_equal_the_interpreter(name: str, tmp_path: Path) -> None:
    assert_backends_agree(steps_of(name, tmp_path), tmp_path)


def test_element_types_are_said_of_cases_that_exist() -> None:
    assert DTYPES.keys() <= CASES.keys()

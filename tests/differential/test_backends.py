"""Every operator: compiled C and LLVM give what the interpreted kernel gives, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from crtexport.importers import load
from tests.backends import c_support, llvm_support
from tests.differential.cases import CASES, DTYPES, PAIRS, SeededDraw
from tests.differential.network import Step, Values, steps

SEEDS = range(3)


def steps_of(name: str, folder: Path) -> list[Step]:
    """The kernels of an operator's cases: a few networks of each element type."""
    found = []
    path = folder / "model.tflite"
    for dtype in [d for n, d in PAIRS if n == name]:
        for seed in SEEDS:
            case = CASES[name](SeededDraw(seed), dtype)
            path.write_bytes(case.content)
            graph = load(path)
            values: Values = dict(zip(graph.inputs, case.inputs, strict=True))
            found += steps(graph, values)
    return found


@pytest.mark.parametrize("name", CASES)
def test_c_and_llvm_equal_the_interpreter(name: str, tmp_path: Path) -> None:
    found = steps_of(name, tmp_path)
    by_c = c_support.run_kernels([(s.kernel, s.before) for s in found], tmp_path, "-O1")
    by_llvm = llvm_support.run_kernels([
        (s.kernel, {b.name: a for b, a in zip(s.kernel.buffers, s.before, strict=True)}, ())
        for s in found
    ])
    for step, c, llvm in zip(found, by_c, by_llvm, strict=True):
        for buffer, expected, ours in zip(step.kernel.buffers, step.after, c, strict=True):
            c_support.assert_same(ours, expected)
            c_support.assert_same(llvm[buffer.name], expected)


def test_element_types_are_said_of_cases_that_exist() -> None:
    assert DTYPES.keys() <= CASES.keys()

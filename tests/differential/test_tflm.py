"""Operators of TensorFlow Lite Micro alone: interpreter, C and LLVM give what it gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import crtexport
from crtexport.importers import load
from crtexport.mlf.reader import open_package
from crtexport.simulation.package import load_package
from tests.differential.backends import assert_backends_agree
from tests.differential.cases_signal import SIGNAL_CASES
from tests.differential.draw import SeededDraw
from tests.differential.network import Step, Values, steps
from tests.differential.tflm_cases import SEEDS, TFLM_CASES, pauses
from tests.helpers import reference

CASES = {**TFLM_CASES, **SIGNAL_CASES}


@pytest.mark.parametrize("name", CASES)
def test_every_backend_gives_what_tflite_micro_gives(name: str, tmp_path: Path) -> None:
    path, found = tmp_path / "model.tflite", list[Step]()
    for seed in SEEDS:
        case = CASES[name](SeededDraw(seed))
        model = reference(case.content, "tflite-micro")
        path.write_bytes(case.content)
        graph = load(path)
        kept: Values = {}
        ran: list[Step] = []
        for inputs in case.steps:
            kept.update(zip(graph.inputs, inputs, strict=True))
            ran = list(steps(graph, kept))
            for tensor, expected in zip(graph.outputs, model.run(inputs), strict=True):
                np.testing.assert_array_equal(kept[tensor], expected)
        found += ran  # each run has the same kernels
    assert_backends_agree(found, tmp_path)


@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_runs_that_end_early_leave_the_results_of_the_one_before(
    emit: str, tmp_path: Path
) -> None:
    model, package = tmp_path / "model.tflite", tmp_path / "model.tar"
    for seed in range(3):
        case = pauses(SeededDraw(seed))
        runtime = reference(case.content, "tflite-micro")
        model.write_bytes(case.content)
        crtexport.export(model, emit=emit, output=package)
        simulation = load_package(open_package(package))
        found = [(*simulation.run(inputs), *runtime.run(inputs)) for inputs in case.steps]
        for ours, theirs in found:
            np.testing.assert_array_equal(ours, theirs)
        assert len({theirs.tobytes() for _, theirs in found}) > 2

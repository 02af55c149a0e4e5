"""Operators of TensorFlow Lite Micro alone: interpreter, C and LLVM give what it gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crtexport.importers import load
from tests.differential.backends import assert_backends_agree
from tests.differential.cases_signal import SIGNAL_CASES
from tests.differential.draw import SeededDraw
from tests.differential.network import Step, Values, steps
from tests.differential.tflm_cases import SEEDS, TFLM_CASES
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

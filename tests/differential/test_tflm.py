"""Operators of TensorFlow Lite Micro alone: interpreter, C and LLVM give what it gave."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crtexport.importers import load
from tests.differential.backends import assert_backends_agree
from tests.differential.draw import SeededDraw
from tests.differential.network import Step, Values, steps
from tests.differential.tflm_cases import SEEDS, TFLM_CASES, recorded


@pytest.mark.parametrize("name", TFLM_CASES)
def test_every_backend_gives_what_tflite_micro_gave(name: str, tmp_path: Path) -> None:
    path, found = tmp_path / "model.tflite", list[Step]()
    for seed in SEEDS:
        case = TFLM_CASES[name](SeededDraw(seed))
        digest, expected = recorded(name, seed)
        assert case.digest == digest, "other networks are drawn than those whose outputs are known"
        path.write_bytes(case.content)
        graph = load(path)
        kept: Values = {}
        got = b""
        for inputs in case.steps:
            kept.update(zip(graph.inputs, inputs, strict=True))
            found += steps(graph, kept)
            got += b"".join(kept[tensor].tobytes() for tensor in graph.outputs)
        dtype = graph.type(graph.outputs[0]).dtype.numpy
        np.testing.assert_array_equal(np.frombuffer(got, dtype), np.frombuffer(expected, dtype))
    assert_backends_agree(found, tmp_path)

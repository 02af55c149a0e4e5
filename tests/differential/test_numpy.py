"""Operators that no runtime has: interpreter, C and LLVM give what NumPy gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crtexport.ir.types import TensorType
from tests.differential.backends import assert_backends_agree
from tests.differential.network import Values, steps
from tests.differential.numpy_cases import NUMPY_CASES, Array
from tests.plan.graphs import GraphBuilder

SEEDS = range(3)


def drawn(type_: TensorType, rng: np.random.Generator, spread: float) -> Array:
    if type_.dtype.is_float:
        return rng.normal(0, spread, type_.shape).astype(type_.dtype.numpy)
    return rng.integers(-1000, 1000, type_.shape).astype(type_.dtype.numpy)


@pytest.mark.parametrize("name", NUMPY_CASES)
def test_every_backend_gives_what_numpy_gives(name: str, tmp_path: Path) -> None:
    case = NUMPY_CASES[name]
    b = GraphBuilder()
    given = [
        b.constant(case.constants[i]) if i in case.constants else b.input(*t.shape, dtype=t.dtype)
        for i, t in enumerate(case.inputs)
    ]
    outputs = b.node_of(case.op, *given, quantized=case.result)
    graph = b.finish(*outputs)
    found = []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        inputs = [
            case.constants[i] if i in case.constants else drawn(type_, rng, case.spread)
            for i, type_ in enumerate(case.inputs)
        ]
        run = (x for i, x in enumerate(inputs) if i not in case.constants)
        values: Values = dict(zip(graph.inputs, run, strict=True))
        found += steps(graph, values)
        with np.errstate(all="ignore"):
            wanted = case.compute(
                *(x.astype(np.float64) if x.dtype.kind == "f" else x for x in inputs)
            )
        for output, expected in zip(
            outputs, wanted if isinstance(wanted, tuple) else (wanted,), strict=True
        ):
            largest = float(np.abs(expected[np.isfinite(expected)]).max(initial=0))
            tolerance = case.tolerance * largest if expected.dtype.kind == "f" else 0
            np.testing.assert_allclose(values[output], expected, rtol=0, atol=tolerance)
    assert_backends_agree(found, tmp_path)

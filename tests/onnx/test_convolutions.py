"""Convolutions that are put together of others give what ONNX Runtime gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from msgspec import Struct

from crtexport.importers import load
from crtexport.importers.formats import NO_CHOICES
from crtexport.simulation.onnx_reference import OnnxReference
from tests.differential.network import interpret
from tests.helpers import require_environment
from tests.importers.onnx.writer import block, graph, model, node, value


@pytest.fixture(autouse=True)
def _runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRTEXPORT_ONNX_PYTHON", require_environment("onnx", "onnxruntime"))


class Case(Struct, frozen=True):
    """One node: the shapes of its inputs, of which those from the second on are constants but for
    ``computed``; ``dtype`` is that of all, and drawn numbers lie in ``between``."""

    operator: str
    shapes: tuple[tuple[int, ...], ...]
    attributes: dict[str, Any] = {}
    computed: tuple[int, ...] = (0,)
    dtype: str = "float32"
    result: str = "float32"
    constants: dict[int, npt.NDArray[Any]] = {}


CASES = {
    "volumes": Case(
        "Conv", ((2, 3, 6, 7, 8), (4, 3, 2, 3, 2), (4,)),
        {"strides": (2, 1, 3), "pads": (1, 0, 2, 0, 1, 1), "dilations": (2, 1, 2)},
    ),
    "volumes in groups": Case(
        "Conv", ((1, 6, 4, 5, 7), (9, 2, 3, 2, 1)), {"group": 3, "auto_pad": "SAME_LOWER"},
    ),
    "volumes, one channel each": Case(
        "Conv", ((1, 3, 4, 5, 7), (6, 1, 2, 2, 3), (6,)), {"group": 3},
    ),
    "transposed volumes": Case(
        "ConvTranspose", ((2, 3, 4, 3, 5), (3, 4, 3, 2, 3), (4,)),
        {"strides": (2, 3, 1), "pads": (1, 0, 2, 2, 1, 0), "output_padding": (1, 2, 0)},
    ),
    "transposed volumes in groups": Case(
        "ConvTranspose", ((1, 4, 3, 5, 2), (4, 3, 2, 3, 2), (6,)),
        {"group": 2, "dilations": (3, 1, 2), "strides": (1, 2, 2)},
    ),
    "transposed volumes with gaps": Case(
        "ConvTranspose", ((1, 2, 3, 2, 4), (2, 3, 2, 1, 2)), {"strides": (4, 2, 3)},
    ),
    "whole numbers": Case(
        "ConvInteger", ((2, 3, 6, 5), (4, 3, 2, 3), (), ()), {"pads": (1, 0, 2, 1)},
        dtype="uint8", result="int32",
    ),
    "whole numbers beyond 24 bits": Case(
        "ConvInteger", ((1, 70, 4, 5), (2, 70, 3, 3), ()), dtype="uint8", result="int32",
    ),
    "short-time spectra": Case(
        "STFT", ((2, 50, 1), (), (12,)), constants={1: np.array(7, np.int64)},
    ),
}


def drawn(case: Case, number: int, rng: np.random.Generator) -> npt.NDArray[Any]:
    if number in case.constants:
        return case.constants[number]
    if case.dtype == "uint8":
        return rng.integers(100, 256, case.shapes[number]).astype(np.uint8)
    return rng.standard_normal(case.shapes[number]).astype(np.float32)


@pytest.mark.parametrize("name", [*CASES])
def test_results_are_those_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    case, rng = CASES[name], np.random.default_rng(0)
    count = max(len(case.shapes), *(i + 1 for i in case.constants), 0)
    arrays = {f"i{i}": drawn(case, i, rng) for i in range(count)}
    given = {name: array for name, array in arrays.items() if int(name[1:]) in case.computed}
    body = graph(
        [node(case.operator, [*arrays], ["y"], **case.attributes)],
        [value(name, array.shape, array.dtype.name) for name, array in given.items()], [],
        {name: array for name, array in arrays.items() if name not in given},
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(model(body + block(12, value("y", None, case.result))))
    network = load(path)
    (ours,) = interpret(network, [*given.values()])
    with OnnxReference(path, network, NO_CHOICES) as runtime:
        (theirs,) = runtime.run([*given.values()])
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    limit = 0 if case.result == "int32" else 1e-5 * np.abs(theirs).max()
    assert np.abs(ours.astype(np.float64) - theirs).max() <= limit

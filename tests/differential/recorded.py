"""Networks for which TensorFlow Lite Micro's kernels give other integers than tflite-runtime's.

    python -m tests.differential.recorded

draws them anew, runs them in the package tflite-micro (TensorFlow Lite Micro's reference kernels
for a PC; ``CRTEXPORT_TFLM_PYTHON`` names the Python that has it) and writes networks, inputs and
results to ``tests/golden/tflm.json``.
"""

from __future__ import annotations

import base64
import json
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from crtexport.importers import load
from crtexport.ir.numerics import Numerics
from crtexport.simulation.reference import ReferenceModel
from crtexport.support.errors import CrtExportError
from tests.differential.cases import CASES, SeededDraw
from tests.differential.cases_decode import CODES
from tests.differential.cases_precision import PRECISION_CASES
from tests.differential.cases_signal import SIGNAL_CASES
from tests.differential.draw import Array, Case
from tests.differential.network import interpret

FILE = Path(__file__).resolve().parents[1] / "golden" / "tflm.json"

DIFFERENT = (
    ("add", "int16"), ("add", "int32"), ("fully_connected", "int16"), ("leaky_relu", "int16"),
    ("logistic", "int8"), ("relu6", "int16"), ("relu6", "int8"), ("softmax", "int16"),
    ("sub", "int16"), ("tanh", "int8"), ("transpose_conv_2d", "int16"),
    ("unidirectional_sequence_lstm", "int8"),
    *((name, "int8") for name in PRECISION_CASES if name != "lstm by scales"),
    *((f"{name} by scales", "int16") for name in ("abs", "relu", "leaky_relu", "mul")),
)
"""Operators whose results depend on whether ``--numerics`` is tflite or tflm."""

ALONE = (
    ("unidirectional_sequence_lstm", "int16"), ("lstm by scales", "int16"),
    ("lut", "int8"), ("lut", "int16"),
    ("prune", "int8"), ("prune", "int16"), ("huffman", "int8"), ("huffman", "int16"),
    ("rfft of int16", "int16"), ("filter_bank", "uint32"), ("pcan", "uint32"), ("log", "uint32"),
)
"""Operators that only TensorFlow Lite Micro has."""

_MOST_SEEDS = 3000


def drawn(name: str, dtype: str, seed: int) -> Case:
    if name in CODES:
        return CODES[name](SeededDraw(seed), dtype)[0]
    if name in SIGNAL_CASES:
        streamed = SIGNAL_CASES[name](SeededDraw(seed))
        return Case(streamed.content, streamed.steps[0])
    return {**CASES, **PRECISION_CASES}[name](SeededDraw(seed), dtype)


def computed(case: Case, numerics: Numerics) -> list[Array]:
    """Returns what our kernels compute."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(case.content)
        return interpret(load(path, numerics=numerics), case.inputs)


def equal(one: list[Array], other: list[Array]) -> bool:
    return all(
        a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(one, other, strict=True)
    )


def packed(array: Array) -> list[Any]:
    data = base64.b64encode(zlib.compress(array.tobytes(), 9)).decode()
    return [array.dtype.name, list(array.shape), data]


def unpacked(entry: list[Any]) -> Array:
    dtype, shape, data = entry
    return np.frombuffer(zlib.decompress(base64.b64decode(data)), dtype).reshape(shape)


class Recorded(Struct, frozen=True):
    """A network with inputs, and the results that TensorFlow Lite Micro gave."""

    case: Case
    results: list[Array]


def recorded() -> dict[tuple[str, str], Recorded]:
    """Returns the recorded networks by operator and type."""
    entries = json.loads(FILE.read_text(encoding="utf-8"))["results"]
    return {
        (entry["operator"], entry["dtype"]): Recorded(
            Case(unpacked(entry["network"]).tobytes(), tuple(map(unpacked, entry["inputs"]))),
            [unpacked(result) for result in entry["results"]],
        )
        for entry in entries
    }


def _tells_apart(name: str, dtype: str) -> Case:
    for seed in range(_MOST_SEEDS):
        case = drawn(name, dtype, seed)
        try:
            if not equal(computed(case, Numerics.TFLITE), computed(case, Numerics.TFLM)):
                return case
        except CrtExportError:
            continue
    raise LookupError(f"no network of {name} in {dtype} differs")


def _taken(name: str, dtype: str) -> Case:
    """Returns the first network that isn't refused here."""
    for seed in range(_MOST_SEEDS):
        case = drawn(name, dtype, seed)
        try:
            computed(case, Numerics.TFLM)
        except CrtExportError:
            continue
        return case
    raise LookupError(f"every network of {name} in {dtype} is refused")


def _entries(runtime: ReferenceModel) -> Iterator[dict[str, Any]]:
    for name, dtype in (*DIFFERENT, *ALONE):
        alone = (name, dtype) in ALONE
        case = _taken(name, dtype) if alone else _tells_apart(name, dtype)
        runtime.load(case.content)
        results = runtime.run(case.inputs)
        yield {
            "operator": name, "dtype": dtype,
            "network": packed(np.frombuffer(case.content, np.uint8)),
            "inputs": list(map(packed, case.inputs)), "results": list(map(packed, results)),
        }


def record() -> None:
    case = drawn("reshape", "int8", 0)
    with ReferenceModel(case.content, runtime="tflite-micro") as runtime:
        entries = list(_entries(runtime))
        lines = ",\n".join(json.dumps(entry) for entry in entries)
        FILE.write_text(
            f'{{"runtime": {json.dumps(runtime.description)}, "results": [\n{lines}\n]}}\n',
            encoding="utf-8",
        )


if __name__ == "__main__":
    record()

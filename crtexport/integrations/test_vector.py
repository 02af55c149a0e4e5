"""Recorded inputs and outputs of models as C literals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from crtexport.firmware.parts import FirmwareParts, TensorPart
from crtexport.firmware.project import main_context
from crtexport.ir.types import DType
from crtexport.mlf.arrays import Array

Recorded = Mapping[str, tuple[dict[str, Array], dict[str, Array]]]
"""By model, one sample: inputs and outputs by their names in C. No outputs: none are known."""

TOLERANCE = 1e-5
"""Of the largest expected value: compilers may contract and order float arithmetic differently."""

_C_TYPES = {
    DType.BOOL: "uint8_t", DType.FLOAT16: "uint16_t", DType.FLOAT32: "float",
    DType.FLOAT64: "double",
}
_COLUMNS = 96


class TensorValues(Struct, frozen=True):
    """A tensor of the test: its member of the interface's struct, and its elements as text;
    ``lines`` is empty where nothing was recorded. ``tolerance``: "0" means equal bits."""

    field: str
    c_type: str
    count: int
    lines: tuple[str, ...]
    tolerance: str


def values(part: TensorPart, array: Array | None) -> TensorValues:
    """Returns the tensor ``part`` with the elements of ``array``, which has its shape and type."""
    c_type = _C_TYPES.get(part.dtype, f"{part.dtype.value}_t")
    count = math.prod(part.shape)
    if array is None:
        return TensorValues(part.field, c_type, count, (), "0")
    flat = np.ascontiguousarray(array).ravel()
    if part.dtype in (DType.FLOAT16, DType.BOOL):
        flat = flat.view(np.uint16 if part.dtype is DType.FLOAT16 else np.uint8)
    tolerance = "0"
    if part.dtype in (DType.FLOAT32, DType.FLOAT64):
        finite = np.abs(flat[np.isfinite(flat)]).astype(np.float64)
        tolerance = _literal(part.dtype, TOLERANCE * float(max(finite, default=0.0)))
    lines = _wrapped(_literal(part.dtype, value) for value in flat.tolist())
    return TensorValues(part.field, c_type, count, tuple(lines), tolerance)


def test_context(parts: FirmwareParts, recorded: Recorded) -> dict[str, object]:
    """Returns the variables of ``crt_test.c.j2`` about the models."""
    models = []
    for model, texts in zip(parts.models, main_context(parts)["models"], strict=True):  # type: ignore[call-overload]
        inputs, outputs = recorded[model.module]
        models.append({
            **texts,
            "test_inputs": sample_of(model, inputs, outputs=False),
            "test_outputs": sample_of(model, outputs, outputs=True),
            "recorded": bool(outputs) or not model.outputs,
        })
    lines = [
        line for model in models for part in (*model["test_inputs"], *model["test_outputs"])
        for line in part.lines
    ]
    return {
        "models": models, "recorded": all(model["recorded"] for model in models),
        "infinite": any("NAN" in line or "INFINITY" in line for line in lines),
    }


def sample_of(model: FirmwareParts, sample: dict[str, Array], outputs: bool) -> list[TensorValues]:
    """Returns the inputs or outputs of a model; arrays are named as in its C struct."""
    parts = model.outputs if outputs else model.inputs
    return [values(part, sample.get(part.field)) for part in parts]


def _literal(dtype: DType, value: float) -> str:
    """Returns the C literal of a value as ``tolist`` has it."""
    if dtype in (DType.FLOAT32, DType.FLOAT64):
        suffix = "f" if dtype is DType.FLOAT32 else ""
        if not math.isfinite(value):
            return "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
        text = repr(value if dtype is DType.FLOAT64 else float(np.float32(value)))
        return f"{text}{suffix}"
    if dtype is DType.INT64:
        return "INT64_MIN" if value == -(1 << 63) else f"INT64_C({value})"
    if dtype is DType.INT32:
        return "INT32_MIN" if value == -(1 << 31) else str(value)
    return f"{value}u" if dtype is DType.UINT32 else str(value)


def _wrapped(words: Iterator[str]) -> Iterator[str]:
    line = ""
    for word in words:
        if line and len(line) + len(word) + 2 > _COLUMNS:
            yield line
            line = ""
        line += f"{' ' if line else ''}{word},"
    if line:
        yield line

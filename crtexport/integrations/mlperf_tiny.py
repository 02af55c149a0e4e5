"""The benchmark MLPerf Tiny: its networks, by their inputs and outputs, and what they are sent."""

from __future__ import annotations

import math

from msgspec import Struct

from crtexport.firmware.parts import FirmwareParts
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError


class Task(Struct, frozen=True):
    """A task of the benchmark. ``version`` is the end of its EE_MODEL_VERSION; ``sent`` says what
    the runner sends: "bytes" of the input, "pixels" of 0 to 255, or "floats". ``distance``: the
    result is the mean squared distance of output and input instead of the outputs.
    """

    version: str
    elements: tuple[int, int]
    sent: str
    distance: bool = False


TASKS = (
    Task("KWS01", (49 * 10, 12), "bytes"),
    Task("VWW01", (96 * 96 * 3, 2), "pixels"),
    Task("IC01", (32 * 32 * 3, 10), "pixels"),
    Task("AD01", (640, 640), "floats", distance=True),
)


def mlperf_context(parts: FirmwareParts, where: str) -> dict[str, object]:
    """Returns the variables of the format's templates. Raises CrtExportError for networks that are
    none of the benchmark's."""
    if parts.others or len(parts.inputs) != 1 or len(parts.outputs) != 1:
        raise CrtExportError(
            "MLPerf Tiny runs one network with one input and one output", location=where
        )
    tensors = source, result = parts.inputs[0], parts.outputs[0]
    elements = tuple(math.prod(one.shape) for one in tensors)
    task = next((task for task in TASKS if task.elements == elements), None)
    if task is None:
        known = ", ".join(f"{one.version} {one.elements[0]} and {one.elements[1]}" for one in TASKS)
        raise CrtExportError(
            f"MLPerf Tiny has no network with {elements[0]} inputs and {elements[1]} outputs",
            location=where, hint=f"it has {known}",
        )
    integers = DType.INT8, DType.UINT8
    for one in tensors:
        named = f"TVMGEN_{parts.module}_{one.field}".upper()
        quantized = one.dtype in integers and f"#define {named}_SCALE " in parts.header
        if not quantized and (one.dtype is not DType.FLOAT32 or task.sent != "floats"):
            raise CrtExportError(
                f"the benchmark's runner sends integers to {task.version}; this network's "
                f"{one.name} has {one.dtype.value} without a scale for all",
                location=where, hint="`crtexport quantize` makes integers of float networks",
            )
    return {
        "task": task, "input": source, "output": result,
        "input_type": _c_type(source.dtype), "output_type": _c_type(result.dtype),
        "input_elements": elements[0], "output_elements": elements[1],
        "input_macro": f"TVMGEN_{parts.module}_{source.field}".upper(),
        "output_macro": f"TVMGEN_{parts.module}_{result.field}".upper(),
    }


def _c_type(dtype: DType) -> str:
    return "float" if dtype is DType.FLOAT32 else f"{dtype.value}_t"

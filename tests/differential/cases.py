"""Single-operator networks with drawn shapes, options, scales and zero points, one per operator.

Each case is a function of a :class:`Draw` and an element type, and gives a .tflite file and inputs
for it. Families of their own: ``cases_<family>.py``, with ``CASES`` and ``DTYPES`` merged here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.differential import (
    cases_arithmetic,
    cases_detection,
    cases_recurrent,
    cases_reduce,
    cases_shape,
    cases_state,
    cases_unary,
    cases_weighted,
)
from tests.differential.draw import (
    Array,
    Case,
    Draw,
    SeededDraw,
    quantization,
    values,
)
from tests.tflite_builder import ModelBuilder

__all__ = ["CASES", "DTYPES", "PAIRS", "TYPES", "Array", "Case", "Draw", "SeededDraw"]


def reshape(draw: Draw, dtype: str) -> Case:
    a, b, c = (draw.integer(1, 4) for _ in range(3))
    q = quantization(draw, dtype)
    m = ModelBuilder()
    x = m.tensor("x", (a, b, c), dtype, **q)
    shape = m.tensor("shape", (2,), "int32", data=[a, b * c])
    y = m.tensor("y", (a, b * c), dtype, **q)
    m.op("RESHAPE", [x, shape], [y])
    return Case(m.build([x], [y]), (values(draw, (a, b, c), dtype),))


def pad(draw: Draw, dtype: str) -> Case:
    rank = draw.integer(1, 4)
    shape = [draw.integer(1, 4) for _ in range(rank)]
    frame = [[draw.integer(0, 2), draw.integer(0, 2)] for _ in range(rank)]
    q = quantization(draw, dtype)
    m = ModelBuilder()
    x = m.tensor("x", shape, dtype, **q)
    paddings = m.tensor("paddings", (rank, 2), "int32", data=frame)
    out = [n + before + after for n, (before, after) in zip(shape, frame, strict=True)]
    y = m.tensor("y", out, dtype, **q)
    m.op("PAD", [x, paddings], [y])
    return Case(m.build([x], [y]), (values(draw, shape, dtype),))


def concatenation(draw: Draw, dtype: str) -> Case:
    rank, count = draw.integer(1, 4), draw.integer(1, 3)
    axis = draw.integer(0, rank - 1)
    base = [draw.integer(1, 4) for _ in range(rank)]
    extents = [draw.integer(1, 4) for _ in range(count)]
    shapes = [[n if a != axis else e for a, n in enumerate(base)] for e in extents]
    out = [n if a != axis else sum(extents) for a, n in enumerate(base)]
    q = quantization(draw, dtype)
    m = ModelBuilder()

    def own() -> dict[str, Any]:
        """Scales of int16 are nothing to the runtime."""
        return quantization(draw, dtype) if dtype == "int16" else q

    inputs = [m.tensor(f"x{i}", s, dtype, **own()) for i, s in enumerate(shapes)]
    y = m.tensor("y", out, dtype, **own())
    m.op("CONCATENATION", inputs, [y], axis=draw.choice([axis, axis - rank]))
    return Case(m.build(inputs, [y]), tuple(values(draw, s, dtype) for s in shapes))


CASES: dict[str, Callable[[Draw, str], Case]] = {
    f.__name__: f
    for f in (reshape, pad, concatenation)
}
CASES |= cases_shape.CASES
CASES |= cases_arithmetic.CASES | cases_weighted.CASES | cases_state.CASES | cases_recurrent.CASES
CASES |= cases_unary.CASES | cases_reduce.CASES | cases_detection.CASES

DTYPES: dict[str, tuple[str, ...]] = {
    "concatenation": ("int8", "float32", "int16"),
    **cases_arithmetic.DTYPES, **cases_detection.DTYPES, **cases_reduce.DTYPES,
    **cases_shape.DTYPES, **cases_state.DTYPES, **cases_unary.DTYPES, **cases_weighted.DTYPES,
}
"""The element types that a case is made for, where they aren't int8 and float32."""

TYPES = {name: DTYPES.get(name, ("int8", "float32")) for name in CASES}
"""The element types that each case is made for."""

PAIRS = [(name, dtype) for name, types in TYPES.items() for dtype in types]
"""Every case with every element type."""

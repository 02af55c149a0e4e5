"""Networks of operators that TensorFlow Lite Micro has and no other runtime for a computer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy.typing as npt
from flatbuffers import flexbuffers
from msgspec import Struct

from tests.differential.cases_arithmetic import add_n
from tests.differential.cases_recurrent import svdf
from tests.differential.cases_reduce import cumsum
from tests.differential.draw import Case, Draw, quantization, values
from tests.tflite_builder import ModelBuilder

Array = npt.NDArray[Any]

SEEDS = range(6)


class Streamed(Struct, frozen=True):
    """A network and what it is given, step by step."""

    content: bytes
    steps: tuple[tuple[Array, ...], ...]


def streamed(draw: Draw, case: Case, count: int = 7) -> Streamed:
    """Returns ``case`` with ``count`` steps, of which it has the first."""
    more = (
        tuple(values(draw, array.shape, array.dtype.name) for array in case.inputs)
        for _ in range(count - 1)
    )
    return Streamed(case.content, (case.inputs, *more))


def _svdf(draw: Draw) -> Streamed:
    return streamed(draw, svdf(draw, "int8", "int8"))


def _int8(make: Callable[[Draw, str], Case]) -> Callable[[Draw], Streamed]:
    return lambda draw: streamed(draw, make(draw, "int8"), 2)


def _zeros_like(draw: Draw) -> Streamed:
    shape = [draw.integer(1, 5) for _ in range(draw.integer(1, 3))]
    m = ModelBuilder()
    x, y = (m.tensor(name, shape, "int8", **quantization(draw, "int8")) for name in "xy")
    m.op("ZEROS_LIKE", [x], [y])
    return Streamed(m.build([x], [y]), ((values(draw, shape, "int8"),),))


def _prelu(draw: Draw) -> Streamed:
    shape = [draw.integer(1, 5) for _ in range(draw.integer(1, 4))]
    slopes = draw.choice([shape, shape[-1:], [1] * (len(shape) - 1) + shape[-1:], [1]])
    m = ModelBuilder()
    x = m.tensor("x", shape, "int16", **quantization(draw, "int16"))
    a = m.tensor(
        "a", slopes, "int8", **quantization(draw, "int8"), data=values(draw, slopes, "int8")
    )
    y = m.tensor("y", shape, "int16", **quantization(draw, "int16"))
    m.op("PRELU", [x, a], [y])
    return streamed(draw, Case(m.build([x], [y]), (values(draw, shape, "int16"),)), 2)


def _circular_buffer(draw: Draw) -> Streamed:
    """Its output is a variable of the file."""
    slots, width, depth = draw.choice([5, 13, 2, 3]), draw.integer(1, 3), draw.integer(1, 4)
    said = slots in (2, 3) or draw.choice([True, False])
    quant = quantization(draw, "int8")
    m = ModelBuilder()
    x = m.tensor("x", (1, 1, width, depth), "int8", **quant)
    kept = m.tensor("kept", (1, slots, width, depth), "int8", variable=True, **quant)
    options = bytes(flexbuffers.Dumps({"cycles_max": 1})) if said else b""
    m.op("custom:CIRCULAR_BUFFER", [x], [kept], custom=options)
    y = m.tensor("y", (2, slots, width, depth), "int8", **quant)
    m.op("CONCATENATION", [kept, kept], [y], axis=0)
    case = Case(m.build([x], [y]), (values(draw, (1, 1, width, depth), "int8"),))
    return streamed(draw, case, 9)


def pauses(draw: Draw) -> Streamed:
    """What follows the first buffer runs in one of some runs, what follows the second in one of
    some of these, which has a state, too."""
    first, second = draw.integer(2, 3), draw.integer(2, 4)
    said = draw.choice([True, False])
    slots, depth, quant = draw.choice([2, 3, 4]), draw.integer(1, 4), quantization(draw, "int8")
    m = ModelBuilder()

    def buffer(name: str, given: int, cycles: int, depth: int, *, said: bool) -> int:
        kept = m.tensor(name, (1, slots, 1, depth), "int8", variable=True, **quant)
        options = bytes(flexbuffers.Dumps({"cycles_max": cycles})) if said else b""
        m.op("custom:CIRCULAR_BUFFER", [given], [kept], custom=options)
        return kept

    x = m.tensor("x", (1, 1, 1, depth), "int8", **quant)
    kept = buffer("a", x, first, depth, said=said)
    deeper = slots * depth
    row = m.tensor("row", (1, 1, 1, deeper), "int8", **quant)
    shape = m.tensor("shape", (4,), "int32", data=[1, 1, 1, deeper])
    m.op("RESHAPE", [kept, shape], [row])
    held = buffer("b", row, second, deeper, said=True)
    y = m.tensor("y", (2, slots, 1, deeper), "int8", **quant)
    m.op("CONCATENATION", [held, held], [y], axis=0)
    case = Case(m.build([x], [y]), (values(draw, (1, 1, 1, depth), "int8"),))
    return streamed(draw, case, 25)


TFLM_CASES: Mapping[str, Callable[[Draw], Streamed]] = {
    "svdf with an int8 state": _svdf,
    "cumsum of int8": _int8(cumsum),
    "add_n of int8": _int8(add_n),
    "zeros_like of int8": _zeros_like,
    "prelu of int16": _prelu,
    "circular buffer": _circular_buffer,
}

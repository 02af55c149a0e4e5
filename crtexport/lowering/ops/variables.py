"""READ_VARIABLE and ASSIGN_VARIABLE, and how kernels meet variables.

A variable is kept as its value XOR its initial value, bit by bit. Memory of zeros, which is what
.bss is before any code ran, then holds the initial values: no start-up code, no .data, no copy of
the initial values where they are zero, and a reset is a memset. Where they aren't, each access
takes one more instruction.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from crtexport.ir.graph import Graph
from crtexport.ir.ops import AssignVariable, ReadVariable
from crtexport.kir.builder import cast, const, load, xor
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.registry import Context, Lowered, Lowering, lowers

_WORDS = {1: Scalar.U8, 2: Scalar.U16, 4: Scalar.U32}
_NUMPY_WORDS = {1: "<u1", 2: "<u2", 4: "<u4"}


def initial_words(graph: Graph, tensor: int) -> npt.NDArray[np.generic] | None:
    """Returns the initial value of a variable as unsigned words of its element size, at most 32
    bits; None when all of them are 0."""
    variable, type_ = graph.tensors[tensor].variable, graph.type(tensor)
    if variable is None or variable.initial is None:
        return None
    words = np.frombuffer(variable.initial.read(), _NUMPY_WORDS[min(type_.dtype.itemsize, 4)])
    return words if words.any() else None


def _copy(context: Context, name: str, variable: int, source: int | None) -> Lowered:
    """Returns a kernel that copies input ``source``, or the variable at input 0, XOR its initial
    value."""
    lowering = Lowering(name, context)
    b, type_ = lowering.b, context.input(0)
    word = _WORDS[min(type_.dtype.itemsize, 4)]
    count = type_.nbytes // word.itemsize
    kept = lowering.variable(0, "variable", word)
    initial = initial_words(context.graph, variable)
    mask = None if initial is None else _mask(lowering, word, initial)
    given = kept if source is None else lowering.input(source, "value", word)
    target = lowering.output(dtype=word) if source is None else kept
    with b.loop("i", count) as i:
        value: Expr = load(given, i)
        if mask is not None:
            mixed = xor(cast(value, Scalar.U32), cast(_at(mask, i), Scalar.U32))
            value = cast(mixed, word)
        b.store(target, i, value)
    return lowering.finish()


def _mask(
    lowering: Lowering, word: Scalar, initial: npt.NDArray[np.generic]
) -> Buffer | Expr:
    if (initial == initial[0]).all():
        return const(int(initial[0]), word)
    return lowering.derived("initial", word, initial, "the value before the first run")


def _at(mask: Buffer | Expr, index: Expr) -> Expr:
    return load(mask, index) if isinstance(mask, Buffer) else mask


@lowers(ReadVariable)
def read_variable(context: Context) -> Lowered:
    """A copy of the variable's value."""
    variable = context.graph.required(context.node, 0)
    return _copy(context, "read_variable", variable, None)


@lowers(AssignVariable)
def assign_variable(context: Context) -> Lowered:
    """A new value for the variable."""
    variable = context.graph.required(context.node, 0)
    return _copy(context, "assign_variable", variable, 1)

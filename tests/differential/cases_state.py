"""Networks that read and write variables, with initial values and without."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crtexport.ir.graph import Graph, Node, Tensor, Variable
from crtexport.ir.ops import AssignVariable, Op, ReadVariable
from crtexport.ir.types import ConstantRef, DType, TensorType
from crtexport.simulation.tflite_writer import to_tflite
from tests.differential.draw import Case, Draw, values


def _case(draw: Draw, dtype: str, ops: tuple[type[ReadVariable | AssignVariable], ...]) -> Case:
    """Reads (each an output) and assignments of the input, in this order."""
    shape = tuple(draw.integer(1, 5) for _ in range(draw.integer(1, 3)))
    type_ = TensorType(DType(dtype), shape)
    initial = draw.choice([
        None, values(draw, shape, dtype), np.full(shape, draw.integer(1, 100), dtype),
    ])
    variable = Variable(None if initial is None else ConstantRef.of(initial))
    tensors = [Tensor("x", type_), Tensor("kept", type_, variable=variable)]
    nodes: list[Node] = []
    for kind in ops:
        op: Op = kind()
        if kind is AssignVariable:
            nodes.append(Node(op, (1, 0), ()))
            continue
        tensors.append(Tensor(f"y{len(tensors)}", type_))
        nodes.append(Node(op, (1,), (len(tensors) - 1,)))
    outputs = tuple(range(2, len(tensors)))
    graph = Graph("case", tuple(tensors), tuple(nodes), (0,), outputs)
    return Case(to_tflite(graph), (values(draw, shape, dtype),))


def read_variable(draw: Draw, dtype: str) -> Case:
    return _case(draw, dtype, (ReadVariable,))


def assign_variable(draw: Draw, dtype: str) -> Case:
    return _case(draw, dtype, (ReadVariable, AssignVariable, ReadVariable))


CASES: dict[str, Callable[[Draw, str], Case]] = {
    f.__name__: f for f in (read_variable, assign_variable)
}
DTYPES = dict.fromkeys(CASES, ("int8", "int16", "int32", "float32"))

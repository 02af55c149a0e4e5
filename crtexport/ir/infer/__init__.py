"""The output types of every operator from the types of its inputs.

Scales and zero points are the model's choice and never inferred: the results carry none.
"""

from __future__ import annotations

from crtexport.ir.graph import Graph
from crtexport.ir.infer import (
    activation,
    arithmetic,
    compare,
    control,
    detection,
    external,
    gather,
    layout,
    learning,
    pool,
    quantize,
    recurrent,
    reduce,
    resize,
    sample,
    shape,
    signal,
    state,
    unary,
    weighted,
)
from crtexport.ir.infer.base import Inputs, InputTypes, counted, inference_of
from crtexport.ir.ops import Op
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError

FAMILIES = (
    activation, arithmetic, compare, control, detection, external, gather, layout, learning, pool,
    quantize, recurrent, reduce, resize, sample, shape, signal, state,
    unary, weighted,
)

__all__ = ["FAMILIES", "Inputs", "arity", "infer"]


def infer(
    op: Op, inputs: Inputs, *, declared: tuple[DType, ...] = (DType.INT8,),
    graphs: tuple[Graph, ...] = (),
) -> tuple[TensorType, ...]:
    """Returns the output types (dtype and static shape, no quantization) of ``op``.

    ``inputs`` has None for an optional input left out; optional inputs at the end may be missing.
    ``declared`` are the outputs' element types in the model, which decide where an operator leaves
    them open (Quantize). ``graphs`` are those of the node. Raises CrtExportError, without a
    location, when the inputs don't fit the operator.
    """
    required, most = arity(op)
    if len(inputs) < required or (most is not None and len(inputs) > most):
        raise CrtExportError(f"expected {counted(required, most)}, found {len(inputs)}")
    given = InputTypes(inputs, declared, graphs)
    for index in range(required):
        given[index]  # raises when it is missing
    return inference_of(type(op)).rule(op, given)


def arity(op: Op) -> tuple[int, int | None]:
    """Returns the least and the largest number of inputs of an operator (None: any number)."""
    inference = inference_of(type(op))
    return inference.required, inference.most

"""Operators that remember their past inputs."""

from __future__ import annotations

from crtexport.errors import CrtExportError
from crtexport.ir.infer.base import Given, infers
from crtexport.ir.ops import Svdf, UnidirectionalSequenceLstm
from crtexport.ir.types import TensorType


def _expect(name: str, found: TensorType, shape: tuple[int, ...]) -> None:
    if found.shape != shape:
        raise CrtExportError(f"{name} must have the shape {list(shape)}, found {found}")


@infers(Svdf, required=4, most=5)
def svdf(op: Svdf, given: Given) -> tuple[TensorType, ...]:
    """(batches, depth) to (batches, units)."""
    data, feature, time, bias = given[0], given[1], given[2], given.optional(4)
    if len(data.shape) != 2 or len(feature.shape) != 2 or len(time.shape) != 2:
        raise CrtExportError("the input and both weights must have 2 dimensions")
    (batches, depth), (filters, memory) = data.shape, time.shape
    if op.rank < 1 or filters % op.rank or memory < 1:
        raise CrtExportError(f"{filters} filters of {memory} steps don't make up rank {op.rank}")
    _expect("the feature weights", feature, (filters, depth))
    _expect("the state", given[3], (batches, memory * filters))
    units = filters // op.rank
    if bias is not None:
        _expect("the bias", bias, (units,))
    return (TensorType(data.dtype, (batches, units)),)


@infers(UnidirectionalSequenceLstm, required=15)
def lstm(op: UnidirectionalSequenceLstm, given: Given) -> tuple[TensorType, ...]:
    """(batches, steps, depth), or steps first, to the same with units instead of depth."""
    data, recurrent = given[0], given[5]
    if len(data.shape) != 3 or len(recurrent.shape) != 2:
        raise CrtExportError("the input must have 3 dimensions and the weights 2")
    depth, units = data.shape[2], recurrent.shape[1]
    batches = data.shape[1 if op.time_major else 0]
    for gate in range(4):
        _expect(f"input weights {gate}", given[1 + gate], (units, depth))
        _expect(f"recurrent weights {gate}", given[5 + gate], (units, units))
        _expect(f"bias {gate}", given[9 + gate], (units,))
    _expect("the output state", given[13], (batches, units))
    _expect("the cell state", given[14], (batches, units))
    if op.cell_clip < 0:
        raise CrtExportError(f"the clip {op.cell_clip} of the cells is negative")
    return (TensorType(data.dtype, (*data.shape[:2], units)),)

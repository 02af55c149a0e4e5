"""Recurrent operators."""

from __future__ import annotations

from crtexport.ir import ops
from crtexport.ir.infer.base import InputTypes, infers
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError


def _expect(name: str, type_: TensorType, shape: tuple[int, ...]) -> None:
    if type_.shape != shape:
        raise CrtExportError(f"{name} must have the shape {list(shape)}, found {type_}")


@infers(ops.Svdf, required=4, most=5)
def svdf(op: ops.Svdf, inputs: InputTypes) -> tuple[TensorType, ...]:
    """(batches, depth) to (batches, units)."""
    data, feature, time, bias = inputs[0], inputs[1], inputs[2], inputs.optional(4)
    if len(data.shape) != 2 or len(feature.shape) != 2 or len(time.shape) != 2:
        raise CrtExportError("the input and both weights must have 2 dimensions")
    (batches, depth), (filters, memory) = data.shape, time.shape
    if op.rank < 1 or filters % op.rank or memory < 1:
        raise CrtExportError(f"{filters} filters of {memory} steps don't make up rank {op.rank}")
    _expect("the feature weights", feature, (filters, depth))
    _expect("the state", inputs[3], (batches, memory * filters))
    units = filters // op.rank
    if bias is not None:
        _expect("the bias", bias, (units,))
    return (TensorType(data.dtype, (batches, units)),)


@infers(ops.UnidirectionalSequenceLstm, required=15)
def lstm(op: ops.UnidirectionalSequenceLstm, inputs: InputTypes) -> tuple[TensorType, ...]:
    """(batches, steps, depth), or steps first, to the same with units instead of depth."""
    data, recurrent = inputs[0], inputs[5]
    if len(data.shape) != 3 or len(recurrent.shape) != 2:
        raise CrtExportError("the input must have 3 dimensions and the weights 2")
    depth, units = data.shape[2], recurrent.shape[1]
    batches = data.shape[1 if op.time_major else 0]
    for gate in range(4):
        _expect(f"input weights {gate}", inputs[1 + gate], (units, depth))
        _expect(f"recurrent weights {gate}", inputs[5 + gate], (units, units))
        _expect(f"bias {gate}", inputs[9 + gate], (units,))
    _expect("the output state", inputs[13], (batches, units))
    _expect("the cell state", inputs[14], (batches, units))
    if op.cell_clip < 0:
        raise CrtExportError(f"the clip {op.cell_clip} of the cells is negative")
    return (TensorType(data.dtype, (*data.shape[:2], units)),)


@infers(ops.Rnn, ops.Gru, required=4, most=6)
def rnn(op: ops.Rnn | ops.Gru, inputs: InputTypes) -> tuple[TensorType, ...]:
    return _recurrent(op, inputs, 3 if isinstance(op, ops.Gru) else 1)[:-1]


@infers(ops.Lstm, required=4, most=8)
def cells(op: ops.Lstm, inputs: InputTypes) -> tuple[TensorType, ...]:
    results = _recurrent(op, inputs, 4)
    kept, peepholes = inputs.optional(6), inputs.optional(7)
    if kept is not None:
        _expect("the initial cells", kept, results[-1].shape)
    if peepholes is not None:
        directions, _, units = results[-1].shape
        _expect("the peepholes", peepholes, (directions, units, 3))
    return results


def _recurrent(op: ops.Recurrent, inputs: InputTypes, gates: int) -> tuple[TensorType, ...]:
    """Returns the types of the outputs, that of the final state twice."""
    data, recurrent = inputs[0], inputs[2]
    if len(data.shape) != 3 or len(recurrent.shape) != 4:
        raise CrtExportError("the input must have 3 dimensions and the weights 4")
    if op.clip < 0:
        raise CrtExportError(f"the clip {op.clip} is negative")
    units, directions = recurrent.shape[1], 1 + (op.direction is ops.Direction.BIDIRECTIONAL)
    batches = data.shape[0 if op.batch_major else 1]
    _expect("the weights", inputs[1], (directions, units, data.shape[2], gates))
    _expect("the recurrent weights", recurrent, (directions, units, units, gates))
    biases = gates + (isinstance(op, ops.Gru) and op.linear_before_reset)
    _expect("the bias", inputs[3], (directions, units, biases))
    lengths, start = inputs.optional(4), inputs.optional(5)
    if lengths is not None:
        _expect("the numbers of steps", lengths, (batches,))
        if lengths.dtype is not DType.INT32:
            raise CrtExportError(f"the numbers of steps must be int32, not {lengths}")
    if start is not None:
        _expect("the initial state", start, (directions, batches, units))
    _check_functions(op, directions)
    state = TensorType(data.dtype, (directions, batches, units))
    if not op.each_step:
        return state, state
    return TensorType(data.dtype, (*data.shape[:2], directions, units)), state, state


def _check_functions(op: ops.Recurrent, directions: int) -> None:
    wanted = directions * len(op.usual)
    if op.functions and len(op.functions) != wanted:
        raise CrtExportError(f"{len(op.functions)} functions of gates, not {wanted}")
    for name, values in (("alpha", op.alpha), ("beta", op.beta)):
        if values and len(values) != wanted:
            raise CrtExportError(f"{len(values)} values of {name}, not {wanted}")

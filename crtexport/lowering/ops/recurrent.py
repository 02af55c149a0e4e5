"""RNN, GRU and LSTM as ONNX has them: float32, one or both directions, states in and out."""

from __future__ import annotations

from crtexport.ir.ops import Gru, Lstm, Rnn
from crtexport.ir.types import DType
from crtexport.lowering.numerics import recurrent_cells
from crtexport.lowering.numerics.recurrent_cells import LENGTHS
from crtexport.lowering.registry import Context, Lowered, Lowering, lowers


def recurrent_types(context: Context) -> str | None:
    """All tensors must be float32, but the numbers of steps (int32)."""
    positions = [i for i in range(len(context.node.inputs)) if i != LENGTHS and context.has(i)]
    found = {context.input(i).dtype for i in positions} | {context.output().dtype}
    if found == {DType.FLOAT32}:
        return None
    return "found " + ", ".join(sorted(d.value for d in found))


@lowers(Rnn, recurrent_types)
def rnn(context: Context) -> Lowered:
    """One sum for each unit and step."""
    return recurrent_cells.lower(Lowering("rnn", context))


@lowers(Gru, recurrent_types)
def gru(context: Context) -> Lowered:
    """Two gates and a candidate for each unit and step."""
    return recurrent_cells.lower(Lowering("gru", context))


@lowers(Lstm, recurrent_types)
def lstm(context: Context) -> Lowered:
    """Four gates for each cell and step."""
    return recurrent_cells.lower(Lowering("lstm", context))

"""Decoders of recurrent operators."""

from __future__ import annotations

from collections.abc import Mapping

from crtexport.importers.tflite.operators import Decoded, Decoder, SourceOperator
from crtexport.importers.tflite.schema import (
    ActivationFunctionType,
    BuiltinOperator,
    SVDFOptions,
    UnidirectionalSequenceLSTMOptions,
)
from crtexport.ir.ops import Svdf, UnidirectionalSequenceLstm
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

# Inputs of UNIDIRECTIONAL_SEQUENCE_LSTM that stay, in our order; the others are what it can do
# besides: peepholes, projection, normalization of layers.
_KEPT = (0, *range(1, 9), *range(12, 16), 18, 19)
_OTHERS = (*range(9, 12), 16, 17, *range(20, 24))
_STATE = 18
_HIDDEN = 4  # the intermediate tensor whose scale the products of gates and cells have


def _svdf(source: SourceOperator) -> Decoded:
    options = source.options(SVDFOptions)
    if len(source.inputs) != 5:
        raise CrtExportError(f"expected 5 inputs, found {len(source.inputs)}")
    data, feature, time, bias, state = source.inputs
    op = Svdf(options.rank, source.activation(options))
    return op, (data, feature, time, state, bias)


def _lstm(source: SourceOperator) -> Decoded:
    options, inputs = source.options(UnidirectionalSequenceLSTMOptions), source.inputs
    if len(inputs) not in (20, 24):
        raise CrtExportError(f"expected 20 or 24 inputs, found {len(inputs)}")
    if any(inputs[i] is not None for i in _OTHERS if i < len(inputs)):
        raise CrtExportError("peepholes, projections and layer normalization are not supported")
    if any(inputs[i] is None for i in _KEPT):
        raise CrtExportError("an LSTM with coupled input and forget gates is not supported")
    if options.fused_activation_function != ActivationFunctionType.TANH:
        raise CrtExportError("only the activation TANH is supported")
    scale, zero_point = 0.0, 0
    if source.type(0).dtype is not DType.FLOAT32:
        scale, zero_point = _hidden(source)
    op = UnidirectionalSequenceLstm(
        options.time_major, options.cell_clip, scale, zero_point
    )
    return op, tuple(inputs[i] for i in _KEPT)


def _hidden(source: SourceOperator) -> tuple[float, int]:
    """Scale and zero point of what a quantized LSTM computes before it becomes the output."""
    tensors = source.table.intermediates
    quant = source.tensors.tensor(tensors[_HIDDEN]).type.quant if len(tensors) > _HIDDEN else None
    if quant is None:  # networks for TensorFlow Lite Micro, which takes that of the state
        quant = source.type(_STATE).quant
    if quant is None:
        raise CrtExportError("neither the intermediate tensors nor the hidden state has a scale")
    return quant.scale[0], quant.zero_point[0]


DECODERS: Mapping[int, Decoder] = {
    BuiltinOperator.SVDF: _svdf,
    BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM: _lstm,
}

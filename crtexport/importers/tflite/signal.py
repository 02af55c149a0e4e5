"""TensorFlow Lite Micro's custom operators of audio front ends, ``Signal*``.

Options are flexbuffers; their names are those of ``signal/micro/kernels``.
"""

from __future__ import annotations

from collections.abc import Mapping

from crtexport.importers.tflite.operators import Decoded, Decoder, Plain, SourceOperator
from crtexport.importers.tflite.ops_detection import Options
from crtexport.ir.ops import (
    Energy,
    FftAutoScale,
    FilterBank,
    FilterBankLog,
    FilterBankSquareRoot,
    Irfft,
    Pcan,
    Rfft,
    Window,
)
from crtexport.support.errors import CrtExportError

FILTER_BANK = "SignalFilterBank"
"""The operator whose results are uint64 in the file: sums below 2**63, which int64 holds, too."""


def _window(source: SourceOperator) -> Decoded:
    return Window(Options(source).integer("shift")), source.inputs


def _energy(source: SourceOperator) -> Decoded:
    given = Options(source)
    return Energy(given.integer("start_index"), given.integer("end_index")), source.inputs


def _filter_bank(source: SourceOperator) -> Decoded:
    channels, tables = Options(source).integer("num_channels"), source.type(3, "starts")
    if tables.elements != channels + 1:
        raise CrtExportError(f"{channels} channels have tables of {tables.elements}")
    return FilterBank(), source.inputs


def _filter_bank_log(source: SourceOperator) -> Decoded:
    given = Options(source)
    op = FilterBankLog(given.integer("output_scale"), given.integer("input_correction_bits"))
    return op, source.inputs


def _transform(kind: type[Rfft | Irfft]) -> Decoder:
    def decode(source: SourceOperator) -> Decoded:
        return kind(Options(source).integer("fft_length")), source.inputs

    return decode


def _pcan(source: SourceOperator) -> Decoded:
    return Pcan(Options(source).integer("snr_shift")), source.inputs


DECODERS: Mapping[str, Decoder] = {
    "SignalEnergy": _energy,
    "SignalFftAutoScale": Plain(FftAutoScale()),
    FILTER_BANK: _filter_bank,
    "SignalFilterBankLog": _filter_bank_log,
    "SignalFilterBankSquareRoot": Plain(FilterBankSquareRoot()),
    "SignalIrfft": _transform(Irfft),
    "SignalPCAN": _pcan,
    "SignalRfft": _transform(Rfft),
    "SignalWindow": _window,
}
"""By the name of the custom operator."""

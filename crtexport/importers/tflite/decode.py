"""TensorFlow Lite Micro's custom operator TFLM_DECODE: compressed constants, decoded while reading.

Each result has two inputs: codes, and a table behind a header of 16 bytes. Formats and names are
those of ``decode_state*.cc``: a code is an index into a table of values (LUT), a bit that says
whether the element isn't the zero point (prune), or a codeword (Huffman). Bits come from the most
significant one of each byte on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.importers.tflite.operators import SourceOperator
from crtexport.ir.graph import Tensor
from crtexport.ir.types import ConstantRef, DType, TensorType
from crtexport.support.errors import CrtExportError

NAME = "TFLM_DECODE"

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_HEADER = 16
_TYPE, _VERSION, _TYPE_VERSION, _PARAMETERS, _STRIDE = 0, 1, 4, 5, 6  # offsets in the header
_WORD = 8  # bytes that any codeword and the bits before it fit in
_NARROW = (DType.INT8, DType.INT16)
_DECODED = (DType.BOOL, DType.FLOAT32, *_NARROW, DType.INT32, DType.INT64)


def decoded(source: SourceOperator) -> list[Tensor]:
    """Returns the operator's outputs as constants. Raises CrtExportError for inputs that aren't
    constants or are damaged."""
    if not source.outputs or len(source.inputs) != 2 * len(source.outputs):
        raise CrtExportError(
            f"{len(source.outputs)} results need twice as many inputs, found {len(source.inputs)}"
        )
    return [
        _tensor(source, index, source.tensors.tensor(output))
        for index, output in enumerate(source.outputs)
    ]


def _tensor(source: SourceOperator, index: int, result: Tensor) -> Tensor:
    codes, ancillary = (
        _bytes(source.given(2 * index + i, what)) for i, what in enumerate(("codes", "table"))
    )
    type_ = result.type
    if type_.dtype not in _DECODED:
        raise CrtExportError(f"{type_} can't be decoded")
    if len(ancillary) < _HEADER or ancillary[_VERSION] != 1 or ancillary[_TYPE_VERSION] != 1:
        raise CrtExportError("the table has no header of version 1")
    header, table = ancillary[:_HEADER], ancillary[_HEADER:]
    match int(header[_TYPE]):
        case 0:
            values = _looked_up(codes, header, table, type_)
        case 1:
            values = _huffman(codes, header, table, type_)
        case 2:
            values = _pruned(codes, table, type_)
        case other:
            raise CrtExportError(f"codes of type {other} are not supported")
    return Tensor(
        result.name, type_, ConstantRef.of(values.astype(type_.dtype.numpy).reshape(type_.shape))
    )


def _bytes(tensor: Tensor) -> Bytes:
    if tensor.constant is None:
        raise CrtExportError(f"{tensor.name!r} is computed at run time")
    return np.frombuffer(tensor.constant.read(), np.uint8)


def _bits(codes: Bytes, count: int) -> Bytes:
    if 8 * len(codes) < count:
        raise CrtExportError(f"{len(codes)} bytes of codes are too few: {count} bits are needed")
    return np.unpackbits(codes, count=count)


def _channels(type_: TensorType) -> tuple[int, Array]:
    """Returns the number of channels, and the channel of each element."""
    quant, elements = type_.quant, np.arange(type_.elements)
    count = len(quant.scale) if quant is not None else 1
    if quant is None or count == 1:
        return 1, 0 * elements
    last = len(type_.shape) - 1
    if quant.axis not in (0, last) or type_.shape[quant.axis] != count:
        raise CrtExportError(f"the scales of {type_} must be those of its first or last axis")
    return count, elements % count if quant.axis == last else elements // (
        max(type_.elements // count, 1)
    )


def _values(table: Bytes, dtype: DType) -> Array:
    whole = len(table) - len(table) % dtype.itemsize
    values: Array = table[:whole].view(dtype.numpy)
    return values


def _looked_up(codes: Bytes, header: Bytes, table: Bytes, type_: TensorType) -> Array:
    width, stride = int(header[_PARAMETERS]) & 7, int(header[_STRIDE])
    if not width:
        raise CrtExportError("indices have no bits")
    bits = _bits(codes, type_.elements * width).reshape(-1, width).astype(np.int64)
    indices = bits @ (1 << np.arange(width - 1, -1, -1))
    _, channel = _channels(type_)
    indices += channel * stride
    values = _values(table, type_.dtype)
    if indices.max(initial=-1) >= len(values):
        raise CrtExportError(f"an index is beyond the {len(values)} values of the table")
    found: Array = values[indices]
    return found


def _pruned(codes: Bytes, table: Bytes, type_: TensorType) -> Array:
    there = _bits(codes, type_.elements).astype(bool)
    values = _values(table, type_.dtype)
    wanted = int(there.sum())
    if wanted > len(values):
        raise CrtExportError(f"{wanted} elements are kept, the table has {len(values)}")
    zeros = np.array(type_.quant.zero_point if type_.quant is not None else (0,))
    _, channel = _channels(type_)
    result: Array = zeros[channel % len(zeros)].astype(type_.dtype.numpy)
    result[there] = values[:wanted]
    return result


def _huffman(codes: Bytes, header: Bytes, table: Bytes, type_: TensorType) -> Array:
    """Returns the decoded numbers. An entry of the tables is a symbol with the bits of its codeword
    that belong to the last table, or the offset of the next table with the bits that index it."""
    if type_.dtype not in _NARROW:
        raise CrtExportError(f"{type_} has no codewords")
    wide = bool(header[_PARAMETERS] & 1)
    if not wide and type_.dtype is not DType.INT8:
        raise CrtExportError(f"tables of 16 bits have no symbols for {type_}")
    first = (int(header[_PARAMETERS]) >> 4) + 1
    size, places, dtype = (4, 27, "<u4") if wide else (2, 11, "<u2")
    entries = table[: len(table) - len(table) % size].view(dtype).tolist()
    symbol = 1 << (8 * size - 1)
    stream, at = codes.tobytes() + bytes(_WORD), 0
    results = np.empty(type_.elements, np.int64)
    for element in range(type_.elements):
        place, used = 0, first
        while True:
            place += _next_bits(stream, at, used)
            at += used
            if place >= len(entries) or at > 8 * len(stream):
                raise CrtExportError(f"the codeword of element {element} is in none of the tables")
            entry = entries[place]
            count = (entry >> places) & 15
            if entry & symbol:
                break
            place, used = place + (entry & ((1 << places) - 1)), count + 1
        at -= max(used - count, 0)
        if at > 8 * len(codes):
            raise CrtExportError(f"{len(codes)} bytes of codes end at element {element}")
        results[element] = entry & ((1 << places) - 1)
    return results.astype(type_.dtype.numpy)


def _next_bits(stream: bytes, at: int, count: int) -> int:
    """Returns the ``count`` bits, at most 31, from bit ``at`` on; zeros behind the end."""
    begin = at >> 3
    word = int.from_bytes(stream[begin : begin + _WORD].ljust(_WORD, b"\0"), "big")
    return (word >> (8 * _WORD - (at & 7) - count)) & ((1 << count) - 1)

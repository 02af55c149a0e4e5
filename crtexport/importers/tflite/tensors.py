"""Tensors of a .tflite file: types, quantization, and the position of constants in the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from msgspec.structs import replace

from crtexport.importers.bit_fields import stored_bytes, unpacked
from crtexport.importers.tflite import schema, sparse
from crtexport.importers.tflite.flatbuffer import Vector
from crtexport.ir.graph import Tensor, Variable
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType
from crtexport.support.errors import CrtExportError

_INT2 = 19  # of LiteRT 2: newer than the package that the tables of ``schema`` are compared with
_DTYPES = {
    schema.TensorType.BOOL: DType.BOOL,
    schema.TensorType.INT4: DType.INT8,
    _INT2: DType.INT8,
    schema.TensorType.INT8: DType.INT8,
    schema.TensorType.UINT8: DType.UINT8,
    schema.TensorType.INT16: DType.INT16,
    schema.TensorType.UINT16: DType.UINT16,
    schema.TensorType.INT32: DType.INT32,
    schema.TensorType.UINT32: DType.UINT32,
    schema.TensorType.INT64: DType.INT64,
    schema.TensorType.FLOAT16: DType.FLOAT16,
    schema.TensorType.FLOAT32: DType.FLOAT32,
    schema.TensorType.FLOAT64: DType.FLOAT64,
}
_BITS = {schema.TensorType.INT4: 4, _INT2: 2}
"""Elements of less than a byte."""

_MAX_INITIAL = 1 << 24  # bytes of state that a microcontroller could have, by far
_FIXED_SHAPES = "convert the model with a fixed input shape, e.g. a batch of 1"


class TensorTable:
    """The tensors of one subgraph, decoded on first use. ``planned``: their offsets in the file's
    own memory plan, -1 for those that aren't in it."""

    def __init__(
        self, buffers: Vector[schema.Buffer], subgraph: schema.SubGraph, path: Path, size: int,
        planned: tuple[int, ...] = (),
    ) -> None:
        self._planned = planned
        self._path = path
        self._size = size
        self._tables = subgraph.tensors
        self._buffers = buffers  # of the file, not of the subgraph
        self.count = len(self._tables)
        self._decoded: dict[int, Tensor] = {}
        self._signed: set[int] = set()

    def tensor(self, index: int) -> Tensor:
        """Returns tensor ``index``; CrtExportError names it when it can't be used."""
        if index not in self._decoded:
            self._decoded[index] = self._decode(index)
        return self._decoded[index]

    def place(self, index: int) -> int | None:
        """Returns the offset of a tensor in the file's own plan; None if it isn't in that."""
        inside = 0 <= index < len(self._planned) and self._planned[index] >= 0
        return self._planned[index] if inside else None

    def define(self, index: int, tensor: Tensor) -> None:
        """Replaces the file's tensor ``index`` by ``tensor``."""
        self._decoded[index] = tensor

    def take_signed(self, index: int) -> None:
        """Has tensor ``index`` be of int64 where the file has uint64: its numbers stay below 2**63.
        """
        self._signed.add(index)

    def name(self, index: int) -> str:
        """Returns the name of tensor ``index``, whatever its type."""
        return self._table(index).name

    def check_input(self, index: int) -> None:
        """Refuses a graph input with an open dimension other than the batch."""
        table = self._table(index)
        signature = table.shape_signature
        if any(size < 0 for size in signature[1:]):
            raise CrtExportError(
                f"the shape {list(signature)} is dynamic",
                location=self._where(index, table),
                hint=_FIXED_SHAPES,
            )

    def _table(self, index: int) -> schema.Tensor:
        if not 0 <= index < self.count:
            raise CrtExportError(f"there is no tensor {index}; the file has {self.count}")
        return self._tables[index]

    def _where(self, index: int, table: schema.Tensor) -> str:
        return f"tensor {index} {table.name!r}"

    def _decode(self, index: int) -> Tensor:
        table = self._table(index)
        try:
            type_ = self._type(table, signed=index in self._signed)
            constant = self._constant(table)
            if constant is not None:
                type_ = _of_zeros(type_, constant)
            if not table.is_variable:
                return Tensor(table.name, type_, constant)
            if constant is not None:
                raise CrtExportError("a variable tensor can't be a constant")
            return Tensor(table.name, type_, variable=_variable(type_))
        except CrtExportError as error:
            raise error.within(self._where(index, table)) from error.__cause__

    def _type(self, table: schema.Tensor, *, signed: bool = False) -> TensorType:
        code = table.type
        if signed and code == schema.TensorType.UINT64:
            code = schema.TensorType.INT64
        if code not in _DTYPES:
            name = schema.any_name("TensorType", code) or code
            raise CrtExportError(f"the element type {name} is not supported")
        shape = table.shape
        if any(size < 0 for size in shape):
            raise CrtExportError(f"the shape {list(shape)} is dynamic", hint=_FIXED_SHAPES)
        dtype = _DTYPES[code]
        return TensorType(dtype, shape, self._quantization(table, dtype))

    def _quantization(self, table: schema.Tensor, dtype: DType) -> Quantization | None:
        """Returns a tensor's quantization; None for real numbers too: runtimes ignore their scales.
        """
        quant = table.quantization if dtype.is_integer else None
        if quant is None:
            return None
        if quant.details_type != schema.QuantizationDetails.NONE:
            raise CrtExportError("custom quantization is not supported")
        scales = quant.scale
        if not scales:
            return None
        zeros = quant.zero_point
        if len(zeros) in (0, 1):
            zeros = (zeros or (0,)) * len(scales)
        axis = quant.quantized_dimension if len(scales) > 1 else None
        if axis is not None and len(table.shape) == 1:
            axis = 0  # a vector has no other, though converters copy that of the weights
        return Quantization(scales, zeros, axis)

    def _constant(self, table: schema.Tensor) -> ConstantRef | None:
        """Returns the bytes of a constant, as a range of the file; None for a tensor without
        any."""
        index = table.buffer
        if not index < len(self._buffers):
            raise CrtExportError(f"there is no buffer {index}; the file has {len(self._buffers)}")
        buffer = self._buffers[index]
        offset, size = buffer.offset, buffer.size
        # Buffers of files past 2 GiB follow the tables; 1 and 0 there mean "not so".
        if offset <= 1:
            offset, size = buffer.place
        bits = _BITS.get(table.type)
        if not size:
            if bits:
                raise CrtExportError(f"int{bits} tensors are supported as constants only")
            return None
        if offset + size > self._size:
            raise CrtExportError(
                f"its {size} bytes at {offset} reach past the end of the file ({self._size} bytes)"
            )
        constant = ConstantRef(nbytes=size, path=self._path, offset=offset)
        sparsity = table.sparsity
        if sparsity is None:
            return _unpacked(self._type(table), constant, bits) if bits else constant
        if bits:
            raise CrtExportError(f"sparse int{bits} tensors are not supported")
        return sparse.dense(sparsity, self._type(table), constant)


def _of_zeros(type_: TensorType, constant: ConstantRef) -> TensorType:
    """Returns the type of a constant of zeros with a scale that means them: converters write 0."""
    quant = type_.quant
    if quant is None or quant.scale != (0.0,) or quant.zero_point != (0,):
        return type_
    if any(any(bytes(chunk)) for chunk in constant.chunks()):
        return type_
    return replace(type_, quant=replace(quant, scale=(1.0,)))


def _unpacked(type_: TensorType, constant: ConstantRef, bits: int) -> ConstantRef:
    wanted = stored_bytes(type_.elements, bits)
    if constant.nbytes != wanted:
        raise CrtExportError(
            f"{type_.elements} int{bits} elements are in {constant.nbytes} bytes, not {wanted}"
        )
    return unpacked(constant, type_.elements, bits, signed=True)


def _variable(type_: TensorType) -> Variable:
    """Returns a variable tensor's initial value as runtimes fill it: bytes 0; int8 the zero point.
    """
    zero = type_.quant.zero_point[0] if type_.quant is not None else 0
    if type_.dtype is not DType.INT8 or not zero:
        return Variable()
    if type_.nbytes > _MAX_INITIAL or not -128 <= zero <= 127:
        raise CrtExportError(f"{type_} with zero point {zero} can't be a variable")
    return Variable(ConstantRef.of(np.full(type_.shape, zero, np.int8)))

"""Writes a graph as .tflite, so that the reference runtimes can run networks of other formats."""

from __future__ import annotations

from collections.abc import Sequence

import flatbuffers
import numpy as np
import tflite

from crtexport.ir.graph import Graph, Tensor
from crtexport.ir.types import ConstantRef, Quantization
from crtexport.simulation.tflite_form import Value
from crtexport.simulation.tflite_legalize import hybrid_weights, with_float_weights
from crtexport.simulation.tflite_parts import FileOperator, parts
from crtexport.support.errors import CrtExportError

MAX_CONSTANTS = (1 << 31) - (1 << 24)
"""The most bytes of constants in a file: flatbuffers end at 2 GiB, and the tables need some of it.
"""

_SCHEMA_VERSION = 3
_ALIGNMENT = 16  # of constants, by the schema
_CODE_IN_ONE_BYTE = 127


def is_hybrid(graph: Graph) -> bool:
    """Returns whether some operator applies int8 weights to float32 activations."""
    return any(
        hybrid_weights(inner, node) is not None for inner in graph.nested() for node in inner.nodes
    )


def to_tflite(graph: Graph, *, dequantize_weights: bool = False) -> bytes:
    """Returns ``graph``, which must be valid, as a .tflite file for tflite-runtime 2.14 and LiteRT
    2.x.

    With ``dequantize_weights``, int8 weights of hybrid operators become float32, so that the
    runtimes compute in float arithmetic as exported code does; else they quantize activations.
    Raises CrtExportError, naming the node, for a pool whose padding TensorFlow Lite can't express,
    and for constants of :data:`MAX_CONSTANTS` bytes or more.
    """
    if dequantize_weights:
        graph = with_float_weights(graph)
    return _File(graph).content()


class _File:
    """The file while it is written."""

    def __init__(self, graph: Graph) -> None:
        self._parts = parts(graph)
        size = sum(c.nbytes for part in self._parts for c in part.constants)
        if size >= MAX_CONSTANTS:
            raise CrtExportError(
                f"{size} bytes of constants don't fit into a .tflite file, so its runtimes can't"
                " serve as a reference",
                location=graph.source,
            )
        self._builder = flatbuffers.Builder(size + (1 << 16))

    def content(self) -> bytes:
        b = self._builder
        constants = [c for part in self._parts for c in part.constants]
        # Buffer 0 is empty, by convention: it is that of tensors that aren't constants.
        buffers = [self._table("Buffer"), *map(self._buffer, constants)]
        codes = sorted({operator.code for part in self._parts for operator in part.operators})
        code_tables = [self._code(*code) for code in codes]
        tables = self._vector(code_tables), self._vector(self._subgraphs(codes))
        model = self._table(
            "Model", Version=_SCHEMA_VERSION, OperatorCodes=tables[0], Subgraphs=tables[1],
            Buffers=self._vector(buffers),
        )
        b.Finish(model, b"TFL3")
        return bytes(b.Output())

    def _subgraphs(self, codes: Sequence[tuple[str, int]]) -> list[int]:
        tables, buffer = [], 0
        for part in self._parts:
            tensors = []
            for number, tensor in enumerate(part.tensors):
                buffer += tensor.constant is not None
                tensors.append(
                    self._handle(tensor) if number in part.handles
                    else self._tensor(tensor, buffer if tensor.constant is not None else 0)
                )
            operators = [self._operator_table(o, codes.index(o.code)) for o in part.operators]
            tables.append(self._table(
                "SubGraph", Tensors=self._vector(tensors), Operators=self._vector(operators),
                Inputs=self._integers(part.inputs), Outputs=self._integers(part.outputs),
            ))
        return tables

    def _operator_table(self, operator: FileOperator, position: int) -> int:
        fields: dict[str, int] = {}
        kind = operator.form.options
        if kind:
            fields["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, kind)
            fields["BuiltinOptions"] = self._table(kind, **operator.form.fields)
        if operator.form.custom_options:
            options = self._builder.CreateByteVector(operator.form.custom_options)
            fields["CustomOptions"] = options
        return self._table(
            "Operator", OpcodeIndex=position, Inputs=self._integers(operator.inputs),
            Outputs=self._integers(operator.outputs),
            Intermediates=self._integers(operator.intermediates), **fields,
        )

    def _handle(self, tensor: Tensor) -> int:
        """Returns the tensor by which operators refer to a variable."""
        return self._table(
            "Tensor", Shape=self._integers(()), Type=tflite.TensorType.RESOURCE, HasRank=True,
            Name=tensor.name,
        )

    def _tensor(self, tensor: Tensor, buffer: int) -> int:
        type_ = tensor.type
        fields = {} if type_.quant is None else {"Quantization": self._quantization(type_.quant)}
        return self._table(
            "Tensor", Shape=self._integers(type_.shape), Buffer=buffer, HasRank=True,
            Type=getattr(tflite.TensorType, type_.dtype.name),
            Name=tensor.name,
            IsVariable=tensor.variable is not None, **fields,
        )

    def _quantization(self, quant: Quantization) -> int:
        b = self._builder
        return self._table(
            "QuantizationParameters", Scale=b.CreateNumpyVector(np.array(quant.scale, "<f4")),
            ZeroPoint=b.CreateNumpyVector(np.array(quant.zero_point, "<i8")),
            QuantizedDimension=quant.axis or 0,
        )

    def _buffer(self, constant: ConstantRef) -> int:
        self._builder.Prep(_ALIGNMENT, constant.nbytes)
        return self._table("Buffer", Data=self._builder.CreateByteVector(constant.read()))

    def _code(self, name: str, number: int) -> int:
        builtin, _, custom = name.partition(":")
        code = getattr(tflite.BuiltinOperator, builtin.upper())
        fields: dict[str, Value] = {"CustomCode": custom} if custom else {}
        return self._table(
            "OperatorCode", DeprecatedBuiltinCode=min(code, _CODE_IN_ONE_BYTE), BuiltinCode=code,
            Version=number, **fields,
        )

    def _table(self, kind: str, **fields: Value) -> int:
        """Writes a table of the schema, after the vectors of integers among its fields; returns its
        offset."""
        b = self._builder
        values = {name: self._field(value) for name, value in fields.items()}
        getattr(tflite, f"{kind}Start")(b)
        for name, value in values.items():
            getattr(tflite, f"{kind}Add{name}")(b, value)
        return int(getattr(tflite, f"{kind}End")(b))

    def _field(self, value: Value) -> int | float | bool:
        """Returns a scalar as it is; of a list of integers or a text, the offset, after writing it.
        """
        if isinstance(value, np.ndarray):
            return self._integers(value.tolist())
        if isinstance(value, str):
            # JSON can name a tensor with half a surrogate pair, which UTF-8 doesn't have.
            return int(self._builder.CreateString(value, errors="backslashreplace"))
        return value

    def _integers(self, values: Sequence[int]) -> int:
        return int(self._builder.CreateNumpyVector(np.array(values, "<i4")))

    def _vector(self, tables: Sequence[int]) -> int:
        b = self._builder
        b.StartVector(4, len(tables), 4)
        for table in reversed(tables):
            b.PrependUOffsetTRelative(table)
        return int(b.EndVector())

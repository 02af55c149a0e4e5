"""The messages of an ONNX file that an import reads, with the fields that it uses.

A class lists its fields as ``{number: (name, kind)}``; ``read`` makes the record. Field numbers are
those of onnx.proto3. Data of tensors aren't copied: they are ranges of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np
from msgspec import Struct

from crtexport.importers.onnx.wire import Span, WireField
from crtexport.support.errors import CrtExportError

_DEEPEST = 64
"""Messages inside of each other: graphs in attributes of nodes of graphs take three each."""

M = TypeVar("M", bound="Message")
Kind = str | type["Message"]
"""Text, bytes, integer, float, f32s, f64s and integers, or a message; in a list: repeated."""


class Message(Struct, frozen=True):
    """A record of a message. Fields that are not in ``FIELDS`` are skipped."""

    FIELDS: ClassVar[Mapping[int, tuple[str, Kind | list[Kind]]]] = {}


def read(kind: type[M], span: Span, depth: int = 0) -> M:
    """Returns the message in ``span``; of a field that comes twice the last counts, as protobuf
    says. Raises CrtExportError for bytes that are no such message."""
    if depth > _DEEPEST:
        raise CrtExportError(f"the file's messages are nested more than {_DEEPEST} deep")
    collected: dict[str, Any] = {}
    for field in span.fields():
        known = kind.FIELDS.get(field.number)
        if known is None:
            continue
        name, of = known
        if not isinstance(of, list):
            collected[name] = _value(of, field, depth)
        elif of[0] == "integers":
            collected.setdefault(name, []).extend(field.integers().tolist())
        elif of[0] == "f32s":
            values = np.frombuffer(field.fixed(4).content(), "<f4")
            collected.setdefault(name, []).extend(values.tolist())
        else:
            collected.setdefault(name, []).append(_value(of[0], field, depth))
    return kind(**{
        name: tuple(value) if isinstance(value, list) else value
        for name, value in collected.items()
    })


def _value(of: Kind, field: WireField, depth: int) -> Any:
    match of:
        case "text":
            return field.text()
        case "integer":
            return field.integer()
        case "bytes":
            return field.bytes()
        case "field":
            return field
        case "float":
            return field.real()
        case str():
            raise ValueError(of)
        case _:
            return read(of, field.bytes(), depth + 1)


class Entry(Message, frozen=True):
    """StringStringEntryProto."""

    key: str = ""
    value: str = ""
    FIELDS = {1: ("key", "text"), 2: ("value", "text")}


class OpsetId(Message, frozen=True):
    """OperatorSetIdProto: a version of the operators of a domain."""

    domain: str = ""
    version: int = 0
    FIELDS = {1: ("domain", "text"), 2: ("version", "integer")}


class Dimension(Message, frozen=True):
    """TensorShapeProto.Dimension: a number, a name, or neither."""

    value: int | None = None
    parameter: str = ""
    FIELDS = {1: ("value", "integer"), 2: ("parameter", "text")}


class Shape(Message, frozen=True):
    """TensorShapeProto."""

    dims: tuple[Dimension, ...] = ()
    FIELDS = {1: ("dims", [Dimension])}


class TensorTypeInfo(Message, frozen=True):
    """TypeProto.Tensor; ``shape`` is None where even the number of dimensions is open."""

    element: int = 0
    shape: Shape | None = None
    FIELDS = {1: ("element", "integer"), 2: ("shape", Shape)}


class TypeInfo(Message, frozen=True):
    """TypeProto: exactly one is set; only tensors are read."""

    tensor: TensorTypeInfo | None = None
    sequence: Span | None = None
    map: Span | None = None
    optional: Span | None = None
    sparse: Span | None = None
    FIELDS = {
        1: ("tensor", TensorTypeInfo), 4: ("sequence", "bytes"), 5: ("map", "bytes"),
        8: ("sparse", "bytes"), 9: ("optional", "bytes"),
    }


class ValueInfo(Message, frozen=True):
    """ValueInfoProto: the name and type of an input, output or intermediate tensor."""

    name: str = ""
    type: TypeInfo | None = None
    FIELDS = {1: ("name", "text"), 2: ("type", TypeInfo)}


class TensorData(Message, frozen=True):
    """TensorProto. ``raw`` or one of the typed fields has the elements, or else ``external`` says
    where they are. Lists of numbers that come in several pieces stay pieces."""

    dims: tuple[int, ...] = ()
    element: int = 0
    float_data: tuple[WireField, ...] = ()
    int32_data: tuple[WireField, ...] = ()
    string_data: tuple[Span, ...] = ()
    int64_data: tuple[WireField, ...] = ()
    name: str = ""
    raw: Span | None = None
    double_data: tuple[WireField, ...] = ()
    uint64_data: tuple[WireField, ...] = ()
    external: tuple[Entry, ...] = ()
    location: int = 0
    FIELDS = {
        1: ("dims", ["integers"]), 2: ("element", "integer"), 4: ("float_data", ["field"]),
        5: ("int32_data", ["field"]), 6: ("string_data", ["bytes"]), 7: ("int64_data", ["field"]),
        8: ("name", "text"), 9: ("raw", "bytes"), 10: ("double_data", ["field"]),
        11: ("uint64_data", ["field"]), 13: ("external", [Entry]), 14: ("location", "integer"),
    }


class SparseTensor(Message, frozen=True):
    """SparseTensorProto."""

    values: TensorData | None = None
    indices: TensorData | None = None
    dims: tuple[int, ...] = ()
    FIELDS = {
        1: ("values", TensorData), 2: ("indices", TensorData), 3: ("dims", ["integers"]),
    }


class Attribute(Message, frozen=True):
    """AttributeProto; ``kind`` (its ``type``) says which of the values it has."""

    name: str = ""
    reference: str = ""
    kind: int = 0
    f: float = 0.0
    i: int = 0
    s: Span | None = None
    t: TensorData | None = None
    g: GraphInfo | None = None
    sparse: SparseTensor | None = None
    floats: tuple[float, ...] = ()
    ints: tuple[int, ...] = ()
    strings: tuple[Span, ...] = ()


class NodeInfo(Message, frozen=True):
    """NodeProto."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    name: str = ""
    operator: str = ""
    attributes: tuple[Attribute, ...] = ()
    domain: str = ""
    overload: str = ""
    FIELDS = {
        1: ("inputs", ["text"]), 2: ("outputs", ["text"]), 3: ("name", "text"),
        4: ("operator", "text"), 5: ("attributes", [Attribute]), 7: ("domain", "text"),
        8: ("overload", "text"),
    }


class GraphInfo(Message, frozen=True):
    """GraphProto."""

    nodes: tuple[NodeInfo, ...] = ()
    name: str = ""
    initializers: tuple[TensorData, ...] = ()
    inputs: tuple[ValueInfo, ...] = ()
    outputs: tuple[ValueInfo, ...] = ()
    sparse: tuple[SparseTensor, ...] = ()
    FIELDS = {
        1: ("nodes", [NodeInfo]), 2: ("name", "text"), 5: ("initializers", [TensorData]),
        11: ("inputs", [ValueInfo]), 12: ("outputs", [ValueInfo]), 15: ("sparse", [SparseTensor]),
    }


Attribute.FIELDS = {
    1: ("name", "text"), 2: ("f", "float"), 3: ("i", "integer"), 4: ("s", "bytes"),
    5: ("t", TensorData), 6: ("g", GraphInfo), 7: ("floats", ["f32s"]), 8: ("ints", ["integers"]),
    9: ("strings", ["bytes"]), 20: ("kind", "integer"), 21: ("reference", "text"),
    22: ("sparse", SparseTensor),
}


class FunctionInfo(Message, frozen=True):
    """FunctionProto: an operator whose meaning is a list of nodes."""

    name: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    nodes: tuple[NodeInfo, ...] = ()
    opsets: tuple[OpsetId, ...] = ()
    domain: str = ""
    defaults: tuple[Attribute, ...] = ()
    overload: str = ""
    FIELDS = {
        1: ("name", "text"), 4: ("inputs", ["text"]), 5: ("outputs", ["text"]),
        7: ("nodes", [NodeInfo]), 9: ("opsets", [OpsetId]), 10: ("domain", "text"),
        11: ("defaults", [Attribute]), 13: ("overload", "text"),
    }


class OnnxModelInfo(Message, frozen=True):
    """ModelProto."""

    ir_version: int = 0
    opsets: tuple[OpsetId, ...] = ()
    producer: str = ""
    graph: GraphInfo | None = None
    functions: tuple[FunctionInfo, ...] = ()
    FIELDS = {
        1: ("ir_version", "integer"), 2: ("producer", "text"), 7: ("graph", GraphInfo),
        8: ("opsets", [OpsetId]), 25: ("functions", [FunctionInfo]),
    }

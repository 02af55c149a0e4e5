"""One node of an ONNX graph, as the functions in ``operators/`` read it and answer it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from crtexport.importers.onnx.builder import Builder
from crtexport.importers.onnx.domains import ONNX, domain_of
from crtexport.importers.onnx.messages import (
    Attribute,
    GraphInfo,
    NodeInfo,
    SparseTensor,
    TensorData,
)
from crtexport.importers.onnx.nested import Nested
from crtexport.importers.onnx.values import Shape, Value, stored
from crtexport.ir.ops import Cast, Op
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError

_STANDARD = 21
"""The opset of the standard by which operators of other domains contain its operators."""
_STEERING = 1 << 16
"""The most numbers of a list of axes, sizes or indices that steers an operator."""

FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS, SPARSE = 1, 2, 3, 4, 5, 6, 7, 8, 11
"""AttributeProto.AttributeType."""
_KINDS = {
    FLOAT: "a float", INT: "an integer", STRING: "a string", TENSOR: "a tensor", GRAPH: "a graph",
    FLOATS: "floats", INTS: "integers", STRINGS: "strings",
    SPARSE: "a sparse tensor",
}


class GraphWalk(Protocol):
    """The walk from node to node (:mod:`crtexport.importers.onnx.walk`)."""

    def inline(self, graph: GraphInfo, inputs: Sequence[Value]) -> list[Value]: ...
    def nested(self) -> AbstractContextManager[Nested]: ...
    def uses(self, name: str) -> int: ...
    def added(self, name: str, *, first: bool = False) -> tuple[Value, str] | None: ...
    def scale_before(
        self, name: str, result: str | None = None, *, clamped: bool = True
    ) -> Value | None: ...
    def data(self, tensor: TensorData) -> Value: ...
    def sparse(self, tensor: SparseTensor) -> Value: ...
    def standard(self, node: OnnxNode) -> Value: ...


class OnnxNode:
    """A node: its inputs as values, its attributes, the version of its operator set, and what adds
    operators to the Graph.

    Attributes that nothing reads are refused afterwards (:meth:`check_attributes`).
    """

    def __init__(
        self, builder: Builder, info: NodeInfo, version: int, inputs: Sequence[Value | None],
        attributes: Mapping[str, Attribute], walk: GraphWalk,
    ) -> None:
        self.builder, self.info, self.version = builder, info, version
        self.inputs, self.walk = tuple(inputs), walk
        self._attributes = attributes
        self._asked: set[str] = set()

    def within(self, builder: Builder) -> OnnxNode:
        """Returns the node with another Graph to add operators to: one that it runs."""
        return OnnxNode(
            builder, self.info, self.version, self.inputs, self._attributes, self.walk
        )

    # -- inputs

    def input(self, index: int) -> Value:
        """Returns a required input."""
        value = self.optional(index)
        if value is None:
            raise CrtExportError(f"input {index} is missing")
        return value

    def optional(self, index: int) -> Value | None:
        """Returns an input, or None where it was left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def all(self) -> list[Value]:
        """Returns all inputs, none of which may be left out."""
        return [self.input(index) for index in range(len(self.inputs))]

    def dtype(self, value: Value) -> DType:
        return self.builder.type(value.tensor).dtype

    def array(self, value: Value, role: str) -> npt.NDArray[Any]:
        """Returns the elements of a value that must be constant, and small."""
        tensor = self.builder.tensors[self.builder.arranged(value)]
        if tensor.constant is None:
            raise CrtExportError(
                f"{role} ({tensor.name!r}) must be constant, but is computed at run time",
                hint="shapes and what steers an operator are fixed while exporting: --bind gives a "
                "graph input a value, --dim and --input-shape fix its size",
            )
        if tensor.type.elements > _STEERING:
            raise CrtExportError(f"{role}: {tensor.type} is no such list")
        return tensor.constant.array(tensor.type)

    def integers(self, index: int, role: str) -> tuple[int, ...]:
        """Returns the numbers of an input that steers the operator."""
        array = self.array(self.input(index), role)
        if array.dtype.kind not in "iu":
            raise CrtExportError(f"{role} must be integers, found {array.dtype}")
        return tuple(array.reshape(-1).tolist())

    def floats(self, index: int, role: str) -> tuple[float, ...]:
        """Returns the real numbers of an input that steers the operator."""
        return tuple(self.array(self.input(index), role).astype(np.float64).reshape(-1).tolist())

    def number(self, index: int, role: str, default: float | None = None) -> float:
        """Returns the one number of an input that steers the operator."""
        if default is not None and self.optional(index) is None:
            return default
        values = self.floats(index, role)
        if len(values) != 1:
            raise CrtExportError(f"{role} must be one number, found {len(values)}")
        return values[0]

    # -- attributes

    def has(self, name: str) -> bool:
        return name in self._attributes

    def _attribute(self, name: str, kind: int) -> Attribute | None:
        self._asked.add(name)
        found = self._attributes.get(name)
        # Old files leave the kind out; it is then the one that the operator has.
        if found is not None and found.kind not in (0, kind):
            raise CrtExportError(f"the attribute {name} must be {_KINDS[kind]}")
        return found

    def integer(self, name: str, default: int | None = None) -> int:
        found = self._attribute(name, INT)
        return found.i if found is not None else int(self._default(name, default))

    def real(self, name: str, default: float | None = None) -> float:
        """Returns a float32; a default is rounded to one, as the standard has it."""
        found = self._attribute(name, FLOAT)
        return found.f if found is not None else float(np.float32(self._default(name, default)))

    def text(self, name: str, default: str | None = None) -> str:
        found = self._attribute(name, STRING)
        if found is None:
            return str(self._default(name, default))
        return "" if found.s is None else found.s.text()

    def numbers(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        found = self._attribute(name, INTS)
        return found.ints if found is not None else tuple(self._default(name, default))

    def reals(self, name: str, default: Sequence[float] | None = None) -> tuple[float, ...]:
        found = self._attribute(name, FLOATS)
        return found.floats if found is not None else tuple(self._default(name, default))

    def texts(self, name: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
        found = self._attribute(name, STRINGS)
        if found is None:
            return tuple(self._default(name, default))
        return tuple(span.text() for span in found.strings)

    def graph(self, name: str) -> GraphInfo:
        found = self._attribute(name, GRAPH)
        if found is None or found.g is None:
            raise CrtExportError(f"the attribute {name} is missing")
        return found.g

    def tensor(self, name: str) -> Value | None:
        """Returns an attribute that is a tensor, as a constant; None where it isn't there."""
        found = self._attribute(name, TENSOR)
        if found is None or found.t is None:
            return None
        return self.walk.data(found.t)

    def sparse(self, name: str) -> Value:
        """Returns an attribute that is a sparse tensor, as a constant with all its zeros."""
        found = self._attribute(name, SPARSE)
        if found is None or found.sparse is None:
            raise CrtExportError(f"the attribute {name} is missing")
        return self.walk.sparse(found.sparse)

    def ignore(self, *names: str) -> None:
        """Accepts attributes that have no meaning here."""
        self._asked.update(names)

    def check_attributes(self) -> None:
        """Raises CrtExportError for attributes that nothing has read: they may mean anything.
        """
        for name in self._attributes:
            if name not in self._asked:
                raise CrtExportError(f"the attribute {name!r} is not supported")

    @staticmethod
    def _default(name: str, default: Any) -> Any:
        if default is None:
            raise CrtExportError(f"the attribute {name} is missing")
        return default

    def read_as(
        self, name: str, inputs: Sequence[Value], *, version: int | None = None
    ) -> Value:
        """Returns what the standard's operator ``name`` makes of ``inputs``, with the attributes of
        this node; its one output."""
        return self.walk.standard(self.as_standard(name, inputs, version=version))

    def as_standard(
        self, name: str, inputs: Sequence[Value | None], *, version: int | None = None
    ) -> OnnxNode:
        """Returns a node of the standard's operator ``name``, with these inputs and the attributes
        of this node."""
        own = self.version if domain_of(self.info.domain) == ONNX else _STANDARD
        inner = OnnxNode(
            self.builder, replace(self.info, operator=name, domain=ONNX), version or own, inputs,
            self._attributes, self.walk,
        )
        inner._asked = self._asked
        return inner

    # -- answers

    def axis(self, axis: int, rank: int) -> int:
        """Returns an axis counted from the front."""
        if not -rank <= axis < rank:
            raise CrtExportError(f"axis {axis} of a tensor with {rank} dimensions")
        return axis % rank

    def axes(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        """Returns axes counted from the front, each once."""
        found = tuple(self.axis(axis, rank) for axis in axes)
        if len(set(found)) < len(found):
            raise CrtExportError(f"the axes {list(axes)} are not different ones")
        return found

    def constant(
        self, values: npt.ArrayLike, dtype: DType = DType.FLOAT32, shape: Shape | None = None
    ) -> Value:
        return self.builder.constant(values, dtype, shape)

    def like(self, number: float, value: Value) -> Value:
        """Returns a scalar constant of the element type of ``value``."""
        return self.constant(number, self.dtype(value))

    def unary(self, op: Op, value: Value, *, dtypes: tuple[DType, ...] = ()) -> Value:
        return self.builder.unary(op, value, dtypes=dtypes)

    def elementwise(self, op: Op, *values: Value) -> Value:
        return self.builder.elementwise(op, *values)

    def reduce(
        self, kind: Callable[..., Op], value: Value, axes: Sequence[int], *, keep: bool = True
    ) -> Value:
        return self.builder.reduce(kind, value, axes, keep=keep)

    def cast(self, value: Value, dtype: DType) -> Value:
        """Returns the value in another element type."""
        if self.dtype(value) is dtype:
            return value
        if dtype is DType.FLOAT32 and value.tensor in self.builder.floats:
            return replace(value, tensor=self.builder.floats[value.tensor])
        return self.unary(Cast(), value, dtypes=(dtype,))

    def emit(
        self, op: Op, *inputs: int | None, order: Sequence[int] | None = None,
        dtypes: tuple[DType, ...] = (),
    ) -> Value:
        """Adds an operator on tensors (:meth:`Builder.arranged` has them); axis i of its output is
        ONNX's axis ``order[i]``."""
        (made,) = self.builder.emit(op, *inputs, dtypes=dtypes)
        return stored(made, self.builder.type(made).shape, order)

    def type(self, tensor: int) -> TensorType:
        return self.builder.type(tensor)



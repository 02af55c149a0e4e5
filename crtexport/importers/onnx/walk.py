"""Reads the nodes of an ONNX graph one after the other, with the functions that they call and the
graphs inside of them; keeps the value of each name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from crtexport.importers.onnx.builder import Builder
from crtexport.importers.onnx.constants import bits_of, sparse_array, tensor_constant
from crtexport.importers.onnx.dataflow import Dataflow
from crtexport.importers.onnx.domains import ONNX, domain_of
from crtexport.importers.onnx.messages import (
    Attribute,
    FunctionInfo,
    GraphInfo,
    NodeInfo,
    OnnxModelInfo,
    SparseTensor,
    TensorData,
)
from crtexport.importers.onnx.nested import Nested
from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.other_floats import OtherFloats
from crtexport.importers.onnx.registry import OperatorReader, find, unknown
from crtexport.importers.onnx.values import Value, stored
from crtexport.support.errors import CrtExportError

NEWEST = 28
"""The newest version of the standard's operators that is read."""

_DEEPEST = 24
"""Functions and graphs inside of each other."""
_MOST_NODES = 200_000
"""Nodes of a network, those of functions counted as often as they are called."""

Opsets = Mapping[str, int]


class NameScope:
    """Names of a graph and their values. Those that aren't here are looked for in the graph around
    it; a function has none around it."""

    def __init__(self, outer: NameScope | None = None) -> None:
        self._values: dict[str, Value] = {}
        self._outer = outer

    def __getitem__(self, name: str) -> Value:
        if name in self._values:
            return self._values[name]
        if self._outer is None:
            raise CrtExportError(
                f"the tensor {name!r} is used before anything computes it",
                hint="nodes must be in an order in which they can run, without cycles",
            )
        return self._outer[name]

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def define(self, name: str, value: Value) -> None:
        """Gives a name its value. Raises CrtExportError where it has one."""
        if name in self._values:
            raise CrtExportError(f"the tensor {name!r} is computed a second time")
        self._values[name] = value


class NestedScope(NameScope):
    """The names around a graph that is read as one of its own."""

    def __init__(self, outer: NameScope, nested: Nested) -> None:
        super().__init__()
        self._around, self._nested = outer, nested

    def __getitem__(self, name: str) -> Value:
        return self._nested.seen(self._around[name])


class CallFrame(Struct, frozen=True):
    """The place of a walk: names, versions of operators, the attributes of the function, who
    computes and reads a name, and how deep this is."""

    scope: NameScope
    opsets: Opsets
    attributes: Mapping[str, Attribute]
    dataflow: Dataflow
    depth: int = 0
    place: tuple[str, ...] = ()


class Walker:
    """Reads the nodes of a file into ``builder``. ``path`` is the file. ``integer_weights``: layers
    between quantized tensors get weights of integers, as with ONNX Runtime."""

    def __init__(
        self, builder: Builder, model: OnnxModelInfo, path: Path, *, allow_outside: bool,
        integer_weights: bool,
    ) -> None:
        self.builder, self._floats = builder, OtherFloats(builder)
        self._path, self._outside = path, allow_outside
        self._integer_weights = integer_weights
        self._functions = {
            (domain_of(f.domain), f.name, f.overload): f for f in model.functions
        }
        self._count = 0
        self._frame = CallFrame(NameScope(), {}, {}, Dataflow())

    # -- tensors of the file

    def data(self, tensor: TensorData) -> Value:
        """Returns a tensor of the file as a constant."""
        type_, constant = tensor_constant(tensor, self._path, allow_outside=self._outside)
        value = stored(self.builder.tensor(type_, constant), type_.shape)
        self.builder.narrow(value.tensor, bits_of(tensor.element))
        return value

    def sparse(self, tensor: SparseTensor) -> Value:
        """Returns a sparse tensor of the file as a constant with all its zeros."""
        if tensor.values is None or tensor.indices is None:
            raise CrtExportError("a sparse tensor without values or indices")
        arrays = []
        for part in (tensor.values, tensor.indices):
            type_, constant = tensor_constant(part, self._path, allow_outside=self._outside)
            arrays.append((type_, constant.array(type_)))
        (type_, values), (_, indices) = arrays
        return self.builder.constant(sparse_array(tensor, values, indices), type_.dtype)

    # -- graphs

    def graph(self, graph: GraphInfo, frame: CallFrame) -> None:
        """Defines the initializers of a graph, and reads its nodes."""
        before, self._frame = self._frame, frame
        for tensor in graph.initializers:
            self._initializer(tensor.name, tensor)
        for sparse in graph.sparse:
            if sparse.values is not None:
                self._initializer(sparse.values.name, sparse)
        self.nodes(graph.nodes)
        self._frame = before

    def _initializer(self, name: str, tensor: TensorData | SparseTensor) -> None:
        self.builder.name = name
        try:
            self._frame.scope.define(name, self._constant(tensor))
        except CrtExportError as error:
            raise error.within(*self._frame.place, f"initializer {name!r}") from error.__cause__

    def _constant(self, tensor: TensorData | SparseTensor) -> Value:
        return self.sparse(tensor) if isinstance(tensor, SparseTensor) else self.data(tensor)

    def nodes(self, nodes: Sequence[NodeInfo]) -> None:
        """Reads nodes, in their order, in the current frame."""
        for number, info in enumerate(nodes):
            self._count += 1
            if self._count > _MOST_NODES:
                raise CrtExportError(f"the network has more than {_MOST_NODES} nodes")
            where = place_of(number, info)
            builder = self.builder
            builder.name = next(filter(None, info.outputs), info.name)
            if not self._frame.place:
                builder.origin = where
            try:
                self._node(info)
            except CrtExportError as error:
                raise error.within(where) from error.__cause__

    def inline(self, graph: GraphInfo, inputs: Sequence[Value]) -> list[Value]:
        """Reads a graph inside of a node in the place of the node; returns its outputs. It sees the
        names around it."""
        frame = self._deeper(NameScope(self._frame.scope), graph.nodes, graph.outputs)
        if len(inputs) != len(graph.inputs):
            raise CrtExportError(
                f"the graph {graph.name!r} takes {len(graph.inputs)} inputs, not {len(inputs)}"
            )
        for formal, value in zip(graph.inputs, inputs, strict=True):
            frame.scope.define(formal.name, value)
        self.graph(graph, frame)
        return [frame.scope[output.name] for output in graph.outputs]

    def standard(self, node: OnnxNode) -> Value:
        """Returns the output of ``node``, an operator of the standard with one output."""
        row = find(ONNX, node.info.operator)
        if row is None:
            raise ValueError(f"no operator {node.info.operator}")
        result = row.read(node)
        if not isinstance(result, Value):
            raise ValueError(f"{row.name} has several outputs")
        return result

    @contextmanager
    def nested(self) -> Iterator[Nested]:
        """Reads into a graph of its own until the end of the block. It sees the names around it.
        """
        outer = self.builder, self._floats, self._frame
        nested = Nested(self.builder)
        self.builder, self._floats = nested.builder, OtherFloats(nested.builder)
        self._frame = replace(self._frame, scope=NestedScope(self._frame.scope, nested))
        try:
            yield nested
        finally:
            self.builder, self._floats, self._frame = outer

    def uses(self, name: str) -> int:
        """Returns how often nodes of the current graph, and those inside of them, read a name;
        graph outputs count, too."""
        return self._frame.dataflow.reads.get(name, 0)

    def added(self, name: str, *, first: bool = False) -> tuple[Value, str] | None:
        """Returns what is added to a result (:meth:`Dataflow.added`), if it is known by now,
        and the name of the sum."""
        found = self._frame.dataflow.added(name, first=first)
        if found is None or found[0] not in self._frame.scope:
            return None
        return self._frame.scope[found[0]], found[1]

    def scale_before(
        self, name: str, result: str | None = None, *, clamped: bool = True
    ) -> Value | None:
        """Returns the scale of the integers before the layer that computes ``name``, if its weights
        are to become integers, too (:meth:`Dataflow.scale_before`). ``result``: the name of the
        sum, if another node adds the bias."""
        if not self._integer_weights:
            return None
        scale = self._frame.dataflow.scale_before(name, result or name, clamped=clamped)
        return None if scale is None else self._frame.scope[scale]

    def _deeper(
        self, scope: NameScope, nodes: Sequence[NodeInfo], outputs: Sequence[Any],
        **changes: Any,
    ) -> CallFrame:
        frame = self._frame
        if frame.depth >= _DEEPEST:
            raise CrtExportError(
                f"functions and graphs are nested more than {_DEEPEST} deep",
                hint="a function may not call itself",
            )
        names = [output if isinstance(output, str) else output.name for output in outputs]
        return replace(
            frame, scope=scope, dataflow=Dataflow(nodes, names), depth=frame.depth + 1,
            place=(*frame.place, self.builder.origin), **changes,
        )

    # -- nodes

    def _node(self, info: NodeInfo) -> None:
        frame, domain = self._frame, domain_of(info.domain)
        inputs = [frame.scope[name] if name else None for name in info.inputs]
        attributes = dict(self._attributes(info))
        function = self._functions.get((domain, info.operator, info.overload))
        if function is not None:
            outputs: Sequence[Value | None] = self._call(function, inputs, attributes)
        else:
            outputs = self._read(info, self._version(domain), inputs, attributes)
        if len(outputs) < len(info.outputs):
            raise CrtExportError(f"{len(info.outputs)} outputs, of which {len(outputs)} are known")
        for name, value in zip(info.outputs, outputs, strict=False):
            if not name or (value is None and not self.uses(name)):
                continue
            if value is None:
                raise CrtExportError(f"the output {name!r} is not supported")
            frame.scope.define(name, value)

    def _version(self, domain: str) -> int:
        version = self._frame.opsets.get(domain)
        if version is None:
            if domain == ONNX:
                raise CrtExportError("the file doesn't say which version its operators have")
            return 1
        return version

    def _attributes(self, info: NodeInfo) -> Iterator[tuple[str, Attribute]]:
        """Yields a node's attributes by name; those that stand for an attribute of the function
        around it have its value."""
        for attribute in info.attributes:
            if not attribute.reference:
                yield attribute.name, attribute
            elif attribute.reference in self._frame.attributes:
                yield attribute.name, self._frame.attributes[attribute.reference]

    def _read(
        self, info: NodeInfo, version: int, inputs: Sequence[Value | None],
        attributes: Mapping[str, Attribute],
    ) -> Sequence[Value | None]:
        row = find(domain_of(info.domain), info.operator)
        if row is None:
            raise unknown(domain_of(info.domain), info.operator, version)
        if row.domain == ONNX and not row.oldest <= version <= NEWEST:
            raise CrtExportError(
                f"{row.name} is of opset {version}; {row.oldest} to {NEWEST} are read",
                hint="export the model with an opset in between, or convert it with "
                "onnx.version_converter",
            )
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        _check_count(row, len(inputs))
        read = self._floats.inputs(row.name, inputs)
        source = OnnxNode(self.builder, info, version, read, attributes, self)
        try:
            result = row.read(source)
        except (ValueError, LookupError, ArithmeticError) as error:
            # Readers take shapes and numbers apart as the standard has them.
            shapes = ", ".join("none" if i is None else f"{list(i.shape)}" for i in inputs)
            raise CrtExportError(
                f"its inputs {shapes} or its attributes don't fit each other: {error}"
            ) from error
        source.check_attributes()
        made = [result] if isinstance(result, Value) else list(result)
        return self._floats.outputs(row.name, inputs, attributes, made)

    def _call(
        self, function: FunctionInfo, inputs: Sequence[Value | None],
        attributes: Mapping[str, Attribute],
    ) -> list[Value | None]:
        """Reads the nodes of a function in the place of its call."""
        if len(inputs) > len(function.inputs):
            raise CrtExportError(f"{len(inputs)} inputs for a function of {len(function.inputs)}")
        scope = NameScope()
        missing = set[str]()
        for name, value in zip_longest(function.inputs, inputs):
            if value is None:
                missing.add(name)
            else:
                scope.define(name, value)
        nodes = [_without_inputs(node, missing) for node in function.nodes]
        given = {attribute.name: attribute for attribute in function.defaults} | dict(attributes)
        opsets = {**self._frame.opsets, **versions(function.opsets)}
        frame = self._deeper(
            scope, nodes, function.outputs, opsets=opsets, attributes=given
        )
        before, self._frame = self._frame, frame
        self.nodes(nodes)
        self._frame = before
        return [scope[name] for name in function.outputs]


def place_of(number: int, info: NodeInfo) -> str:
    """Returns the place of a node in its graph, for errors and comments."""
    return f"node {number} {info.name!r} ({info.operator})" if info.name else (
        f"node {number} ({info.operator})"
    )


def _without_inputs(node: NodeInfo, missing: set[str]) -> NodeInfo:
    """Returns a node of a function without the inputs that its call leaves out."""
    if missing.isdisjoint(node.inputs):
        return node
    return replace(node, inputs=tuple("" if name in missing else name for name in node.inputs))


def _check_count(row: OperatorReader, count: int) -> None:
    least, most = row.inputs
    if count < least or (most is not None and count > most):
        many = "any number" if most is None else f"{most}"
        wanted = f"{least}" if least == most else f"{least} to {many}"
        raise CrtExportError(f"expected {wanted} inputs, found {count}")


def versions(opsets: Sequence[Any]) -> dict[str, int]:
    """Returns the versions of operator sets by their domains."""
    return {domain_of(opset.domain): opset.version for opset in opsets}

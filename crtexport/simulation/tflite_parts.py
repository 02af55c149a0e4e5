"""The subgraphs of a .tflite file, as lists of tensors and operators, from a Graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, field

from crtexport.ir.graph import Graph, Node, Tensor, variable_positions
from crtexport.ir.ops import AssignVariable, Control, Foreign, If, ReadVariable, While
from crtexport.ir.types import ConstantRef, DType, TensorType
from crtexport.passes.copy_outputs import copy_outputs
from crtexport.simulation.tflite_form import Steering, TfliteForm
from crtexport.simulation.tflite_forms import form, version
from crtexport.simulation.tflite_legalize import legalize
from crtexport.support.errors import CrtExportError

Shared = tuple[str, str]
"""Container and name of a variable in VAR_HANDLE."""


class FileOperator(Struct, frozen=True):
    """An operator with the numbers of its tensors; ``code`` is its name and version."""

    form: TfliteForm
    code: tuple[str, int]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...] = ()


class FilePart(Struct, frozen=True):
    """A subgraph; the tensors at ``handles`` are written as handles of variables."""

    tensors: list[Tensor]
    operators: list[FileOperator] = field(default_factory=list)
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    handles: tuple[int, ...] = ()

    @property
    def constants(self) -> list[ConstantRef]:
        return [t.constant for t in self.tensors if t.constant is not None]


def parts(graph: Graph) -> list[FilePart]:
    """Returns the subgraphs of a file: that of ``graph``, then one that initialises its variables,
    if it has any, then those of its nodes."""
    found: list[FilePart] = []
    # Names may repeat; containers make them unique.
    shared = {v: (str(v), graph.tensors[v].name) for v in sorted(resources(graph))}
    _refuse_shared_states(graph, shared)
    _PartWriter(found, legalize(graph), shared).write(outermost=True)
    return found


def resources(graph: Graph) -> set[int]:
    """Returns the variables that are read and written by operators of their own, rather than as
    states of a recurrent operator."""
    found = set()
    for node in graph.nodes:
        if isinstance(node.op, ReadVariable | AssignVariable):
            found.add(graph.required(node, 0))
        for inner in node.graphs:
            used = resources(inner)
            pairs = zip(inner.inputs, node.given, strict=True)
            found.update(outer for t, outer in pairs if t in used and outer is not None)
    return found


def _var_handle(shared: Shared, output: int) -> FileOperator:
    fields = {"Container": shared[0], "SharedName": shared[1]}
    form_ = TfliteForm("VAR_HANDLE", "VarHandleOptions", fields)
    return FileOperator(form_, ("VAR_HANDLE", 1), (), (output,))


def _initialisation(graph: Graph, shared: Mapping[int, Shared]) -> FilePart:
    """Returns the subgraph that sets variables to their initial values."""
    tensors, operators = list[Tensor](), list[FileOperator]()
    for variable, names in shared.items():
        tensor = graph.tensors[variable]
        zeros = ConstantRef.of(np.zeros(tensor.type.shape, tensor.type.dtype.numpy))
        given = tensor.variable.initial if tensor.variable is not None else None
        handle = len(tensors)
        tensors += [tensor, Tensor(tensor.name, tensor.type, given or zeros)]
        operators += [
            _var_handle(names, handle),
            FileOperator(
                TfliteForm("ASSIGN_VARIABLE"), ("ASSIGN_VARIABLE", 1), (handle, handle + 1), ()
            ),
        ]
    return FilePart(tensors, operators, handles=tuple(range(0, len(tensors), 2)))


class _PartWriter:
    """The conversion of one graph into ``parts``; ``shared`` are its variables that are resources.
    """

    def __init__(self, parts: list[FilePart], graph: Graph, shared: Mapping[int, Shared]) -> None:
        self._parts, self._graph, self._shared = parts, graph, shared
        variables = set(graph.variables)
        self._part = FilePart(
            list(graph.tensors), [], tuple(t for t in graph.inputs if t not in variables),
            graph.outputs, tuple(shared),
        )
        self._tensors = self._part.tensors

    def write(self, *, outermost: bool) -> int:
        """Appends the graph and those that its nodes run; returns its number."""
        number = len(self._parts)
        self._parts.append(self._part)
        operators = self._part.operators
        if self._shared and outermost:
            fields = {"InitSubgraphIndex": len(self._parts)}
            once = TfliteForm("CALL_ONCE", "CallOnceOptions", fields)
            operators.append(FileOperator(once, ("CALL_ONCE", 1), (), ()))
            self._parts.append(_initialisation(self._graph, self._shared))
        operators += [_var_handle(names, v) for v, names in self._shared.items()]
        operators += [
            self._control(node, node.op) if isinstance(node.op, Control) else self._operator(node)
            for node in self._graph.nodes
        ]
        return number

    def _operator(self, node: Node) -> FileOperator:
        if isinstance(node.op, Foreign):
            raise CrtExportError(
                f"the reference runtime has no function {node.op.function!r}",
                location=(self._graph.source, str(node)),
                hint="compare a network without external functions",
            )
        written = form(self._graph, node)
        inputs = [-1 if tensor is None else tensor for tensor in node.inputs]
        if written.order:
            given = dict(enumerate(inputs))
            inputs = [-1 if i is None else given.get(i, -1) for i in written.order]
        types = tuple(self._graph.type(t).dtype for t in node.inputs if t is not None)
        name = f"{node.name}/{written.code.lower()}"
        inputs[1:1] = [self._steering(name, values) for values in written.between]
        leading = [self._steering(name, values) for values in written.leading]
        inputs = [*leading, *inputs, *(self._steering(name, v) for v in written.steering)]
        code = (written.code, version(written.code, types))
        first = len(self._tensors)
        self._tensors += [Tensor(f"{name}/intermediate", t) for t in written.intermediates]
        intermediates = tuple(range(first, len(self._tensors)))
        return FileOperator(written, code, tuple(inputs), node.outputs, intermediates)

    def _steering(self, name: str, values: Steering) -> int:
        """Appends a constant operand of an operator; returns its number."""
        type_ = TensorType(DType.INT32, values.shape)
        self._tensors.append(Tensor(name, type_, ConstantRef.of(values)))
        return len(self._tensors) - 1

    # -- operators that run graphs

    def _control(self, node: Node, op: Control) -> FileOperator:
        variables = variable_positions(node)
        plain = [p for p in range(len(node.inputs)) if p not in variables]
        inputs = tuple(
            self._zeros(node, p) if node.inputs[p] is None else self._graph.required(node, p)
            for p in plain
        )
        outputs, graphs = node.outputs, list(node.graphs)
        if isinstance(op, While):
            if not set(graphs[1].inputs).isdisjoint(graphs[1].outputs):
                # tflite-runtime 2.14 copies results to inputs one by one: exchanged, one is lost.
                graphs[1] = copy_outputs(graphs[1])
            # Inputs that a loop only reads are also its outputs there, unchanged.
            further = plain[len(outputs):]
            graphs[1] = _giving(graphs[1], [graphs[1].inputs[p] for p in further])
            first = len(self._tensors)
            self._tensors += [
                Tensor(f"{node.name}/unchanged", self._graph.type(self._graph.required(node, p)))
                for p in further
            ]
            outputs = (*outputs, *range(first, len(self._tensors)))
        numbers = [self._inner(node, graph) for graph in graphs]
        if isinstance(op, If):
            fields = {"ThenSubgraphIndex": numbers[0], "ElseSubgraphIndex": numbers[1]}
            return FileOperator(TfliteForm("IF", "IfOptions", fields), ("IF", 1), inputs, outputs)
        fields = {"CondSubgraphIndex": numbers[0], "BodySubgraphIndex": numbers[1]}
        form = TfliteForm("WHILE", "WhileOptions", fields)
        return FileOperator(form, ("WHILE", 1), inputs, outputs)

    def _zeros(self, node: Node, position: int) -> int:
        """Appends an initial value for a loop variable that is written before it is read."""
        body = node.graphs[1]
        type_ = body.type(body.inputs[position])
        zeros = ConstantRef(nbytes=type_.nbytes, data=bytes(type_.nbytes))
        self._tensors.append(Tensor(f"{node.name}/start", type_, zeros))
        return len(self._tensors) - 1

    def _inner(self, node: Node, graph: Graph) -> int:
        used = resources(graph)
        shared = {}
        for tensor, outer in zip(graph.inputs, node.given, strict=True):
            if tensor in used and outer is not None:
                shared[tensor] = self._shared[outer]
        return _PartWriter(self._parts, legalize(graph), shared).write(outermost=False)


def _refuse_shared_states(graph: Graph, shared: Mapping[int, Shared]) -> None:
    """Refuses states of recurrent operators that several subgraphs use: runtimes keep one for each
    subgraph."""
    for variable in graph.variables:
        outside = sum(variable in node.inputs for node in graph.nodes if not node.graphs)
        users = _users(graph, variable)
        if variable not in shared and users > max(outside, 1):
            raise CrtExportError(
                "TensorFlow Lite can't share a state among several graphs:"
                f" {graph.tensors[variable].name!r}",
                location=graph.source,
            )


def _users(graph: Graph, variable: int) -> int:
    """Returns the number of operators that use a variable, in inner graphs too."""
    found = 0
    for node in graph.nodes:
        if not node.graphs:
            found += variable in node.inputs
        for place, tensor in enumerate(node.given):
            if tensor == variable:
                found += sum(_users(inner, inner.inputs[place]) for inner in node.graphs)
    return found


def _giving(graph: Graph, unchanged: Sequence[int]) -> Graph:
    return Graph(
        graph.name, graph.tensors, graph.nodes, graph.inputs, (*graph.outputs, *unchanged),
        graph.source, graph.sha256, graph.numerics,
    )

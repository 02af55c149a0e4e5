"""One subgraph of a file as a Graph, with those that its IF and WHILE operators run.

Inputs that are handles of variables become the variables themselves; variables that a subgraph uses
without receiving them become further inputs, so that the outermost graph has them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from crtexport.importers.tflite import (
    circular_buffer,
    decode,
    schema,
    signal,
    signal_state,
    volumes,
)
from crtexport.importers.tflite.folded import FOLDED, constant, dequantized, steering
from crtexport.importers.tflite.list_items import ListItem, list_items
from crtexport.importers.tflite.operators import Decoder, SourceOperator
from crtexport.importers.tflite.schema import BuiltinOperator
from crtexport.importers.tflite.spectra import Spectrum, spectra
from crtexport.importers.tflite.variables import STEERING, Key, Subgraph, handles
from crtexport.ir.graph import Graph, Node, Tensor, Variable
from crtexport.ir.infer import infer
from crtexport.ir.ops import Foreign, If, Op, While
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError

EXPANDED = {circular_buffer.NAME: circular_buffer.nodes, **signal_state.EXPANDED}
"""TFLite Micro's operators that become several nodes, by their names."""
BUILTIN = {"CONV_3D": volumes.conv_3d}
"""TensorFlow Lite's own ones that do."""
_EXPANDED = BUILTIN | {f"custom {name!r}": nodes for name, nodes in EXPANDED.items()}
DECODE = f"custom {decode.NAME!r}"
"""The name of TFLite Micro's operator that decompresses constants."""
_FILTER_BANK = f"custom {signal.FILTER_BANK!r}"

_VARIABLES = frozenset({BuiltinOperator.READ_VARIABLE, BuiltinOperator.ASSIGN_VARIABLE})


class SubgraphCaller(Struct, frozen=True):
    """The caller of a subgraph: the variables whose handles it passes, by input; and the chain of
    subgraphs that run it, itself the last."""

    handles: tuple[tuple[int, Key], ...]
    path: tuple[int, ...]


class Imported(Struct, frozen=True):
    """A graph whose last inputs are the variables ``kept``, as their owner should define them.

    ``passed`` has the variable whose handle an output is, for each output of the file; ``runs`` is
    the number of operators, those of inner graphs counted once per run.
    """

    graph: Graph
    kept: Mapping[Key, Tensor]
    passed: tuple[Key | None, ...]
    runs: int


class Source(Protocol):
    """The file that a subgraph is part of."""

    def load(self, number: int) -> Subgraph: ...
    def decoder(self, code: int, name: str) -> Decoder | None: ...
    def nested(self, number: int, caller: SubgraphCaller) -> Imported: ...


class Reading:
    """The import of one subgraph. ``initial`` has values of variables, where this is the first
    subgraph, which owns them; else they are its inputs."""

    def __init__(
        self, source: Source, number: int, caller: SubgraphCaller,
        initial: Mapping[Key, Tensor] | None,
    ) -> None:
        self._source = source
        self._number, self._path = number, caller.path
        self._subgraph = source.load(number)
        self._tensors = self._subgraph.tensors
        self._initial = initial
        self._bound = dict(caller.handles)
        self._handles = {**handles(self._subgraph), **self._bound}
        self._places: dict[Key, int] = {}
        self._next = self._tensors.count  # the number of a tensor that the file doesn't have
        self._kept: dict[Key, Tensor] = {}
        self._runs = len(self._subgraph.operators)
        self.numbers: tuple[int, ...] = ()  # in the file, of the graph's tensors

    # -- the graph

    def imported(self, names: Callable[[set[int], set[int]], dict[int, str]]) -> Imported:
        """Returns the graph; ``names`` renames some of its inputs and outputs."""
        table = self._subgraph.table
        nodes = list(self._nodes())
        listed = self.inputs
        inputs = [t for t in listed if t not in self._bound]
        results = table.outputs
        outputs = [t for t in results if t not in self._handles]
        if self._initial is not None:
            for tensor in inputs:
                self._tensors.check_input(tensor)
        used = {t for node in nodes for t in (*node.inputs, *node.outputs) if t is not None}
        if self._initial is None:
            self._lend(sorted(used))
            inputs += self._places.values()
        numbers = sorted(used | set(inputs) | set(outputs))
        self.numbers = tuple(numbers)
        graph = renumbered(
            Graph(
                table.name,
                tuple(self._tensors.tensor(t) for t in numbers), tuple(nodes), tuple(inputs),
                tuple(outputs),
            ),
            {old: new for new, old in enumerate(numbers)},
            names(set(inputs), set(outputs)),
        )
        passed = tuple(self._handles.get(t) for t in results)
        return Imported(graph, self._kept, passed, self._runs)

    @property
    def inputs(self) -> tuple[int, ...]:
        """Returns the subgraph's inputs in the file."""
        return self._subgraph.table.inputs

    def _lend(self, tensors: Sequence[int]) -> None:
        """Makes inputs of an inner subgraph's variable tensors, which runtimes keep for it."""
        places = set(self._places.values())
        for number in tensors:
            tensor = self._tensors.tensor(number)
            if tensor.variable is None or number in places:
                continue
            key = (self._number, number)
            self._kept[key], self._places[key] = tensor, number
            self._tensors.define(number, replace(tensor, variable=Variable()))

    # -- operators

    def _nodes(self) -> Iterator[Node]:
        """Returns the nodes; operators that give constants become these constants."""
        items: dict[int, ListItem | Spectrum] = {
            **list_items(self._subgraph), **spectra(self._subgraph)
        }
        cuts = {index for item in items.values() for index in item.slices}
        for index, (table, (code, name)) in enumerate(
            zip(self._subgraph.operators, self._subgraph.codes, strict=True)
        ):
            if code == BuiltinOperator.CALL_ONCE and self._number != 0:
                raise CrtExportError(
                    "variables are initialised in an inner subgraph, which may not run",
                    location=f"operator {index} ({name})",
                    hint="initialise them in the main subgraph",
                )
            if code in STEERING or index in cuts:
                continue
            origin = f"operator {index} ({name})"
            try:
                nodes = (
                    items[index].nodes(self._tensors, self._made) if index in items
                    else self._operator(table, code, name)
                )
            except CrtExportError as error:
                raise error.within(origin) from error.__cause__
            for made in nodes:
                node = replace(made, origin=origin)
                values = steering(node, self._tensors.tensor)
                if values is None:
                    yield node
                else:
                    self._define(node.outputs, values)

    def _operator(self, table: schema.Operator, code: int, name: str) -> list[Node]:
        """Returns the nodes of an operator: one, several, or none for one that gives constants."""
        if name in _EXPANDED:
            inputs = tuple(None if t == -1 else t for t in table.inputs)
            source = SourceOperator(table, inputs, table.outputs, self._tensors)
            nodes = _EXPANDED[name](source, self._made)
            if self._initial is None and any(isinstance(node.op, If) for node in nodes):
                raise CrtExportError("a subgraph that IF or WHILE runs can't end here in some runs")
            for output in source.outputs:  # a file has a circular buffer's slots there
                known = self._tensors.tensor(output)
                self._tensors.define(output, replace(known, variable=None))
            return nodes
        if name == DECODE:
            inputs = tuple(None if t == -1 else t for t in table.inputs)
            source = SourceOperator(table, inputs, table.outputs, self._tensors)
            for output, tensor in zip(table.outputs, decode.decoded(source), strict=True):
                self._tensors.define(output, tensor)
            return []
        node = self._node(table, code, name)
        return [] if node is None else [node]

    def _made(self, tensor: Tensor) -> int:
        """Defines a tensor that the file doesn't have; returns its number."""
        number = self._next
        self._next += 1
        self._tensors.define(number, tensor)
        return number

    def _define(self, tensors: tuple[int, ...], values: Sequence[Any]) -> None:
        """Makes constants of an operator's outputs."""
        if len(tensors) != len(values):
            raise CrtExportError(f"expected {len(values)} outputs, found {len(tensors)}")
        for tensor, array in zip(tensors, values, strict=True):
            self._tensors.define(tensor, constant(self._tensors.tensor(tensor), array))

    def _node(self, table: schema.Operator, code: int, name: str) -> Node | None:
        """Returns an operator; None for one that gives constants."""
        outputs = table.outputs
        inputs = tuple(None if t == -1 else t for t in table.inputs)
        source = SourceOperator(table, inputs, outputs, self._tensors)
        if code in (BuiltinOperator.IF, BuiltinOperator.WHILE):
            return self._control(source, is_if=code == BuiltinOperator.IF)
        if name == _FILTER_BANK:
            for output in outputs:
                self._tensors.take_signed(output)
        if code in _VARIABLES:
            source = replace(source, inputs=self._with_variable(source, code))
        for tensor in (*source.inputs, *outputs):
            if tensor is not None:
                self._tensors.tensor(tensor)
        if code in FOLDED:
            self._define(outputs, [FOLDED[code](source)])
            return None
        if code == BuiltinOperator.DEQUANTIZE and outputs and self._starts(source):
            return None
        decode = self._source.decoder(code, name)
        if decode is None:
            raise CrtExportError("the operator is not supported")
        op, kept = decode(source)
        while kept and kept[-1] is None:
            kept = kept[:-1]
        self._complete(op, kept, outputs)
        return Node(op, kept, outputs, self._tensors.tensor(outputs[0]).name if outputs else "")

    def _starts(self, source: SourceOperator) -> bool:
        """Makes a dequantized constant the initial value of a variable tensor, as converters write
        a state's: runtimes dequantize constants once."""
        result = self._tensors.tensor(source.outputs[0])
        start = dequantized(source.given(0, "value"), result)
        if result.variable is None or start is None:
            return False
        variable = Tensor(result.name, result.type, variable=Variable(start.constant))
        self._tensors.define(source.outputs[0], variable)
        return True

    def _complete(
        self, op: Op, inputs: tuple[int | None, ...], outputs: tuple[int, ...]
    ) -> None:
        """Gives outputs the operator's shapes where the file has empty ones, as some converters
        write it: runtimes go by the operator."""
        declared = [self._tensors.tensor(t) for t in outputs]
        if isinstance(op, Foreign) or all(tensor.type.shape for tensor in declared):
            return
        given = tuple(None if t is None else self._tensors.tensor(t).type for t in inputs)
        types = infer(op, given, declared=tuple(tensor.type.dtype for tensor in declared))
        for number, tensor, known in zip(outputs, declared, types, strict=False):
            if known.shape and not tensor.type.shape:
                found = replace(tensor.type, shape=known.shape)
                self._tensors.define(number, replace(tensor, type=found))

    # -- variables

    def _with_variable(self, source: SourceOperator, code: int) -> tuple[int | None, ...]:
        """Returns the operator's inputs with the variable in the place of its handle."""
        reads = code == BuiltinOperator.READ_VARIABLE
        values = source.outputs[:1] if reads else source.inputs[1:2]
        first = source.inputs[0] if source.inputs else None
        key = self._handles.get(first) if first is not None else None
        if key is not None and values and values[0] is not None:
            return self._variable(key, self._tensors.tensor(values[0])), *source.inputs[1:]
        if first is None or not values or self._handles:
            raise CrtExportError("the variable isn't named by a VAR_HANDLE of the same subgraph")
        return source.inputs

    def _variable(self, key: Key, like: Tensor) -> int:
        """Returns the tensor that is the variable ``key``, of the type of ``like``."""
        if key in self._places:
            return self._places[key]
        named = [tensor for tensor, known in self._handles.items() if known == key]
        place = named[0] if named else self._next
        self._next += not named
        start = self._initial.get(key) if self._initial is not None else None
        if start is not None and (start.type.dtype, start.type.shape) != (
            like.type.dtype, like.type.shape
        ):
            raise CrtExportError(
                f"the variable is used as {like.type}, its initial value is {start.type}",
                location=f"variable {key[1]!r}",
            )
        if isinstance(key[0], int):  # a tensor of an inner subgraph: as that says
            tensor = like
        else:
            value = Variable(start.constant if start is not None else None)
            tensor = Tensor(str(key[1]), like.type, variable=value)
        self._kept[key], self._places[key] = tensor, place
        own = tensor if self._initial is not None else replace(tensor, variable=Variable())
        self._tensors.define(place, own)
        return place

    # -- operators that run subgraphs

    def _control(self, source: SourceOperator, *, is_if: bool) -> Node:
        numbers = self._run_by(source, is_if=is_if)
        first = 1 if is_if else 0
        arguments = source.inputs[first:]
        keys = [self._handles.get(t) if t is not None else None for t in arguments]
        graphs = [self._child(number, keys) for number in numbers]
        outputs = source.outputs
        if not is_if:
            outputs = self._carried(graphs[1], keys, outputs)
        if any(key is not None for graph in (graphs if is_if else graphs[:1]) for key in
               graph.passed):
            raise CrtExportError("a variable's handle is a result")
        kept = {key: tensor for graph in graphs for key, tensor in graph.kept.items()}
        variables = tuple(self._variable(key, tensor) for key, tensor in kept.items())
        inputs = tuple(t for t, key in zip(arguments, keys, strict=True) if key is None)
        for tensor in (*source.inputs[:first], *inputs, *outputs):
            if tensor is not None:
                self._tensors.tensor(tensor)
        name = self._tensors.tensor(outputs[0]).name if outputs else ""
        return Node(
            If() if is_if else While(), (*source.inputs[:first], *inputs, *variables), outputs,
            name, graphs=tuple(_with_all(graph, kept) for graph in graphs),
        )

    def _run_by(self, source: SourceOperator, *, is_if: bool) -> tuple[int, int]:
        """Returns the subgraphs that the operator runs."""
        if is_if:
            branch = source.options(schema.IfOptions)
            if not source.inputs:
                raise CrtExportError("it has no condition")
            return branch.then_subgraph_index, branch.else_subgraph_index
        loop = source.options(schema.WhileOptions)
        return loop.cond_subgraph_index, loop.body_subgraph_index

    def _child(self, number: int, keys: Sequence[Key | None]) -> Imported:
        """Returns a subgraph that gets the handles ``keys``, None for other inputs."""
        try:
            if number in self._path:
                raise CrtExportError("the subgraph runs itself")
            listed = self._source.load(number).table.inputs
            if len(listed) != len(keys):
                raise CrtExportError(f"it takes {len(listed)} inputs, but is given {len(keys)}")
            pairs = zip(listed, keys, strict=True)
            bound = tuple((tensor, key) for tensor, key in pairs if key is not None)
            child = self._source.nested(number, SubgraphCaller(bound, (*self._path, number)))
        except CrtExportError as error:
            raise error.within(f"subgraph {number}") from error.__cause__
        self._runs += child.runs
        return child

    def _carried(
        self, body: Imported, keys: Sequence[Key | None], outputs: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Checks that the outputs of a loop that are no handles have the types of its inputs."""
        if body.passed != tuple(keys) or len(outputs) != len(keys):
            if len(body.passed) == len(keys) == len(outputs):
                raise CrtExportError("the loop exchanges handles of variables")
            raise CrtExportError(
                f"{len(keys)} inputs, {len(outputs)} outputs and {len(body.passed)} results of"
                " its body are not the same number"
            )
        for tensor, key in zip(outputs, keys, strict=True):
            if key is not None:
                self._handles[tensor] = key
        return tuple(t for t, key in zip(outputs, keys, strict=True) if key is None)


def with_file_numbers(graph: Graph, numbers: Sequence[int]) -> Graph:
    """Returns ``graph`` with its tensors under these numbers, and others of no elements between
    them, for errors that name tensors."""
    nothing = Tensor("", TensorType(DType.BOOL, (0,)))
    moved = renumbered(graph, dict(enumerate(numbers)), {})
    places = dict(zip(numbers, graph.tensors, strict=True))
    count = max(numbers, default=-1) + 1
    return replace(moved, tensors=tuple(places.get(i, nothing) for i in range(count)))


def renumbered(graph: Graph, number: Mapping[int, int], names: Mapping[int, str]) -> Graph:
    """Returns ``graph`` with its tensors, which come in their new order, under their new numbers.
    """
    tensors = list(graph.tensors)
    for old, name in names.items():
        tensors[number[old]] = replace(tensors[number[old]], name=name)
    return replace(
        graph,
        tensors=tuple(tensors),
        nodes=tuple(
            replace(
                node,
                inputs=tuple(None if t is None else number[t] for t in node.inputs),
                outputs=tuple(number[t] for t in node.outputs),
            )
            for node in graph.nodes
        ),
        inputs=tuple(number[t] for t in graph.inputs),
        outputs=tuple(number[t] for t in graph.outputs),
    )


def _with_all(child: Imported, variables: Mapping[Key, Tensor]) -> Graph:
    """Returns the graph with all of ``variables`` as its last inputs, used or not."""
    graph = child.graph
    plain = len(graph.inputs) - len(child.kept)
    places = dict(zip(child.kept, graph.inputs[plain:], strict=True))
    tensors = list(graph.tensors)
    for key, tensor in variables.items():
        if key not in places:
            places[key] = len(tensors)
            tensors.append(replace(tensor, variable=Variable()))
    inputs = (*graph.inputs[:plain], *(places[key] for key in variables))
    return replace(graph, tensors=tuple(tensors), inputs=inputs)

"""Graph, Node and Tensor: frozen, tuples, ids instead of back-pointers.

A pass is a function ``Graph -> Graph``. Names are data from the model: any text, not unique.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from crtexport.ir.modules import ExternalModule
from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Control, Op, Stateful
from crtexport.ir.types import ConstantRef, TensorType
from crtexport.support.errors import CrtExportError
from crtexport.support.files import text
from crtexport.support.short import count, line


class Variable(Struct, frozen=True):
    """Initial value of a tensor that keeps its value between runs; None: zero bytes."""

    initial: ConstantRef | None = None


class Tensor(Struct, frozen=True):
    """``constant`` is None for tensors that are computed or are inputs of the network.

    A tensor with ``variable`` is there from the start and keeps its value from run to run. Only
    operators that say so read and write it (see :class:`crtexport.ir.ops.Stateful`), in the order
    of the graph's nodes. ``packed_bits``: those of each element of a constant as kernels read it,
    where they are fewer than a byte; ``constant`` has a byte for each.
    """

    name: str
    type: TensorType
    constant: ConstantRef | None = None
    variable: Variable | None = None
    packed_bits: int | None = None

    def __repr__(self) -> str:
        kinds = {"constant": self.constant, "variable": self.variable}
        return line("Tensor", self.name, self.type, *(k for k, v in kinds.items() if v is not None))


class Node(Struct, frozen=True):
    """One operator. ``inputs`` are tensor ids, None for an optional input left out.

    ``origin`` is its place in the model file, for errors and comments (``"operator 3 (CONV_2D)"``).
    ``graphs`` are those that an operator marked ``Control`` runs. Each has tensors of its own;
    those of its inputs that are variables are the node's, not copies of them. ``parts`` are the
    nodes that a Fused or Cascade node stands for, in their order: the tensors between them have no
    other reader and no memory of their own.
    """

    op: Op
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    name: str = ""
    origin: str = ""
    graphs: tuple[Graph, ...] = ()
    parts: tuple[Node, ...] = ()

    def __repr__(self) -> str:
        return line("Node", self, self.op, f"{self.inputs} to {self.outputs}")

    def __str__(self) -> str:
        return self.origin or f"{type(self.op).__name__} {self.name!r}"

    def is_from(self, *operators: str) -> bool:
        """Returns whether ``origin`` is the place of one of these operators of a model file."""
        return self.origin.endswith(tuple(f"({operator})" for operator in operators))

    @property
    def operator(self) -> str:
        """Returns the name of its operator, or the names of those of its parts."""
        return " + ".join(type(node.op).__name__ for node in self.parts or (self,))

    @property
    def given(self) -> tuple[int | None, ...]:
        """Returns the inputs that an operator marked ``Control`` passes to each of its graphs."""
        return self.inputs[self.op.first :] if isinstance(self.op, Control) else ()


class Graph(Struct, frozen=True):
    """A network: ``nodes`` in a valid order of execution; inputs and outputs are tensor ids.

    ``modules`` have the functions that its External nodes call.
    """

    name: str
    tensors: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    source: str = "" # the model file's name without its folder, for comments and errors
    sha256: str = "" # of the model file
    numerics: Numerics = Numerics.TFLITE
    modules: tuple[ExternalModule, ...] = ()

    def __repr__(self) -> str:
        return line(
            "Graph", self.name, f"of {self.source}:" if self.source else ":",
            f"{count(len(self.nodes), 'node')}, {count(len(self.tensors), 'tensor')}",
        )

    def type(self, tensor: int) -> TensorType:
        return self.tensors[tensor].type

    def required(self, node: Node, index: int) -> int:
        """Returns the id of a node's input that must be there."""
        tensor = node.inputs[index] if index < len(node.inputs) else None
        if tensor is None:
            raise CrtExportError(f"input {index} is missing", location=(self.source, str(node)))
        return tensor

    def optional(self, node: Node, index: int) -> int | None:
        """Returns the id of a node's input, or None where it was left out."""
        return node.inputs[index] if index < len(node.inputs) else None

    def constant(self, tensor: int) -> ConstantRef | None:
        return self.tensors[tensor].constant

    @property
    def variables(self) -> tuple[int, ...]:
        """Returns the tensors that keep their values between runs."""
        return tuple(i for i, t in enumerate(self.tensors) if t.variable is not None)

    def written(self, node: Node) -> tuple[int, ...]:
        """Returns the variables that ``node`` writes."""
        positions = variable_positions(node)
        return tuple(self.required(node, p) for p, written in positions.items() if written)

    def with_nodes(self, nodes: tuple[Node, ...]) -> Graph:
        return replace(self, nodes=nodes)

    def nested(self) -> Iterator[Graph]:
        """Yields this graph and, recursively, the graphs of its nodes."""
        yield self
        for node in self.nodes:
            for graph in node.graphs:
                yield from graph.nested()

    def from_file(self, source: str, sha256: str, numerics: Numerics | None) -> Graph:
        """Returns the graph, and those of its nodes, with this source, digest and numerics, which
        are those of TensorFlow Lite unless anybody chose."""
        numerics = numerics or Numerics.TFLITE
        nodes = tuple(
            replace(node, graphs=tuple(
                graph.from_file(source, sha256, numerics) for graph in node.graphs
            )) if node.graphs else node
            for node in self.nodes
        )
        return replace(self, nodes=nodes, source=text(source), sha256=sha256, numerics=numerics)


def variable_positions(node: Node) -> dict[int, bool]:
    """Yields the inputs of ``node`` that must be variables, and whether it writes them."""
    found: dict[int, bool] = {}
    if isinstance(node.op, Stateful):
        found = dict.fromkeys(node.op.reads, False) | dict.fromkeys(node.op.writes, True)
    for graph in node.graphs:
        variables = set(graph.variables)
        if not variables:
            continue
        written = {tensor for inner in graph.nodes for tensor in graph.written(inner)}
        first = node.op.first if isinstance(node.op, Control) else 0
        for position, tensor in enumerate(graph.inputs, first):
            if tensor in variables:
                found[position] = found.get(position, False) or tensor in written
    return dict(sorted(found.items()))

"""Graph, Node and Tensor: frozen, tuples, ids instead of back-pointers.

A pass is a function ``Graph -> Graph``. Names are data from the model: any text, not unique.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from crtexport.errors import CrtExportError
from crtexport.ir.ops import Op, Stateful
from crtexport.ir.types import ConstantRef, Rounding, TensorType


@dataclass(frozen=True)
class Variable:
    """What a tensor that keeps its value between runs holds before the first; None: zero bytes."""

    initial: ConstantRef | None = None


@dataclass(frozen=True)
class Tensor:
    """``constant`` is None for what is computed or given at run time.

    A tensor with ``variable`` is there from the start and keeps its value from run to run. Only
    operators that say so read and write it (see :class:`crtexport.ir.ops.Stateful`), in the order
    of the graph's nodes.
    """

    name: str
    type: TensorType
    constant: ConstantRef | None = None
    variable: Variable | None = None


@dataclass(frozen=True)
class Node:
    """One operator. ``inputs`` are tensor ids, None for an optional input left out.

    ``origin`` says where it came from, for errors and comments (``"operator 3 (CONV_2D)"``).
    """

    op: Op
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    name: str = ""
    origin: str = ""

    def __str__(self) -> str:
        return self.origin or f"{type(self.op).__name__} {self.name!r}"


@dataclass(frozen=True)
class Graph:
    """A network: ``nodes`` in a valid order of execution; inputs and outputs are tensor ids."""

    name: str
    tensors: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    source: str = "" # the model file's name without its folder, for comments and errors
    sha256: str = "" # of the model file
    rounding: Rounding = Rounding.DOUBLE

    def type(self, tensor: int) -> TensorType:
        return self.tensors[tensor].type

    def required(self, node: Node, index: int) -> int:
        """The id of a node's input that must be there."""
        tensor = node.inputs[index] if index < len(node.inputs) else None
        if tensor is None:
            raise CrtExportError(f"input {index} is missing", location=(self.source, str(node)))
        return tensor

    def optional(self, node: Node, index: int) -> int | None:
        """The id of a node's input, or None where it was left out."""
        return node.inputs[index] if index < len(node.inputs) else None

    def constant(self, tensor: int) -> ConstantRef | None:
        return self.tensors[tensor].constant

    @property
    def variables(self) -> tuple[int, ...]:
        """The tensors that keep their values between runs."""
        return tuple(i for i, t in enumerate(self.tensors) if t.variable is not None)

    def written(self, node: Node) -> tuple[int, ...]:
        """The variables that ``node`` writes."""
        if not isinstance(node.op, Stateful):
            return ()
        return tuple(self.required(node, position) for position in node.op.writes)

    def with_nodes(self, nodes: tuple[Node, ...]) -> Graph:
        return replace(self, nodes=nodes)

"""Several nodes of float32 that one operator of a file becomes."""

from __future__ import annotations

from collections.abc import Callable

from crtexport.ir.graph import Node, Tensor
from crtexport.ir.ops import Op
from crtexport.ir.types import DType, TensorType

Define = Callable[[Tensor], int]
"""Makes a tensor, and returns its number."""


class FloatNodes:
    """``nodes`` with results of their own, which ``define`` makes; they are named after ``name``,
    the operator's result."""

    def __init__(self, name: str, define: Define) -> None:
        self.name, self._define = name, define
        self.nodes: list[Node] = []

    def add(self, op: Op, shape: tuple[int, ...], *inputs: int | None) -> int:
        """Adds a node, and returns its result."""
        name = f"{self.name}/{len(self.nodes)}"
        made = self._define(Tensor(name, TensorType(DType.FLOAT32, shape)))
        self.nodes.append(Node(op, inputs, (made,), name))
        return made

    def finish(self, op: Op, results: tuple[int, ...], *inputs: int | None) -> list[Node]:
        """Returns all nodes, and behind them one that gives the tensors ``results``."""
        return [*self.nodes, Node(op, inputs, results, self.name)]

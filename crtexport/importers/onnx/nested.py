"""A graph that a node runs, while it is read: what it reads of the graph around it becomes an input
of it, or a constant."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from crtexport.importers.onnx.builder import Builder
from crtexport.importers.onnx.values import Value, stored
from crtexport.ir.graph import Graph, Tensor
from crtexport.ir.types import TensorType
from crtexport.support.errors import CrtExportError


class Nested:
    """The graph so far, in ``builder``. ``given``: the tensors around it that it reads, by the
    numbers that they have there."""

    def __init__(self, outer: Builder) -> None:
        self.builder, self._outer = Builder(), outer
        self.builder.name, self.builder.origin = outer.name, outer.origin
        self.given: dict[int, int] = {}
        self._constants: dict[int, int] = {}

    def input(self, type_: TensorType) -> Value:
        """Adds a tensor that the node gives."""
        return stored(self.builder.tensor(type_), type_.shape)

    def seen(self, value: Value) -> Value:
        """Returns a value of the graph around this one as one of this graph."""
        return replace(value, tensor=self._seen(value.tensor))

    def _seen(self, number: int) -> int:
        known = self.given if self._outer.tensors[number].constant is None else self._constants
        if number not in known:
            tensor = self._outer.tensors[number]
            if tensor.type.quant is not None or number in self._outer.integers or (
                number in self._outer.blocks
            ):
                raise _with_scales()
            known[number] = self._added(tensor)
            self.builder.narrow(known[number], self._outer.bits.get(number))
        return known[number]

    def _added(self, tensor: Tensor) -> int:
        self.builder.tensors.append(tensor)
        return len(self.builder.tensors) - 1

    def graph(
        self, name: str, inputs: Sequence[Value], outputs: Sequence[int], captured: Sequence[int]
    ) -> Graph:
        """Returns the graph. Its inputs are ``inputs``, and then ``captured``, tensors of the
        graph around it, by their numbers; read or not.

        Raises CrtExportError where it computes with integers that have scales.
        """
        if self.builder.integers or any(t.type.quant is not None for t in self.builder.tensors):
            raise _with_scales()
        passed = [
            self.given[number] if number in self.given else self._added(self._outer.tensors[number])
            for number in captured
        ]
        return Graph(
            name, tuple(self.builder.tensors), tuple(self.builder.nodes),
            (*(value.tensor for value in inputs), *passed), tuple(outputs),
        )


def _with_scales() -> CrtExportError:
    return CrtExportError("a graph inside of a node computes with integers that have scales")

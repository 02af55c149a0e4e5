"""Recurrent layers of which only the last step is read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.types import TensorType
from crtexport.passes.element_numbers import element_numbers, follow
from crtexport.passes.uses import reading

_LENGTHS = 4
_OF_DIRECTIONS = (1, 2, 3, 5, 6, 7)
"""Inputs whose first axis is the direction."""
_MOST = 1 << 22
"""The largest number of elements, of all steps, that are followed one by one."""


def last_steps(graph: Graph) -> Graph:
    """Replaces reads of a recurrent layer's last step by reads of its final state.

    A layer of both directions whose states nothing reads is replaced by two: one runs forwards; the
    other computes only the last step of the backward direction, which is the first that this
    direction computes. Requires: nothing. Ensures: no layer without lengths outputs all steps if
    its readers only read the last one of each direction.
    """
    return _Pass(graph).run()


class _Pass:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors = list(graph.tensors)
        self.readers = reading(graph)

    def run(self) -> Graph:
        changed: dict[int, list[Node]] = {}
        for number, node in enumerate(self.graph.nodes):
            if not isinstance(node.op, ops.Recurrent) or not node.op.each_step:
                continue
            readers = self._readers(node, node.op)
            if not readers or (made := self._layers(node, node.op)) is None:
                continue
            changed[number], state = made
            for place, is_last in readers:
                reader = self.graph.nodes[place]
                shape = self.graph.type(reader.outputs[0]).shape
                last = replace(reader, op=ops.Reshape(shape), inputs=(state,))
                changed[place] = [last] if is_last else []
        nodes = [
            made for number, node in enumerate(self.graph.nodes)
            for made in changed.get(number, (node,))
        ]
        return replace(self.graph, tensors=tuple(self.tensors), nodes=tuple(nodes))

    def _readers(self, node: Node, op: ops.Recurrent) -> list[tuple[int, bool]]:
        """Returns the numbers of consecutive nodes that lead from all steps to the last one, each
        with whether its output is the last step; empty if anything else is read."""
        type_ = self.graph.type(node.outputs[0])
        if self.graph.optional(node, _LENGTHS) is not None or not 1 < type_.elements <= _MOST:
            return []
        every = element_numbers(type_)
        last = 0 if op.direction is ops.Direction.REVERSE else -1
        last_step = (every[:, last] if op.batch_major else every[last]).ravel()
        readers: list[tuple[int, bool]] = []
        waiting = [(node.outputs[0], every)]
        while waiting:
            tensor, elements = waiting.pop()
            if tensor in self.graph.outputs:
                return []
            for number in self.readers.get(tensor, ()):
                reader = self.graph.nodes[number]
                read = follow(self.graph, reader, tensor, elements) if isinstance(
                    reader.op, ops.Reshape | ops.Transpose | ops.Slice | ops.Gather
                ) else None
                if read is None:
                    return []
                readers.append((number, np.array_equal(read[0].ravel(), last_step)))
                if not readers[-1][1]:
                    waiting.append((reader.outputs[0], read[0]))
        return readers

    def _layers(self, node: Node, op: ops.Recurrent) -> tuple[list[Node], int] | None:
        """Returns the nodes that replace a layer, and the tensor of its last step."""
        if op.direction is not ops.Direction.BIDIRECTIONAL:
            states = node.outputs[1:]
            return [replace(node, op=replace(op, each_step=False), outputs=states)], states[0]
        if any(self.readers.get(t) or t in self.graph.outputs for t in node.outputs[1:]):
            return None
        made: list[Node] = []
        ends = tuple(self._one_direction(made, node, op, number) for number in range(2))
        _, batches, units = self.tensors[ends[0]].type.shape
        return made, self._added(
            made, node, ops.Concatenation(2), ends, (1, batches, 2 * units)
        )

    def _one_direction(self, nodes: list[Node], node: Node, op: ops.Recurrent, number: int) -> int:
        """Appends the layer of one direction to ``nodes``; returns its final state."""
        inputs = [
            tensor if tensor is None or place not in _OF_DIRECTIONS
            else self._cut(nodes, node, tensor, 0, number)
            for place, tensor in enumerate(node.inputs)
        ]
        if number == 1:
            axis = int(op.batch_major)
            steps = self.graph.type(self.graph.required(node, 0)).shape[axis]
            inputs[0] = self._cut(nodes, node, self.graph.required(node, 0), axis, steps - 1)
        functions, alpha, beta = (
            every[number * len(every) // 2:(number + 1) * len(every) // 2]
            for every in (op.functions, op.alpha, op.beta)
        )
        layer = replace(
            op, direction=ops.Direction.FORWARD, each_step=False, functions=functions, alpha=alpha,
            beta=beta,
        )
        shapes = [(1, *self.graph.type(state).shape[1:]) for state in node.outputs[1:]]
        return self._added(nodes, node, layer, inputs, *shapes)

    def _cut(self, nodes: list[Node], node: Node, tensor: int, axis: int, place: int) -> int:
        """Appends a Slice of index ``place`` of an axis; returns its output."""
        shape = self.graph.type(tensor).shape
        size = (*shape[:axis], 1, *shape[axis + 1:])
        begin = tuple(place if i == axis else 0 for i in range(len(shape)))
        cut = ops.Slice(begin, size, (1,) * len(shape), size)
        return self._added(nodes, node, cut, (tensor,), size)

    def _added(
        self, nodes: list[Node], node: Node, op: ops.Op, inputs: Sequence[int | None],
        *shapes: tuple[int, ...],
    ) -> int:
        """Appends a node named after another one; returns its first output."""
        first = len(self.tensors)
        dtype = self.graph.type(node.outputs[0]).dtype
        for number, shape in enumerate(shapes, first):
            self.tensors.append(Tensor(f"{node.name}.{number}", TensorType(dtype, shape)))
        outputs = tuple(range(first, len(self.tensors)))
        nodes.append(Node(op, tuple(inputs), outputs, node.name, node.origin))
        return first

"""Decides where each tensor lives: what shares bytes, then an offset for each shared block.

Tensors that share all their bytes form a group: a reshape is a view of its input, and an
elementwise operator may write its output over an input that nobody reads any more. A group with
a graph output lives in the caller's output buffer from its first tensor on.
"""

from __future__ import annotations

from dataclasses import dataclass

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Elementwise, Reshape
from crtexport.plan.arena import Block, extent, lower_bound, place
from crtexport.plan.liveness import Lifetime, lifetimes
from crtexport.plan.model import Placement, Plan, Space, Step
from crtexport.plan.order import execution_order


@dataclass
class _Group:
    """Tensors with the same bytes. ``home``: where, unless it is a block of the workspace."""

    tensors: list[int]
    lifetime: Lifetime
    home: Placement | None = None


@dataclass(frozen=True)
class _Layout:
    """The groups of a graph and the steps that they lead to."""

    groups: list[_Group]
    steps: tuple[Step, ...]

    @property
    def workspace(self) -> list[_Group]:
        return [g for g in self.groups if g.home is None]


def plan(graph: Graph, *, alignment: int = 16) -> Plan:
    """Orders the nodes and places the tensors of a verified graph.

    ``alignment`` in bytes, of each workspace offset, is a power of two. Each graph output must be
    the output of a node of its own (the pass copy_outputs sees to it), else ValueError.
    """
    if alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"alignment {alignment} is no power of two")
    layout = _Grouping(graph).layout()
    blocks = _blocks(graph, layout.workspace)
    offsets = place(blocks, alignment)
    placements: list[Placement | None] = [None] * len(graph.tensors)
    for group in layout.groups:
        for tensor in group.tensors:
            placements[tensor] = group.home
    for group, offset in zip(layout.workspace, offsets, strict=True):
        for tensor in group.tensors:
            placements[tensor] = Placement(Space.WORKSPACE, offset=offset)
    state_size = 0
    for variable in graph.variables:
        placements[variable] = Placement(Space.STATE, offset=state_size)
        state_size += -(-graph.type(variable).nbytes // alignment) * alignment
    return Plan(
        layout.steps, tuple(placements), extent(blocks, offsets), alignment,
        state_size=state_size,
    )


def workspace_lower_bound(graph: Graph) -> int:
    """Bytes of workspace that no offsets can go below, in this order and with this sharing."""
    return lower_bound(_blocks(graph, _Grouping(graph).layout().workspace))


def _blocks(graph: Graph, groups: list[_Group]) -> list[Block]:
    return [Block(graph.type(g.tensors[0]).nbytes, g.lifetime) for g in groups]


class _Grouping:
    """Walks the nodes in order and joins each output to an input's group where it may."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.order = execution_order(graph)
        self.lifetimes = lifetimes(graph, self.order)
        self.of: dict[int, _Group] = {}

    def layout(self) -> _Layout:
        """All groups, in order of their first tensor, and the steps."""
        self._check_outputs()
        for index, tensor in enumerate(self.graph.inputs):
            self._start(tensor, Placement(Space.INPUT, index))
        steps = []
        for position, number in enumerate(self.order):
            node = self.graph.nodes[number]
            self._start_given(node)
            if self._view(node):
                continue
            steps.append(Step(number, self._in_place(node, position)))
            for tensor in node.outputs:
                if tensor not in self.of:
                    self._start(tensor, self._output_home(tensor))
        groups = list({id(g): g for g in self.of.values()}.values())
        return _Layout(groups, tuple(steps))

    def _check_outputs(self) -> None:
        produced = {t for node in self.graph.nodes for t in node.outputs}
        outputs = self.graph.outputs
        if len(set(outputs)) != len(outputs) or not produced.issuperset(outputs):
            raise ValueError("each graph output needs a node of its own")

    def _start_given(self, node: Node) -> None:
        """Starts groups for the constants and variables that a node reads."""
        for tensor in node.inputs:
            if tensor is None or tensor in self.of:
                continue
            if self.graph.constant(tensor) is not None:
                self._start(tensor, Placement(Space.CONSTANT, tensor))
            elif self.graph.tensors[tensor].variable is not None:
                self._start(tensor, Placement(Space.STATE))

    def _start(self, tensor: int, home: Placement | None) -> None:
        self.of[tensor] = _Group([tensor], self.lifetimes[tensor], home)

    def _output_home(self, tensor: int) -> Placement | None:
        if tensor not in self.graph.outputs:
            return None
        return Placement(Space.OUTPUT, self.graph.outputs.index(tensor))

    def _join(self, tensor: int, group: _Group) -> None:
        group.tensors.append(tensor)
        group.lifetime = group.lifetime.joined(self.lifetimes[tensor])
        group.home = group.home or self._output_home(tensor)
        self.of[tensor] = group

    def _view(self, node: Node) -> bool:
        """Makes a reshape's output a view of its input, where that takes no copy."""
        if not isinstance(node.op, Reshape):
            return False
        group, output = self.of[self.graph.required(node, 0)], node.outputs[0]
        if group.home is not None and output in self.graph.outputs:
            return False
        self._join(output, group)
        return True

    def _in_place(self, node: Node, position: int) -> tuple[tuple[int, int], ...]:
        """Joins the output of an elementwise node to the first input that it may overwrite."""
        if not isinstance(node.op, Elementwise):
            return ()
        output = node.outputs[0]
        for tensor in node.inputs:
            if tensor is not None and self._overwritable(tensor, output, position):
                group = self.of[tensor]
                sharing = [
                    i for i, t in enumerate(node.inputs) if t is not None and self.of[t] is group
                ]
                self._join(output, group)
                return tuple((0, i) for i in sharing)
        return ()

    def _overwritable(self, tensor: int, output: int, position: int) -> bool:
        """Whether the bytes of ``tensor`` can become those of ``output`` at this node."""
        before, after = self.graph.type(tensor), self.graph.type(output)
        if (before.elements, before.dtype.itemsize) != (after.elements, after.dtype.itemsize):
            return False
        group = self.of[tensor]
        return group.home is None and group.lifetime.last <= position

"""The lowered stage: a graph, and for each of its nodes the kernel that computes it on a target.

Lowering needs a graph and a target. The planner takes what kernels allow from it, the checker its
proofs, the assembler its calls. Kernels are built when they are first needed, and once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Cascade, Foreign, Reshape, While
from crtexport.kir.analysis.loop_reversal import reverse_loops
from crtexport.kir.language import Kernel
from crtexport.lowering.facts import Facts
from crtexport.lowering.inplace_facts import Analyze, kernel_facts
from crtexport.lowering.registry import (
    Context,
    InputTensor,
    KernelArg,
    Lowered,
    OutputTensor,
    Scratch,
)
from crtexport.lowering.rows.bands import Bands, bands
from crtexport.support.short import count, line


class LoweredNode(Struct, frozen=True, dict=True):
    """A node and what computes it.

    ``candidates`` are the names of the kernels that it could have, the usual one first; ``chosen``
    is the name of the one that it has, which ``build`` makes. There is no kernel where the function
    of an external module is called, where ``graphs`` are run, and where ``problems`` say which
    rules of the operator the node breaks. ``copies``: for each output of a loop what copies such a
    value, None for one of no bytes. ``rows``: what computes a cascade. ``analyze`` finds the facts
    that a planner needs.
    """

    context: Context
    candidates: tuple[str, ...] = ()
    chosen: str = ""
    build: Callable[[], Lowered] | None = None
    problems: tuple[str, ...] = ()
    graphs: tuple[LoweredGraph, ...] = ()
    copies: tuple[LoweredNode | None, ...] = ()
    rows: LoweredRows | None = None
    analyze: Analyze = kernel_facts

    def __repr__(self) -> str:
        return line("LoweredNode", f"{self.node}:", self.chosen)

    @property
    def node(self) -> Node:
        return self.context.node

    @cached_property
    def lowered(self) -> Lowered:
        """The kernel with memory of its own for all tensors. Raises CrtExportError naming the node
        where it has none."""
        if self.build is None:
            raise self.context.refuse("; ".join(self.problems) or "it has no kernel")
        return self.build()

    @cached_property
    def reversed(self) -> Lowered | None:
        """Returns the kernel with its outer loops from their ends to their beginnings, if that can
        be."""
        kernel = reversed_kernel(self.lowered)
        return None if kernel is None else replace(self.lowered, kernel=kernel)

    @cached_property
    def facts(self) -> Facts:
        """Returns the facts that the planner needs; empty where there is no kernel."""
        if self.build is None:
            return Facts()
        return self.analyze(self.lowered, self._reversed_kernel)

    def _reversed_kernel(self) -> Kernel | None:
        return None if self.reversed is None else self.reversed.kernel

    def running(
        self, *, backward: bool = False, in_place: tuple[tuple[int, int], ...] = ()
    ) -> Lowered:
        """Returns the kernel as it runs: in this direction, and without promises about the pairs
        (output position, input position) that share bytes. Raises CrtExportError naming the node
        where there is none."""
        lowered = self.reversed if backward else self.lowered
        if lowered is None:
            raise self.context.refuse("its kernel can't run backwards, as the plan wants")
        if not in_place:
            return lowered
        shared: set[KernelArg] = {OutputTensor(output) for output, _ in in_place}
        shared |= {InputTensor(position) for _, position in in_place}
        kernel = lowered.kernel
        overlapping = tuple(
            buffer.name for buffer, arg in zip(kernel.buffers, lowered.args, strict=True)
            if buffer.name in kernel.overlapping or arg in shared
        )
        return replace(lowered, kernel=replace(kernel, overlapping=overlapping))


class LoweredRows(Struct, frozen=True):
    """The rows of a cascade: ``bands`` with their schedule, and their nodes lowered."""

    bands: Bands
    lowered: LoweredGraph


class LoweredGraph(Struct, frozen=True):
    """A graph with its nodes lowered, in their order."""

    graph: Graph
    nodes: tuple[LoweredNode, ...]

    def __repr__(self) -> str:
        return line("LoweredGraph", f"{self.graph.name}:", count(len(self.nodes), "node"))

    def nested(self) -> Iterator[LoweredGraph]:
        """Yields this graph and all that its nodes run, and theirs."""
        yield self
        for node in self.nodes:
            for graph in node.graphs:
                yield from graph.nested()


LowerNode = Callable[[Context], LoweredNode]
"""Lowers a node that needs a kernel."""


class LowerIn(Protocol):
    """Returns what lowers the nodes of a graph. Those of a cascade's bands run ``runs`` times each
    in a run of the graph ``around`` them."""

    def __call__(
        self, graph: Graph, runs: Sequence[int] = (), around: Graph | None = None
    ) -> LowerNode: ...


def lower_graph(
    graph: Graph, lower_in: LowerIn,
    already_lowered: Mapping[int, LoweredNode] = MappingProxyType({}),
    runs: Sequence[int] = (), around: Graph | None = None,
) -> LoweredGraph:
    """Returns a graph lowered, with the graphs that its nodes run; those whose numbers are in
    ``already_lowered`` stay as they were lowered before. ``runs`` and ``around`` are those of
    :class:`LowerIn`.
    """
    lower = lower_in(graph, runs, around)

    def lowered(number: int, node: Node) -> LoweredNode:
        if number in already_lowered:
            return already_lowered[number]
        context = Context(graph, node)
        if node.graphs:
            return LoweredNode(
                context, graphs=tuple(lower_graph(inner, lower_in) for inner in node.graphs),
                copies=_copies(context, lower_in) if isinstance(node.op, While) else (),
            )
        if isinstance(node.op, Cascade):
            return _cascade(context, lower_in)
        return LoweredNode(context) if isinstance(node.op, Foreign) else lower(context)

    return LoweredGraph(
        graph, tuple(lowered(number, node) for number, node in enumerate(graph.nodes))
    )


def _cascade(context: Context, lower_in: LowerIn) -> LoweredNode:
    found = bands(context.graph, context.node)
    if found is None:
        return LoweredNode(context, problems=("its parts can't be computed row by row",))
    lowered = lower_graph(found.graph, lower_in, runs=found.runs, around=context.graph)
    return LoweredNode(context, rows=LoweredRows(found, lowered))


def _copies(
    loop: Context, lower_in: LowerIn
) -> tuple[LoweredNode | None, ...]:
    """For each output of a loop what copies a value of its type."""

    def copying(tensor: int) -> LoweredNode | None:
        value = replace(loop.graph.tensors[tensor], constant=None, variable=None)
        if not value.type.nbytes:
            return None
        node = Node(Reshape(value.type.shape), (0,), (1,), value.name, f"{loop.node}: copy")
        graph = replace(
            loop.graph, tensors=(value, value), nodes=(node,), inputs=(0,), outputs=(1,)
        )
        return lower_in(graph)(Context(graph, node))

    return tuple(copying(tensor) for tensor in loop.node.outputs)


def reversed_kernel(lowered: Lowered) -> Kernel | None:
    """Returns the kernel with its outer loops from their ends to their beginnings, if that can
    be."""
    scratch = [
        buffer.name for buffer, arg in zip(lowered.kernel.buffers, lowered.args, strict=True)
        if isinstance(arg, Scratch)
    ]
    return reverse_loops(lowered.kernel, scratch)

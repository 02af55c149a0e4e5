"""Lowers graphs for a target: each node gets one of the kernels that schedules have for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from crtexport.ir.graph import Graph
from crtexport.lowering.inplace_facts import FactsByKernel
from crtexport.lowering.lowered_graph import LoweredGraph, LoweredNode, LowerNode, lower_graph
from crtexport.lowering.operator_table import check
from crtexport.lowering.registry import Context, Lowered, refusing_extremes
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.select.choose import ByEstimate, Choose, Costs, part_of, parts
from crtexport.schedules.variants import variants_of
from crtexport.support.target import Target


class Lowerer:
    """Lowers graphs for one target, optimization and way to choose."""

    def __init__(self, target: Target, optimize: str, choose: Choose | None = None) -> None:
        """Without ``choose``, the cost model decides."""
        self._target, self._optimize = target, optimize
        self._choose = choose or ByEstimate(target, optimize)
        self._analyze = FactsByKernel()

    @property
    def costs(self) -> Costs:
        """The costs of kernels that are known."""
        if isinstance(self._choose, ByEstimate):
            return self._choose.costs
        return Costs(self._target)

    def __call__(
        self, graph: Graph, kept: Mapping[int, LoweredNode] = MappingProxyType({}),
        runs: Sequence[int] = (), around: Graph | None = None,
    ) -> LoweredGraph:
        """Returns a graph lowered; the nodes whose numbers are in ``kept`` stay as they were
        lowered before. ``runs``: how often each node runs in a run of the graph ``around`` it.
        Raises CrtExportError naming the node where its scales are too extreme."""
        return lower_graph(graph, self._nodes_of, kept, runs, around)

    def _nodes_of(
        self, graph: Graph, runs: Sequence[int] = (), around: Graph | None = None
    ) -> LowerNode:
        work = parts(graph, runs, around)
        return lambda context: self._node(context, part_of(graph, context.node, work))

    def _node(self, context: Context, part: float) -> LoweredNode:
        problems = check(context)
        if problems:
            return LoweredNode(context, problems=tuple(problems))
        with refusing_extremes(context):
            found = variants_of(context, self._target, self._optimize)
            chosen = found[0] if len(found) == 1 else self._choose(context, found, part)
        return LoweredNode(
            context, tuple(variant.name for variant in found), chosen.name,
            lambda: _built(context, chosen), analyze=self._analyze,
        )


def _built(context: Context, chosen: Candidate) -> Lowered:
    with refusing_extremes(context):
        return chosen.make()

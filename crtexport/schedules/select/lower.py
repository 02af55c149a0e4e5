"""Lowers graphs for a target: each node gets one of the kernels that schedules have for it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from crtexport.ir.graph import Graph, Node
from crtexport.ir.macs import macs
from crtexport.lowering.inplace_facts import FactsByKernel
from crtexport.lowering.lowered_graph import LoweredGraph, LoweredNode, LowerNode, lower_graph
from crtexport.lowering.operator_table import check
from crtexport.lowering.registry import Context, Derived, Lowered, refusing_extremes
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.select.choose import (
    BALANCE,
    WORTH,
    ByEstimate,
    Choose,
    Costs,
    part_of,
    parts,
)
from crtexport.schedules.variants import variants_of
from crtexport.support.target import Target

_WEIGHTS = "weights"
"""The purpose of arrays of weights."""


class _MainReader(Struct, frozen=True):
    """Of several nodes with the same weights the one that does most with them: its ``variant``, and
    the ``order`` in which that reads them, as from :func:`_order`."""

    variant: str
    order: object


class Lowerer:
    """Lowers graphs for one target, optimization and way to choose."""

    def __init__(
        self, target: Target, optimize: str, choose: Choose | None = None, *, larger: bool = True
    ) -> None:
        """Without ``choose``, the cost model decides. ``larger``: variants may take a multiple of
        the memory of others."""
        self._target, self._optimize, self._larger = target, optimize, larger
        self._choose = choose or ByEstimate(target, optimize)
        self._analyze = FactsByKernel()
        self._whole: dict[object, str] = {}

    @property
    def worth_of_percent(self) -> int:
        """Returns the bytes of code that one percent of the time of a network is worth."""
        return WORTH.get(self._optimize, BALANCE)

    @property
    def costs(self) -> Costs:
        """Returns the costs of kernels that are known."""
        if isinstance(self._choose, ByEstimate):
            return self._choose.costs
        return Costs(self._target)

    def __call__(
        self, graph: Graph, kept: Mapping[int, LoweredNode] = MappingProxyType({}),
        runs: Sequence[int] = (), around: Graph | None = None,
    ) -> LoweredGraph:
        """Returns a graph lowered; the nodes whose numbers are in ``kept`` stay as they were
        lowered before. ``runs``: how often each node runs in a run of the graph ``around`` it;
        such nodes get the variants of whole layers with their weights, if these were lowered before
        and the nodes have them, too. Raises CrtExportError naming the node where its scales are too
        extreme."""
        return lower_graph(graph, self._nodes_of, kept, runs, around)

    def alternatives(self, node: LoweredNode) -> list[tuple[int, LoweredNode]]:
        """Returns how much more time a node takes with each of the other kernels that the cost
        model might choose for it, fastest first; none where that isn't what chooses."""
        choose = self._choose
        if not isinstance(choose, ByEstimate):
            return []
        with refusing_extremes(node.context):
            found = self._variants(node.context)
        others = [
            self._chosen(node.context, found, variant) for variant in choose.likely(found)
            if variant.name != node.chosen
        ]
        own = choose.time(node.lowered.kernel)
        return sorted(
            ((choose.time(other.lowered.kernel) - own, other) for other in others),
            key=lambda pair: pair[0],
        )

    def _nodes_of(
        self, graph: Graph, runs: Sequence[int] = (), around: Graph | None = None
    ) -> LowerNode:
        work = parts(graph, runs, around)
        readers: dict[int, _MainReader | None] = {}

        def lower(context: Context) -> LoweredNode:
            main = None
            if runs and (weights := _weights(context.node)) is not None:
                if weights not in readers:
                    readers[weights] = self._main_reader(graph, runs, work, weights)
                main = readers[weights]
            whole = self._as_whole(context) if runs else None
            if whole is not None and (main is None or _order(whole.lowered) == main.order):
                return whole
            node = self._node(context, part_of(graph, context.node, work), main)
            if not runs and (layer := _layer(context)) is not None:
                self._whole[layer] = node.chosen
            return node

        return lower

    def _main_reader(
        self, graph: Graph, runs: Sequence[int], work: Mapping[str, float], weights: int
    ) -> _MainReader | None:
        """Returns the node that does most with ``weights``; None where no other node has these, or
        where it has no kernel."""
        readers = [
            (times * macs(graph, node), number) for number, (node, times)
            in enumerate(zip(graph.nodes, runs, strict=True)) if _weights(node) == weights
        ]
        if len(readers) < 2:
            return None
        node = graph.nodes[max(readers)[1]]
        context = Context(graph, node)
        lowered = self._as_whole(context) or self._node(context, part_of(graph, node, work))
        if lowered.build is None:
            return None
        return _MainReader(lowered.chosen, _order(lowered.lowered))

    def _node(
        self, context: Context, part: float, main: _MainReader | None = None
    ) -> LoweredNode:
        """``main``: the node that does most with the same weights. They are read in its order, so
        that they are stored once, and where code counts, by its variant, which shares most with
        it."""
        problems = check(context)
        if problems:
            return LoweredNode(context, problems=tuple(problems))
        with refusing_extremes(context):
            candidates = self._variants(context)
            chosen = None
            if main is not None:
                candidates = [
                    one for one in candidates if not one.rare and _order(one.make()) == main.order
                ] or candidates
                if self._optimize in WORTH:
                    chosen = _named(candidates, main.variant)
            if chosen is None and len(candidates) > 1:
                chosen = self._choose(context, candidates, part)
            chosen = chosen or candidates[0]
        return self._chosen(context, candidates, chosen)

    def _variants(self, context: Context) -> list[Candidate]:
        """Returns the variants of a node, at least one, the default first."""
        found = variants_of(context, self._target, self._optimize)
        return [one for one in found if self._larger or not one.larger] or found

    def _as_whole(self, context: Context) -> LoweredNode | None:
        """Returns rows of a layer as the variant that the whole one was lowered as; None where it
        wasn't, and where that is no likely variant of theirs."""
        name = self._whole.get(_layer(context))
        if name is None or check(context):
            return None
        with refusing_extremes(context):
            candidates = self._variants(context)
        chosen = _named((variant for variant in candidates if not variant.rare), name)
        return None if chosen is None else self._chosen(context, candidates, chosen)

    def _chosen(
        self, context: Context, candidates: Sequence[Candidate], chosen: Candidate
    ) -> LoweredNode:
        return LoweredNode(
            context, tuple(variant.name for variant in candidates), chosen.name,
            lambda: _built(context, chosen), analyze=self._analyze,
        )


def _named(variants: Iterable[Candidate], name: str) -> Candidate | None:
    """Returns the variant with a name; None if there is none."""
    return next((variant for variant in variants if variant.name == name), None)


def _weights(node: Node) -> int | None:
    """Returns the tensor of a layer's weights; None where there is none."""
    return node.inputs[1] if len(node.inputs) > 1 else None


def _layer(context: Context) -> object:
    """Returns what is equal for a layer and its rows: operator and weights; None where there are
    none."""
    weights = _weights(context.node)
    constant = None if weights is None else context.graph.constant(weights)
    return None if constant is None else (type(context.node.op), constant)


def _order(lowered: Lowered) -> object:
    """Returns what is equal for kernels that read weights in one order."""
    digest = hashlib.sha256()
    for arg in lowered.args:
        if isinstance(arg, Derived) and arg.purpose == _WEIGHTS:
            for chunk in arg.data.chunks():
                digest.update(chunk)
    return digest.digest()


def _built(context: Context, chosen: Candidate) -> Lowered:
    with refusing_extremes(context):
        return chosen.make()

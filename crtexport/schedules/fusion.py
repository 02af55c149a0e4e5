"""Which operators are done by the layers whose results they read.

A layer that hands its results on in registers needs no memory for them. Sums are not made faster by
that: what computes with results between two blocks of products takes registers from these, while a
kernel that stands alone has its constants in registers; and the layer shares no kernel with others
of its shape. Maxima of windows are, and means now and then: each result goes through a sum in
memory. So layers are fused where the workspace gets smaller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from msgspec import Struct

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import (
    Add,
    Conv2D,
    DepthwiseConv2D,
    FullyConnected,
    Fused,
    MaxPool2D,
    Mul,
    ReduceMax,
    Sub,
    TransposeConv2D,
)
from crtexport.kernels.families import check
from crtexport.kernels.joint_windows import Folding, sides_of
from crtexport.kernels.registry import Context
from crtexport.kernels.verify import KernelError, verify
from crtexport.plan.model import Plan, Space
from crtexport.schedules import fused_forms
from crtexport.target import Target

WORTH = 0.05
"""The part of the workspace that must be gained."""
MOST = 8
"""Pairs up to which each is looked at alone."""
_LAYERS = (Conv2D, DepthwiseConv2D, TransposeConv2D, FullyConnected)


class Pair(Struct, frozen=True):
    """Numbers of a layer and of the operator that reads its result."""

    layer: int
    reader: int


def pairs(
    graph: Graph, target: Target, optimize: str, wanted: Callable[[Pair], bool] = lambda _: True
) -> list[Pair]:
    """What can be fused: a layer whose result only one node reads with that node, where it is a
    sum, difference or product of two tensors of one shape, or a maximum or mean of windows that
    don't overlap.

    No form is made for those that aren't ``wanted``.
    """
    computed_by = {t: number for number, node in enumerate(graph.nodes) for t in node.outputs}
    read = Counter(t for node in graph.nodes for t in node.inputs)
    read.update(graph.outputs)
    found = []
    for number, node in enumerate(graph.nodes):
        for tensor in node.inputs if _fusable(graph, node) else ():
            layer = computed_by.get(tensor) if tensor is not None else None
            if layer is None or read[tensor] > 1:
                continue
            pair = Pair(layer, number)
            candidate = isinstance(graph.nodes[layer].op, _LAYERS) and wanted(pair)
            if candidate and _possible(graph, pair, target, optimize):
                found.append(pair)
    return found


def _fusable(graph: Graph, node: Node) -> bool:
    match node.op:
        case Add() | Sub() | Mul():
            return len(set(node.inputs)) == 2 and _alike(graph, node)
        case _:
            return _folds(graph, node)


def _folds(graph: Graph, node: Node) -> bool:
    """Whether a node makes maxima or means of windows that don't overlap."""
    return isinstance(node.op, Folding) and sides_of(graph, node) is not None


def _alike(graph: Graph, node: Node) -> bool:
    """Whether all tensors of a node have one shape and one type of elements."""
    types = [graph.type(t) for t in (*node.inputs, *node.outputs) if t is not None]
    return len({(type_.shape, type_.dtype) for type_ in types}) == 1 and types[0].elements > 0


def _possible(graph: Graph, pair: Pair, target: Target, optimize: str) -> bool:
    context = Context(graph, _joint(graph, pair))
    if check(context):
        return False
    found = fused_forms(context, target, optimize)
    try:
        for form in found[:1]:
            verify(form.make().kernel)
    except KernelError:  # which can't follow where the results go
        return False
    return bool(found)


def _joint(graph: Graph, pair: Pair) -> Node:
    layer, reader = graph.nodes[pair.layer], graph.nodes[pair.reader]
    (between,) = layer.outputs
    others = tuple(tensor for tensor in reader.inputs if tensor != between)
    return Node(
        Fused(), (*layer.inputs, *others), reader.outputs, reader.name, f"{layer} + {reader}",
        parts=(layer, reader),
    )


def fuse(graph: Graph, chosen: Iterable[Pair]) -> Graph:
    """The graph with the operators of pairs in the places of their readers. An operator that is in
    two of them is done by the layer of the first."""
    readers: dict[int, Pair] = {}
    for pair in chosen:
        readers.setdefault(pair.reader, pair)
    gone = {pair.layer for pair in readers.values()}
    return graph.with_nodes(tuple(
        _joint(graph, readers[number]) if number in readers else node
        for number, node in enumerate(graph.nodes) if number not in gone
    ))


def smallest(
    graph: Graph, target: Target, optimize: str, planned: Callable[[Graph], Plan]
) -> tuple[Graph, Plan]:
    """The graph with what makes its workspace smaller fused, and its plan; ``planned`` plans.

    With ``speed``, only maxima are.
    """
    plan = planned(graph)
    if not any(_fusable(graph, node) for node in graph.nodes):
        return graph, plan
    chosen = pairs(graph, target, optimize, lambda pair: (
        optimize != "speed" or _is_maximum(graph, pair)
    ) and _promises(graph, plan, pair))
    if not chosen:
        return graph, plan
    best = fuse(graph, chosen)
    least = planned(best)
    if least.total > (1 - WORTH) * plan.total:
        return graph, plan
    for pair in chosen if 1 < len(chosen) <= MOST else ():
        if _is_maximum(graph, pair):
            continue
        fewer = [other for other in chosen if other != pair]
        without = fuse(graph, fewer)
        smaller = planned(without)
        if smaller.total <= least.total:
            chosen, best, least = fewer, without, smaller
    return best, least


def _is_maximum(graph: Graph, pair: Pair) -> bool:
    """Maxima cost nothing: they are made with a result at hand instead of loading it."""
    return isinstance(graph.nodes[pair.reader].op, MaxPool2D | ReduceMax)


def _promises(graph: Graph, plan: Plan, pair: Pair) -> bool:
    """Whether a plan may get smaller: the result of the layer lies in the workspace, and not where
    something of its size has been that it could overwrite."""
    layer, reader = graph.nodes[pair.layer], graph.nodes[pair.reader]
    between, source = layer.outputs[0], graph.required(layer, 0)
    if not _in_workspace(plan, between):
        return False
    size, before = graph.type(between).nbytes, graph.type(source).nbytes
    dying = _in_workspace(plan, source) and not any(
        source in node.inputs for node in graph.nodes[pair.layer + 1 :]
    )
    if _folds(graph, graph.nodes[pair.reader]) and dying:
        return graph.type(reader.outputs[0]).nbytes + before < max(size, before)
    return not dying or size > before


def _in_workspace(plan: Plan, tensor: int) -> bool:
    home = plan.placements[tensor]
    return home is not None and home.space is Space.WORKSPACE

"""Decides which operators are fused into the layers whose results they read.

A layer whose epilogue computes the next operator needs no memory for its own result. That doesn't
make sums faster: an epilogue between two blocks of products takes registers from these, while a
kernel of its own has its constants in registers; and a fused layer shares no kernel with others of
its shape. Maxima of windows get faster, and means now and then: each result goes through a sum in
memory. So layers are fused where the workspace gets smaller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from msgspec import Struct

from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node
from crtexport.kir.verifier import KernelError, verify
from crtexport.lowering.fusion.pooling_hooks import PoolingOp, pooling_axes
from crtexport.lowering.lowered_graph import LoweredGraph
from crtexport.lowering.operator_table import check
from crtexport.lowering.registry import Context
from crtexport.plan.model import Plan, Space
from crtexport.schedules.select.lower import Lowerer
from crtexport.schedules.variants import fused_variants
from crtexport.support.target import Target

WORTH = 0.05
"""The part of the workspace that must be gained."""
MOST = 8
"""Pairs up to which each is looked at alone."""
_LAYERS = (ops.Conv2D, ops.DepthwiseConv2D, ops.TransposeConv2D, ops.FullyConnected)


class Pair(Struct, frozen=True):
    """Numbers of a layer and of the operator that reads its result."""

    layer: int
    reader: int


def pairs(
    graph: Graph, target: Target, optimize: str, allowed: Callable[[Pair], bool] = lambda _: True
) -> list[Pair]:
    """Returns the candidates for fusion: each layer whose result only one node reads with that
    node, where it is a sum, difference or product of two tensors of one shape, or a maximum or mean
    of windows that don't overlap.

    No variants are made of those that aren't ``allowed``.
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
            candidate = isinstance(graph.nodes[layer].op, _LAYERS) and allowed(pair)
            if candidate and _possible(graph, pair, target, optimize):
                found.append(pair)
    return found


def _fusable(graph: Graph, node: Node) -> bool:
    match node.op:
        case ops.Add() | ops.Sub() | ops.Mul():
            return len(set(node.inputs)) == 2 and _alike(graph, node)
        case _:
            return _folds(graph, node)


def _folds(graph: Graph, node: Node) -> bool:
    """Returns whether a node computes maxima or means of windows that don't overlap."""
    return isinstance(node.op, PoolingOp) and pooling_axes(graph, node) is not None


def _alike(graph: Graph, node: Node) -> bool:
    """Returns whether all tensors of a node have one shape and one type of elements."""
    types = [graph.type(t) for t in (*node.inputs, *node.outputs) if t is not None]
    return len({(type_.shape, type_.dtype) for type_ in types}) == 1 and types[0].elements > 0


def _possible(graph: Graph, pair: Pair, target: Target, optimize: str) -> bool:
    context = Context(graph, _joint(graph, pair))
    if check(context):
        return False
    found = fused_variants(context, target, optimize)
    try:
        for variant in found[:1]:
            verify(variant.make().kernel)
    except KernelError:  # which can't follow where the results go
        return False
    return bool(found)


def _joint(graph: Graph, pair: Pair) -> Node:
    layer, reader = graph.nodes[pair.layer], graph.nodes[pair.reader]
    (between,) = layer.outputs
    others = tuple(tensor for tensor in reader.inputs if tensor != between)
    return Node(
        ops.Fused(), (*layer.inputs, *others), reader.outputs, reader.name, f"{layer} + {reader}",
        parts=(layer, reader),
    )


def fuse(graph: Graph, chosen: Iterable[Pair]) -> Graph:
    """Returns the graph with the operators of pairs in the places of their readers. An operator
    that is in two of them is done by the layer of the first."""
    readers, staying = _taken(graph, chosen)
    return graph.with_nodes(tuple(
        _joint(graph, readers[number]) if number in readers else graph.nodes[number]
        for number in staying
    ))


def _taken(graph: Graph, chosen: Iterable[Pair]) -> tuple[dict[int, Pair], list[int]]:
    """Returns the pairs that become one node, by reader, and the numbers of nodes that aren't
    gone."""
    readers: dict[int, Pair] = {}
    for pair in chosen:
        readers.setdefault(pair.reader, pair)
    gone = {pair.layer for pair in readers.values()}
    return readers, [number for number in range(len(graph.nodes)) if number not in gone]


def smallest(
    graph: Graph, target: Target, optimize: str, lower: Lowerer,
    planned: Callable[[LoweredGraph], Plan],
) -> tuple[LoweredGraph, Plan]:
    """Returns the graph, lowered, with what makes its workspace smaller fused, and its plan;
    ``planned`` plans. Nodes that aren't fused stay as they are lowered at first.

    With ``speed``, only maxima are fused.
    """
    lowered = lower(graph)
    plan = planned(lowered)
    if not any(_fusable(graph, node) for node in graph.nodes):
        return lowered, plan
    chosen = pairs(graph, target, optimize, lambda pair: (
        optimize != "speed" or _is_maximum(graph, pair)
    ) and _promises(graph, plan, pair))
    if not chosen:
        return lowered, plan

    def tried(pairs_to_fuse: list[Pair]) -> tuple[LoweredGraph, Plan]:
        readers, staying = _taken(graph, pairs_to_fuse)
        found = lower(fuse(graph, pairs_to_fuse), {
            at: lowered.nodes[number] for at, number in enumerate(staying) if number not in readers
        })
        return found, planned(found)

    best, least = tried(chosen)
    if least.total > (1 - WORTH) * plan.total:
        return lowered, plan
    for pair in chosen if 1 < len(chosen) <= MOST else ():
        if _is_maximum(graph, pair):
            continue
        fewer = [other for other in chosen if other != pair]
        without, smaller = tried(fewer)
        if smaller.total <= least.total:
            chosen, best, least = fewer, without, smaller
    return best, least


def _is_maximum(graph: Graph, pair: Pair) -> bool:
    """Maxima cost nothing: they are made with a result at hand instead of loading it."""
    return isinstance(graph.nodes[pair.reader].op, ops.MaxPool2D | ops.ReduceMax)


def _promises(graph: Graph, plan: Plan, pair: Pair) -> bool:
    """Returns whether a plan may get smaller: the result of the layer lies in the workspace, and
    not where it could overwrite a dead tensor of its size."""
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

"""Random inputs that a network can compute with: numbers of any kind, but valid indices, and none
below 0 of which a root is taken."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node
from crtexport.ir.types import TensorType
from crtexport.mlf.arrays import Array

_MOVES = (
    ops.BroadcastTo, ops.Cast, ops.Concatenation, ops.Pack, ops.Reshape, ops.Slice, ops.Split,
    ops.Tile, ops.Transpose, ops.Unpack,
)


def random_inputs(graph: Graph, samples: int, seed: int) -> list[list[Array]]:
    """Returns the arrays of ``samples`` inferences, in the order of the graph's inputs.

    Floats are drawn from a normal distribution, integers from their whole range, and indices, or
    values that become indices, below the number of rows that they select from, since the runtimes
    refuse others. What a root or logarithm is taken of is not negative: runtimes refuse integers,
    and no float is like another NaN.
    """
    rng, limits, rooted = np.random.default_rng(seed), index_limits(graph), not_negative(graph)
    return [
        [
            _from_zero(array, graph.type(tensor)) if tensor in rooted else array
            for tensor in graph.inputs
            for array in (_random(graph.type(tensor), limits.get(tensor), rng),)
        ]
        for _ in range(samples)
    ]


def not_negative(graph: Graph) -> set[int]:
    """Returns the tensors of which a root or a logarithm is taken without other arithmetic."""
    found = set[int]()
    for node in reversed(graph.nodes):
        if isinstance(node.op, ops.Sqrt | ops.Rsqrt | ops.Log):
            found.update(t for t in node.inputs if t is not None)
        elif not found.isdisjoint(node.outputs):
            same = isinstance(node.op, ops.Quantize | ops.Dequantize)
            found.update(t for t in (node.inputs if same else _moved(node)) if t is not None)
        for inner in node.graphs:
            rooted = not_negative(inner)
            found.update(
                outer for tensor, outer in zip(inner.inputs, node.given, strict=True)
                if tensor in rooted and outer is not None
            )
    return found


def _from_zero(array: Array, type_: TensorType) -> Array:
    """Returns the numbers with those that stand for negative ones made positive."""
    if not (type_.dtype.is_float or type_.dtype.is_integer):
        return array
    zero = type_.quant.zero_point[0] if type_.quant is not None else 0
    wide = array.astype(np.float64 if type_.dtype.is_float else np.int64)
    magnitudes: Array = np.abs(wide - zero) + zero
    if type_.dtype.is_integer:
        magnitudes = np.clip(magnitudes, *type_.dtype.limits)
    return magnitudes.astype(array.dtype)


def index_limits(graph: Graph) -> dict[int, int]:
    """Returns the smallest number of elements that each tensor's values select from, for tensors
    whose values are indices or become indices without arithmetic."""
    limits: dict[int, int] = {}

    def limit(tensor: int | None, most: int) -> None:
        if tensor is not None:
            limits[tensor] = min(most, limits.get(tensor, most))

    for node in reversed(graph.nodes):
        chosen = _chosen_by(graph, node)
        if chosen is not None:
            limit(*chosen)
        known = [limits[t] for t in node.outputs if t in limits]
        for tensor in _moved(node) if known else ():
            limit(tensor, min(known))
        for inner in node.graphs:
            found = index_limits(inner)
            for tensor, outer in zip(inner.inputs, node.given, strict=True):
                if tensor in found:
                    limit(outer, found[tensor])
    return limits


def _moved(node: Node) -> Sequence[int | None]:
    """Returns the tensors whose elements a node only moves."""
    match node.op:
        case ops.Gather() | ops.GatherNd():
            return node.inputs[:1]
        case ops.Select():  # as of indices that count from the end, and others
            return node.inputs[1:]
        case _:
            return node.inputs if isinstance(node.op, _MOVES) else ()


def _chosen_by(graph: Graph, node: Node) -> tuple[int, int] | None:
    """Returns the node's tensor of indices, and the number of elements that they choose from."""
    match node.op:
        case ops.Gather(axis=axis):
            table = graph.type(graph.required(node, 0))
            return graph.required(node, 1), table.shape[axis]
        case ops.GatherNd():
            table, positions = graph.type(graph.required(node, 0)), graph.required(node, 1)
            return positions, min(table.shape[: graph.type(positions).shape[-1]])
        case ops.EmbeddingLookup():
            return graph.required(node, 0), graph.type(graph.required(node, 1)).shape[0]
        case _:
            return None


def _random(type_: TensorType, limit: int | None, rng: np.random.Generator) -> Array:
    if type_.dtype.is_float and limit is None:
        return rng.standard_normal(type_.shape).astype(type_.dtype.numpy)
    low, high = type_.dtype.limits if type_.dtype.is_integer else (0, limit or 1)
    if limit is not None:
        low, high = 0, min(high, max(limit - 1, 0))
    return rng.integers(low, high, type_.shape, endpoint=True).astype(type_.dtype.numpy)

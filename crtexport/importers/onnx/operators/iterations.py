"""Finds the number of iterations of a Loop with a condition, by evaluating only the part of its
body that the condition depends on, with constants, iteration by iteration."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from crtexport.importers.onnx.messages import GraphInfo, NodeInfo
from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.values import Value
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

_MOST_ITERATIONS = 20_000


class CountedIterations(Struct, frozen=True):
    """The number of iterations of a loop; and which of its states are integers that are never
    negative."""

    count: int
    counters: frozenset[int]


def counted_iterations(
    node: OnnxNode, body: GraphInfo, most: int | None, states: Sequence[Value]
) -> CountedIterations | None:
    """Returns the iterations of a loop, at most ``most``, if its condition (true at first) depends
    only on constants; None if unknown."""
    part, needed = _deciding(body, len(states))
    if part is None or not all(node.builder.is_constant(states[i]) for i in needed):
        return None
    limit = _MOST_ITERATIONS if most is None else min(most, _MOST_ITERATIONS)
    try:
        positive = set(needed)
        values = [(node.array(states[i], "a state"), node.dtype(states[i])) for i in needed]
        for step in range(limit):
            with node.walk.nested() as nested:
                inner = node.within(nested.builder)
                again, *following = node.walk.inline(part, [
                    inner.constant(step, DType.INT64), inner.constant(True, DType.BOOL),
                    *(inner.constant(array, dtype) for array, dtype in values),
                ])
                values = [(inner.array(v, "a state"), inner.dtype(v)) for v in following]
                ends = not inner.array(again, "the condition").item()
            positive -= {
                i for i, (array, dtype) in zip(needed, values, strict=True)
                if not dtype.is_integer or (array < 0).any()
            }
            if ends:
                return CountedIterations(step + 1, frozenset(positive))
    except CrtExportError:
        return None
    return CountedIterations(limit, frozenset(positive)) if most == limit else None


def _deciding(body: GraphInfo, count: int) -> tuple[GraphInfo | None, list[int]]:
    """Returns the part of a body that computes its condition, and the states that it reads; no part
    if it has inner graphs."""
    formals = {info.name: i for i, info in enumerate(body.inputs[2:])}
    ends = [info.name for info in body.outputs[1 : 1 + count]]
    outputs, needed = {body.outputs[0].name}, set[int]()
    while True:
        nodes = _slice(body.nodes, outputs)
        if any(attribute.g is not None for n in nodes for attribute in n.attributes):
            return None, []
        read = outputs.union(*(n.inputs for n in nodes))
        further = {formals[name] for name in read if name in formals} - needed
        if not further:
            break
        needed |= further
        outputs |= {ends[i] for i in further}
    order = sorted(needed)
    return replace(
        body, nodes=tuple(nodes),
        inputs=(*body.inputs[:2], *(body.inputs[2 + i] for i in order)),
        outputs=(body.outputs[0], *(body.outputs[1 + i] for i in order)),
    ), order


def _slice(nodes: Sequence[NodeInfo], names: set[str]) -> list[NodeInfo]:
    """Returns the nodes that names depend on, in their order."""
    needed, found = set(names), []
    for info in reversed(nodes):
        if not needed.isdisjoint(info.outputs):
            needed.update(info.inputs)
            found.append(info)
    return found[::-1]

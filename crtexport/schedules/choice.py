"""Which of a node's candidates its kernel becomes, and what that is weighed by.

``speed`` wants the fewest instructions, ``size`` the least code; ``balanced`` trades one for the
other: one percent of the network's instructions is worth BALANCE bytes of code.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from crtexport.ir.graph import Graph, Node
from crtexport.ir.macs import macs
from crtexport.kernels.ir import Kernel
from crtexport.kernels.registry import Context, Lowered, refusing_extremes
from crtexport.kernels.text import dump
from crtexport.schedules import forms
from crtexport.schedules.candidates import Candidate
from crtexport.target import Target

BALANCE = 128
"""Bytes of code that one percent of a network's instructions is worth."""

Choose = Callable[[Context, Sequence[Candidate], float], Candidate]
"""Picks one of a node's candidates, of which there are at least two. The number says which part of
the network's work the node is, with those that are like it and so get the same kernel."""


@dataclass(frozen=True)
class Cost:
    """Of a kernel: instructions that a run executes, bytes of code."""

    instructions: int
    code: int


class Kernels:
    """Makes the kernels of nodes for a target, each in one form, whatever shares its bytes."""

    def __init__(self, target: Target, optimize: str, choose: Choose | None = None) -> None:
        """Without ``choose``, the usual forms are taken."""
        self._target, self._optimize, self._choose = target, optimize, choose
        # Kept with their graphs and nodes, so that nothing else gets the same ids.
        self._names: dict[tuple[int, int], tuple[Graph, Node, str]] = {}
        self._parts: dict[int, tuple[Graph, dict[str, float]]] = {}

    def __call__(self, context: Context) -> Lowered:
        with refusing_extremes(context):
            found = forms(context, self._target, self._optimize)
            if len(found) == 1 or self._choose is None:
                return found[0].make()
            name = self._name(context, found, self._choose)
            return next((form for form in found if form.name == name), found[0]).make()

    def _name(self, context: Context, found: Sequence[Candidate], choose: Choose) -> str:
        """The name of the form that is chosen, with memory of its own for all tensors."""
        key = id(context.graph), id(context.node)
        if key not in self._names:
            alone = context
            if context.in_place:
                alone = replace(context, in_place=())
                found = forms(alone, self._target, self._optimize)
            chosen = choose(alone, found, self._part(context))
            self._names[key] = context.graph, context.node, chosen.name
        return self._names[key][2]

    def _part(self, context: Context) -> float:
        graph = context.graph
        if id(graph) not in self._parts:
            self._parts[id(graph)] = graph, parts(graph)
        return self._parts[id(graph)][1][_kind(graph, context.node)]


def parts(graph: Graph) -> dict[str, float]:
    """Which part of a graph's work each kind of node is: multiply-accumulates, or elements of the
    output where there are none."""
    work: Counter[str] = Counter()
    for node in graph.nodes:
        count = macs(graph, node) or sum(graph.type(t).elements for t in node.outputs)
        work[_kind(graph, node)] += count
    total = max(work.total(), 1)
    return {kind: count / total for kind, count in work.items()}


def _kind(graph: Graph, node: Node) -> str:
    """Alike for nodes whose kernels are so: operator and shapes."""
    tensors = [t for t in (*node.inputs, *node.outputs) if t is not None]
    return f"{node.op} {[(graph.type(t).dtype.value, graph.type(t).shape) for t in tensors]}"


def digest(kernel: Kernel) -> str:
    """What a kernel is known by: the SHA-256 of its text. Constants that it reads are no part."""
    return hashlib.sha256(dump(replace(kernel, doc=())).encode()).hexdigest()


def preferred(costs: Sequence[Cost], optimize: str, part: float) -> int:
    """The position of the best cost; ``part`` of the network's instructions are the first one's."""
    least = max(costs[0].instructions, 1)

    def weight(cost: Cost) -> tuple[float, int]:
        match optimize:
            case "size":
                return cost.code, cost.instructions
            case "speed":
                return cost.instructions, cost.code
            case _:
                percent = 100 * part * cost.instructions / least
                return percent * BALANCE + cost.code, cost.instructions

    return min(range(len(costs)), key=lambda number: (*weight(costs[number]), number))

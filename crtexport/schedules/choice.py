"""Which of a node's candidates its kernel becomes, and what that is weighed by.

``speed`` wants the fewest instructions, ``size`` the least code; ``balanced`` trades one for the
other: one percent of the network's instructions is worth BALANCE bytes of code.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node
from crtexport.ir.macs import macs
from crtexport.kernels.ir import Kernel
from crtexport.kernels.registry import Context, Lowered, refusing_extremes
from crtexport.kernels.text import dump
from crtexport.schedules import forms
from crtexport.schedules.candidates import Candidate
from crtexport.schedules.cost import Cost, estimate, extents, machine_for, stand_in
from crtexport.target import Target

LEAST = 0.001
"""The part of a network from which on a node's forms are compared."""
ELEMENT = 16
"""Multiply-accumulates in whose time an element is computed without any."""
BALANCE = 2048
"""Bytes of code that one percent of a network's instructions is worth."""

Choose = Callable[[Context, Sequence[Candidate], float], Candidate]
"""Picks one of a node's candidates, of which there are at least two. The number says which part of
the network's work the node is, with those that are like it and so get the same kernel."""


def by_default(target: Target, optimize: str, emit: str) -> Choose:
    """What chooses where nothing else is said: the cost model, or for C, whose compilers that
    doesn't know, the order of the schedules that are meant for them."""
    return ByEstimate(target, optimize) if emit == "llvm" else _first


def _first(context: Context, found: Sequence[Candidate], part: float) -> Candidate:
    del context, part
    return next((form for form in found if not form.objects), found[0])


class Costs:
    """What kernels cost on the machine that is most like a target, each estimated once."""

    def __init__(self, target: Target) -> None:
        self._machine = machine_for(target) or stand_in(target)
        # Kept with their kernels, so that nothing else gets the same ids.
        self._known: dict[tuple[int, tuple[int, ...]], tuple[Kernel, Cost]] = {}

    def of(self, kernel: Kernel, values: Mapping[str, int] = MappingProxyType({})) -> Cost:
        """The cost of a kernel whose parameters have ``values``."""
        # A body's identity is found faster than it, and besides it only extents matter.
        key = id(kernel.body), tuple(values[name] for name in values and extents(kernel))
        if key not in self._known:
            self._known[key] = kernel, estimate(kernel, self._machine, values)
        return self._known[key][1]

    def know(self, kernel: Kernel, cost: Cost) -> None:
        """Remembers the cost of a kernel without parameters."""
        self._known[id(kernel.body), ()] = kernel, cost


class ByEstimate:
    """Chooses by the cost model among the forms that aren't rare: where the target's machine was
    measured and the node is worth it, else the usual form. ``costs`` has those that were chosen."""

    def __init__(self, target: Target, optimize: str) -> None:
        self.costs = Costs(target)
        self._machine, self._optimize = machine_for(target), optimize

    def __call__(self, context: Context, found: Sequence[Candidate], part: float) -> Candidate:
        del context
        machine = self._machine
        likely = [form for form in found if not form.rare]
        if machine is None or len(likely) < 2 or part < LEAST:
            return found[0]
        costs = [estimate(form.make().kernel, machine) for form in likely]
        first, *others = costs
        favoured = Cost(round(first.instructions * (1 - machine.doubt)), first.code)
        best = preferred([favoured, *others], self._optimize, part)
        self.costs.know(likely[best].make().kernel, costs[best])
        return likely[best]


class Kernels:
    """Makes the kernels of nodes for a target, each in one form, whatever shares its bytes."""

    def __init__(self, target: Target, optimize: str, choose: Choose | None = None) -> None:
        """Without ``choose``, the cost model decides."""
        self._target, self._optimize = target, optimize
        self._choose = choose or ByEstimate(target, optimize)
        # Kept with their graphs and nodes, so that nothing else gets the same ids.
        self._names: dict[tuple[int, int], tuple[Graph, Node, str]] = {}
        self._parts: dict[int, tuple[Graph, dict[str, float]]] = {}

    @property
    def costs(self) -> Costs:
        """What is known of kernels' costs."""
        if isinstance(self._choose, ByEstimate):
            return self._choose.costs
        return Costs(self._target)

    def __call__(self, context: Context) -> Lowered:
        with refusing_extremes(context):
            found = forms(context, self._target, self._optimize)
            if len(found) == 1:
                return found[0].make()
            name = self._name(context, found)
            return next((form for form in found if form.name == name), found[0]).make()

    def _name(self, context: Context, found: Sequence[Candidate]) -> str:
        """The name of the form that is chosen."""
        key = id(context.graph), id(context.node)
        if key not in self._names:
            chosen = self._choose(context, found, self._part(context))
            self._names[key] = context.graph, context.node, chosen.name
        return self._names[key][2]

    def _part(self, context: Context) -> float:
        graph = context.graph
        if id(graph) not in self._parts:
            self._parts[id(graph)] = graph, parts(graph)
        known = self._parts[id(graph)][1]
        kinds = [_kind(graph, node) for node in (context.node, *context.node.parts)]
        # A node that is only looked at is no part of its graph's work, but its parts are.
        return known[kinds[0]] if kinds[0] in known else sum(known[kind] for kind in kinds[1:])


def parts(graph: Graph) -> dict[str, float]:
    """Which part of a graph's work each kind of node is: multiply-accumulates, or where there are
    none elements of the output, each of which takes as long as some of those."""
    work: Counter[str] = Counter()
    for node in graph.nodes:
        elements = sum(graph.type(tensor).elements for tensor in node.outputs)
        count = macs(graph, node) or ELEMENT * elements
        work[_kind(graph, node)] += count
    total = max(work.total(), 1)
    return {kind: count / total for kind, count in work.items()}


def _kind(graph: Graph, node: Node) -> str:
    """Alike for nodes whose kernels are so: operator and shapes."""
    if node.parts:
        return " + ".join(_kind(graph, part) for part in node.parts)
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

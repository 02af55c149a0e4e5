"""Chooses one of a node's candidates, by cycles and by the size of code.

Where cycles aren't known, instructions stand for them. ``speed`` wants the fewest, ``size`` the
least code; ``balanced`` and ``compact`` trade one for the other: one percent of the network's
cycles is worth so many bytes of code (WORTH).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node
from crtexport.ir.macs import macs
from crtexport.kir.assembly.assemble import assembles
from crtexport.kir.language import Body, Kernel
from crtexport.kir.text import dump
from crtexport.lowering.registry import Context
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.common.target_features import flash_of, has_dsp, has_mve
from crtexport.schedules.select.cost_model import (
    Cost,
    Machine,
    estimate,
    extents,
    machine_for,
    stand_in,
)
from crtexport.support.target import Flash, Target

LEAST = 0.001
"""The part of a network from which on a node's variants are compared."""
ELEMENT = 16
"""Multiply-accumulates in whose time an element is computed without any."""
BALANCE = 2048
"""Bytes of code that one percent of a network's cycles is worth."""
WORTH: Mapping[str, int] = MappingProxyType({"compact": BALANCE // 8, "balanced": BALANCE})
"""The same for each level that weighs code against time."""

Choose = Callable[[Context, Sequence[Candidate], float], Candidate]
"""Picks one of a node's candidates, of which there are at least two. The number says which part of
the network's work the node is, with those that are like it and so get the same kernel."""


def by_default(target: Target, optimize: str, emit: str) -> Choose:
    """Returns what chooses where nothing else is said: the cost model, or for C, whose compilers
    that doesn't know, the order of the schedules that are meant for them. Where hot loops have
    instructions in C, too, these are what the model knows."""
    if emit == "llvm":
        return ByEstimate(target, optimize)
    if has_dsp(target) and not has_mve(target):
        return ByEstimate(target, optimize, objects=False)
    return _first


def _first(context: Context, candidates: Sequence[Candidate], part: float) -> Candidate:
    del context, part
    return next((variant for variant in candidates if not variant.objects), candidates[0])


class Costs:
    """Costs of kernels on the machine that is most like a target, each estimated once."""

    def __init__(self, target: Target) -> None:
        self._machine = machine_for(target) or stand_in(target)
        self._known: dict[tuple[Body, tuple[int, ...]], Cost] = {}

    def of(self, kernel: Kernel, values: Mapping[str, int] = MappingProxyType({})) -> Cost:
        """Returns the cost of a kernel whose parameters have ``values``."""
        # Besides the body only extents matter.
        key = kernel.body, tuple(values[name] for name in values and extents(kernel))
        if key not in self._known:
            self._known[key] = estimate(kernel, self._machine, values)
        return self._known[key]

    def know(self, kernel: Kernel, cost: Cost) -> None:
        """Remembers the cost of a kernel without parameters."""
        self._known[kernel.body, ()] = cost


class ByEstimate:
    """Chooses by the cost model among the variants that aren't rare: where the target's machine was
    measured and the node is worth it, else the usual variant. ``costs`` has those that were
    chosen. Variants that are meant for C aren't taken where code becomes ``objects``, nor the other
    way round."""

    def __init__(self, target: Target, optimize: str, *, objects: bool = True) -> None:
        self.costs, self._target, self._objects = Costs(target), target, objects
        self._machine, self._optimize = machine_for(target), optimize
        self._flash = flash_of(target)
        self._known: dict[object, list[Cost]] = {}

    def __call__(self, context: Context, candidates: Sequence[Candidate], part: float) -> Candidate:
        candidates = self._usable(candidates)
        machine = self._machine
        likely = self.likely(candidates)
        if machine is None or len(likely) < 2 or part < LEAST:
            return candidates[0]
        costs = self._costs(context, likely, machine)
        first, *others = (_read_from(cost, self._flash) for cost in costs)
        favoured = Cost(round(first.time * (1 - machine.doubt)), first.code)
        order = ranking([favoured, *others], self._optimize, part)
        best = order[0]
        if context.node.parts and not has_mve(self._target):
            # With what the next operator computes, a loop may need more registers than there are.
            ordered = (n for n in order if assembles(likely[n].make().kernel, self._target))
            best = next(ordered, best)
        self.costs.know(likely[best].make().kernel, costs[best])
        return likely[best]

    def _usable(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Returns the variants for what code is made as."""
        return [
            variant for variant in candidates
            if not (variant.sources if self._objects else variant.objects)
        ] or candidates

    def likely(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Returns the variants that may be chosen where their costs are known."""
        return [variant for variant in self._usable(candidates) if not variant.rare]

    def time(self, kernel: Kernel) -> int:
        """Returns the time of a kernel as it is weighed here: with that of reading its code."""
        machine = self._machine or stand_in(self._target)
        return _read_from(estimate(kernel, machine, flash=self._flash), self._flash).time

    def _costs(
        self, context: Context, variants: Sequence[Candidate], machine: Machine
    ) -> list[Cost]:
        """Returns the costs of a node's variants. Rows of cascades are lowered again and again, so
        they are estimated once for nodes that are equal."""
        node, tensors = context.node, context.graph.tensors
        operands = (None if t is None else tensors[t] for t in (*node.inputs, *node.outputs))
        key = (
            node.op, context.graph.numerics, tuple(variant.name for variant in variants),
            tuple(None if one is None else (one.type, one.constant) for one in operands),
        )
        found = None if node.parts else self._known.get(key)  # of parts more matters
        if found is None:
            found = [estimate(one.make().kernel, machine, flash=self._flash) for one in variants]
            self._known[key] = found
        return found


def _read_from(cost: Cost, flash: Flash | None) -> Cost:
    """Adds the time of lines that are read again: half of their wait states. Nearly all of them
    follow one another, and many chips read these ahead: between that and chips that don't, this is
    the middle."""
    waits = 0 if flash is None else flash.wait_states * cost.lines // 2
    return Cost(cost.time + waits, cost.code)


def parts(
    graph: Graph, runs: Sequence[int] = (), around: Graph | None = None
) -> dict[str, float]:
    """Returns the part of a graph's work that each kind of node is: multiply-accumulates, or where
    there are none elements of the output, each of which takes as long as some of those. Of nodes
    that run several times, ``runs``, the part of the work of the graph ``around`` them."""
    work: Counter[str] = Counter()
    for node, times in zip(graph.nodes, runs or [1] * len(graph.nodes), strict=True):
        work[_kind(graph, node)] += times * _work(graph, node)
    whole = graph if around is None else around
    total = max(sum(_work(whole, node) for node in whole.nodes), 1)
    return {kind: count / total for kind, count in work.items()}


def _work(graph: Graph, node: Node) -> int:
    elements = sum(graph.type(tensor).elements for tensor in node.outputs)
    return macs(graph, node) or ELEMENT * elements


def part_of(graph: Graph, node: Node, work: Mapping[str, float]) -> float:
    """Returns which part of a graph's ``work``, as from :func:`parts`, nodes like this one are."""
    return work[_kind(graph, node)]


def _kind(graph: Graph, node: Node) -> str:
    """Returns what is equal for nodes with equal kernels: operator and shapes."""
    if node.parts:
        return " + ".join(_kind(graph, part) for part in node.parts)
    tensors = [t for t in (*node.inputs, *node.outputs) if t is not None]
    return f"{node.op} {[(graph.type(t).dtype.value, graph.type(t).shape) for t in tensors]}"


def digest(kernel: Kernel) -> str:
    """Returns the SHA-256 of a kernel's text, by which it is known. Constants that it reads are no
    part."""
    return hashlib.sha256(dump(replace(kernel, doc=())).encode()).hexdigest()


def preferred(costs: Sequence[Cost], optimize: str, part: float) -> int:
    """Returns the position of the best cost; ``part`` is the first one's part of the network's
    cycles."""
    return ranking(costs, optimize, part)[0]


def ranking(costs: Sequence[Cost], optimize: str, part: float) -> list[int]:
    """Returns the positions of all costs, from the best one on."""
    least = max(costs[0].time, 1)

    def weight(cost: Cost) -> tuple[float, int]:
        match optimize:
            case "size":
                return cost.code, cost.time
            case "speed":
                return cost.time, cost.code
            case _:
                percent = 100 * part * cost.time / least
                return percent * WORTH[optimize] + cost.code, cost.time

    return sorted(range(len(costs)), key=lambda number: weight(costs[number]))

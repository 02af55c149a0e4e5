"""The execution order of nodes that needs the least memory at its peak.

Sets of nodes that can have run form levels by their size; for each set of a level, the search keeps
the order with the least peak. That is exact unless a level has more sets than are kept.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from msgspec import Struct

from crtexport.ir.graph import Graph
from crtexport.ir.ops import Reshape
from crtexport.ir.variables import accesses
from crtexport.lowering.facts import Facts

_KEPT = ((100_000, 4096), (200_000, 8), (400_000, 1))
"""Pairs: a number of transitions between sets that were looked at in all levels, and how many sets
of a level are kept up to it. After the last, the search is given up: very wide graphs keep their
order."""



def execution_order(
    graph: Graph, facts: Mapping[int, Facts] | None = None, *, io_counts: bool = False
) -> tuple[int, ...]:
    """Returns the node numbers in the order of execution: the graph's own unless another has a
    lower peak.

    ``facts`` are indexed by node number; ``io_counts``: graph inputs and outputs take memory, too.
    """
    given = tuple(range(len(graph.nodes)))
    costs = _Costs(graph, facts or {}, io_counts)
    if costs.forced:
        return given  # before facts of kernels are computed
    if costs.choices() > _KEPT[-1][0]:
        return given  # more choices than the search can look at
    bound = costs.peak(given)
    found = _OrderSearch(costs).run(bound)
    return found if found is not None else given


def whole_order(graph: Graph, running: Iterable[int]) -> tuple[int, ...]:
    """Returns all nodes: ``running`` in their order, the others (views) as soon as their inputs
    exist."""
    chosen = tuple(running)
    views = sorted({*range(len(graph.nodes))} - {*chosen})
    produced = {t for node in graph.nodes for t in node.outputs}
    missing: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    for view in views:
        read = {t for t in graph.nodes[view].inputs if t is not None and t in produced}
        missing[view] = len(read)
        for tensor in read:
            readers.setdefault(tensor, []).append(view)
    ready = [view for view in views if not missing[view]]
    order: list[int] = []

    def run(number: int) -> None:
        order.append(number)
        for tensor in graph.nodes[number].outputs:
            for view in readers.get(tensor, ()):
                missing[view] -= 1
                if not missing[view]:
                    heapq.heappush(ready, view)

    for number in (None, *chosen):
        if number is not None:
            run(number)
        while ready:
            run(heapq.heappop(ready))
    return tuple(order)


def peak_of(
    graph: Graph, order: tuple[int, ...], facts: Mapping[int, Facts] | None = None, *,
    io_counts: bool = False,
) -> int:
    """Returns the bytes that are live at the peak of ``order``, less those of inputs that outputs
    overwrite."""
    return _Costs(graph, facts or {}, io_counts).peak(order)


class _State(Struct):
    """``done``: nodes that have run, as bits; ``memory``: bytes that are live afterwards.

    ``ready``: nodes that can run next, rising; ``number`` ran last, after ``before``. ``rank``: how
    many states of its level have lexicographically smaller orders.
    """

    done: int
    memory: int
    peak: int
    ready: tuple[int, ...]
    number: int = -1
    before: _State | None = None
    rank: int = 0

    @property
    def order(self) -> tuple[int, ...]:
        """Returns the nodes that have run, in their order."""
        found = []
        state: _State | None = self
        while state is not None and state.before is not None:
            found.append(state.number)
            state = state.before
        return tuple(reversed(found))


class _Costs:
    """The bytes that each node allocates and frees, in a model without offsets."""

    def __init__(self, graph: Graph, facts: Mapping[int, Facts], io_counts: bool) -> None:
        self.graph = graph
        self.facts = facts
        self.root = list(range(len(graph.tensors)))
        for node in graph.nodes:
            if isinstance(node.op, Reshape):
                self.root[node.outputs[0]] = self.root[graph.required(node, 0)]
        self.sizes = [0] * len(graph.tensors)
        for number, tensor in enumerate(graph.tensors):
            if tensor.constant is None and tensor.variable is None:
                root = self.root[number]
                self.sizes[root] = max(self.sizes[root], tensor.type.nbytes)
        if not io_counts:
            for given in (*graph.inputs, *graph.outputs):
                self.sizes[self.root[given]] = 0
        self.kept = {self.root[t] for t in graph.outputs}
        self.scratch = [
            facts[n].scratch if n in facts else 0 for n in range(len(graph.nodes))
        ]
        self._walk()

    def _walk(self) -> None:
        nodes = self.graph.nodes
        self.reads: list[tuple[int, ...]] = []
        self.writes: list[tuple[int, ...]] = []
        self.readers: dict[int, int] = {}
        producer: dict[int, int] = {}
        self.needs = [0] * len(nodes)
        for number, node in enumerate(nodes):
            roots = dict.fromkeys(self.root[t] for t in node.inputs if t is not None)
            self.reads.append(tuple(roots))
            free = isinstance(node.op, Reshape)
            self.writes.append(() if free else tuple(self.root[t] for t in node.outputs))
            for root in roots:
                self.readers[root] = self.readers.get(root, 0) | 1 << number
            for tensor in node.inputs:
                if tensor is not None and tensor in producer:
                    self.needs[number] |= 1 << producer[tensor]
            for tensor in node.outputs:
                producer[tensor] = number
        # Accesses to variables keep the graph's order.
        for groups in accesses(self.graph, tuple(range(len(nodes)))).values():
            for earlier, later in pairwise(g for g in groups if g):
                for number in later:
                    self.needs[number] |= sum(1 << n for n in earlier)
        self.followers: list[list[int]] = [[] for _ in nodes]
        for number, needs in enumerate(self.needs):
            for other in bits(needs):
                self.followers[other].append(number)
        # What others read, too, dies with a node only behind them: a bit for each, and the others.
        self.shared = [
            tuple(
                (1 << position, self.readers[root] & ~(1 << number))
                for position, root in enumerate(reads)
                if root not in self.kept and self.readers[root] != 1 << number
            )
            for number, reads in enumerate(self.reads)
        ]
        self.forward: list[dict[int, tuple[int, int]]] = [{} for _ in nodes]
        self.backward: list[dict[int, int]] = [{} for _ in nodes]
        given = {self.root[t] for t in self.graph.inputs}
        self.start = sum(self.sizes[root] for root in given)

    @property
    def forced(self) -> bool:
        """Returns whether each node needs the one before it, so that there is only one order."""
        return all(self.needs[number] >> (number - 1) & 1 for number in range(1, len(self.needs)))

    def choices(self) -> int:
        """Returns the sum over all steps of the graph's own order of how many nodes can run next.
        """
        missing = [needs.bit_count() for needs in self.needs]
        ready = sum(not count for count in missing)
        total = 0
        for followers in self.followers:
            total += ready
            ready -= 1
            for number in followers:
                missing[number] -= 1
                ready += not missing[number]
        return total

    def step(self, number: int, done: int, memory: int, peak: int) -> tuple[int, int]:
        """Returns (bytes while node ``number`` runs, bytes afterwards); ``done`` excludes it.

        The first is only an upper bound if it is at most ``peak``, because its exact value doesn't
        matter then.
        """
        case = 0
        for bit, others in self.shared[number]:
            if done & others == others:
                case |= bit
        known = self.forward[number].get(case)
        if known is None:
            known = self.forward[number][case] = self._change(number, done)
        more, left = known
        if memory + more > peak:
            found = self.backward[number].get(case)
            if found is None:
                found = self.backward[number][case] = self._change(number, done, backward=True)[0]
            more = found
        return memory + more, memory + left

    def _change(self, number: int, done: int, *, backward: bool = False) -> tuple[int, int]:
        """Returns the bytes that a node adds to the live ones: while it runs, and afterwards."""
        after = done | 1 << number
        dying = [
            root for root in self.reads[number]
            if not self.readers[root] & ~after and root not in self.kept
        ]
        written = sum(self.sizes[root] for root in self.writes[number])
        during = written + self.scratch[number] - self._saved(number, dying, backward=backward)
        left = written - sum(self.sizes[root] for root in dying)
        left -= sum(
            self.sizes[root] for root in self.writes[number]
            if root not in self.readers and root not in self.kept
        )
        return during, left

    def _saved(self, number: int, dying: list[int], *, backward: bool) -> int:
        """Returns the bytes of outputs that may overwrite inputs that are read for the last time.
        """
        facts = self.facts.get(number)
        node = self.graph.nodes[number]
        if facts is None or not dying:
            return 0
        saved = 0
        for output, tensor in enumerate(node.outputs):
            size = self.sizes[self.root[tensor]]
            best = 0
            for position, source in enumerate(node.inputs):
                if source is None or self.root[source] not in dying:
                    continue
                before = self.sizes[self.root[source]]
                shared = overlap(facts, output, position, before, size, backward=backward)
                best = best + shared if facts.moves else max(best, shared)
            saved += min(best, size)
        return min(saved, sum(self.sizes[root] for root in dying))

    def peak(self, order: tuple[int, ...]) -> int:
        done, memory = 0, self.start
        peak = memory
        for number in order:
            during, memory = self.step(number, done, memory, peak)
            peak = max(peak, during)
            done |= 1 << number
        return peak


def overlap(
    facts: Facts, output: int, position: int, source: int, size: int, *, backward: bool = True
) -> int:
    """Returns the most bytes that an output of ``size`` bytes may share with an input of ``source``
    bytes.

    ``backward``: also consider the kernel in reverse order, which takes long to analyse.
    """
    if facts.moves is not None:
        return sum(m.nbytes for m in facts.moves if (m.output, m.input) == (output, position))
    ways = [facts.forward, (facts.backward if backward else None) or {}]
    found = (allowed.get((output, position)) for allowed in ways)
    return max((freedom.shared(source, size) for freedom in found if freedom), default=0)


class _OrderSearch:
    def __init__(self, costs: _Costs) -> None:
        self.costs = costs
        self.everything = len(costs.graph.nodes)
        self.effort = 0

    def run(self, bound: int) -> tuple[int, ...] | None:
        """Returns the best order that was found with a peak below ``bound``; None if there is none.
        """
        costs = self.costs
        ready = tuple(number for number, needs in enumerate(costs.needs) if not needs)
        level = [_State(0, costs.start, costs.start, ready)]
        for _ in range(self.everything):
            level = self._extend(level, bound)
            if not level:
                return None
        return level[0].order if self.everything else None

    def _extend(self, level: list[_State], bound: int) -> list[_State]:
        level = self._kept(level)
        following: dict[int, _State] = {}
        for state in level:
            choices = self._choices(state)
            self.effort += len(choices)
            for number, during, after in choices:
                peak = max(state.peak, during)
                if peak >= bound:
                    continue
                done = state.done | 1 << number
                known = following.get(done)
                if known is None or peak < known.peak:
                    following[done] = _State(done, after, peak, (), number, state)
        for rank, state in enumerate(sorted(following.values(), key=_by_order)):
            state.rank = rank
        return list(following.values())

    def _kept(self, level: list[_State]) -> list[_State]:
        """Returns the states of a level that are extended, with the nodes that can run next."""
        widest = max((len(s.before.ready) for s in level if s.before is not None), default=1)
        left = ((end - self.effort) // max(widest, 1) for end, _ in _KEPT)
        allowed = max(min(sets, room) for (_, sets), room in zip(_KEPT, left, strict=True))
        if len(level) > allowed:
            level = sorted(level, key=lambda s: (s.peak, s.memory, s.rank))[: max(allowed, 0)]
        for state in level:
            state.ready = self._ready(state) if state.before is not None else state.ready
        for state in level:
            if state.before is not None:
                state.before.ready = ()  # not needed any more
        return level

    def _ready(self, state: _State) -> tuple[int, ...]:
        """Returns the nodes that can run next."""
        costs = self.costs
        before = state.before.ready if state.before is not None else ()
        new = [
            number for number in costs.followers[state.number]
            if not costs.needs[number] & ~state.done
        ]
        return tuple(sorted({*before, *new} - {state.number}))

    def _choices(self, state: _State) -> list[tuple[int, int, int]]:
        """Returns nodes that can run next; only one if no other choice can be better."""
        choices = []
        for number in state.ready:
            during, after = self.costs.step(number, state.done, state.memory, state.peak)
            if during <= state.peak and after <= state.memory:
                return [(number, during, after)]
            choices.append((number, during, after))
        return choices


def _by_order(state: _State) -> tuple[int, int]:
    return state.before.rank if state.before is not None else 0, state.number


def bits(number: int) -> Iterator[int]:
    """Yields the positions of the bits that are set."""
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest

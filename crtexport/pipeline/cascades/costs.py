"""The costs of computing the nodes of a graph as a whole, or so many rows at once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import ChannelSums
from crtexport.lowering.facts import Facts
from crtexport.lowering.lowered_graph import LoweredGraph, LoweredNode
from crtexport.lowering.rows.bands import band
from crtexport.lowering.rows.windows import (
    Number,
    paddings,
    row_windows,
    rows_of,
    rows_together,
)
from crtexport.schedules.select.choose import BALANCE
from crtexport.schedules.select.cost_model import Cost
from crtexport.schedules.select.lower import Lowerer


class BandCost(Struct, frozen=True):
    """A run of a kernel that computes a band: ``instructions``, bytes of ``code``, and ``facts``
    for the planner."""

    instructions: int
    code: int
    facts: Facts


class BandCosts:
    """The costs of the bands of a graph's nodes, each found once; ``lowered`` is the graph with
    each node as a whole, which takes ``total`` instructions. ``turned`` is the graph whose rows are
    computed; ``known`` are nodes that were lowered before."""

    def __init__(
        self, graph: Graph, turned: Graph, lower: Lowerer,
        known: Mapping[Node, LoweredNode] = MappingProxyType({}),
    ) -> None:
        self.lowered: LoweredGraph = lower(graph, {
            number: known[node] for number, node in enumerate(graph.nodes) if node in known
        })
        graph = turned
        self.graph, self._lower = graph, lower
        self._windows = [row_windows(graph, node) for node in graph.nodes]
        self._known: dict[tuple[int, int], BandCost] = {}
        self._whole = [self._cost(number).instructions for number in range(len(graph.nodes))]
        kinds: dict[object, int] = {}
        self._kinds = [
            kinds.setdefault(_kind(graph, number), number) for number in range(len(graph.nodes))
        ]
        self._alike = Counter(self._kinds)
        self.total = max(sum(self._whole), 1)

    def whole(self, number: int) -> int:
        """Returns the instructions that a node takes as a whole."""
        return self._whole[number]

    def _cost(self, number: int) -> Cost:
        node = self.lowered.nodes[number]
        return Cost(0, 0) if node.build is None else self._lower.costs.of(node.lowered.kernel)

    def can(self, number: int) -> bool:
        """Returns whether a node can be computed row by row."""
        return self._windows[number] is not None

    def paddings(self, number: int) -> dict[int, Number]:
        """Returns what rows of padding are full of that a node sees, by tensor."""
        node = self.graph.nodes[number]
        return paddings(self.graph, node, self._windows[number] or {})

    def rows(self, number: int) -> int:
        """Returns how many rows a node computes in all, or sums."""
        node = self.graph.nodes[number]
        source = node.inputs[0] if isinstance(node.op, ChannelSums) else node.outputs[0]
        return rows_of(self.graph.type(source or 0))

    def unit(self, number: int) -> int:
        """Returns how many rows a node computes at once, at least."""
        return rows_together(self._windows[number] or {})

    def of(self, number: int, rows: int) -> BandCost:
        """Returns the cost of a band of so many rows, the same for nodes of one kind."""
        key = self._kinds[number], rows
        if key not in self._known:
            graph = band(self.graph, self.graph.nodes[number], rows)
            # They share a kernel.
            runs = (max(self.rows(number) // rows, 1) * self._alike[self._kinds[number]],)
            (node,) = self._lower(graph, runs=runs, around=self.graph).nodes
            cost = self._lower.costs.of(node.lowered.kernel)
            self._known[key] = BandCost(cost.instructions, cost.code, node.facts)
        return self._known[key]

    def by_rows(self, number: int, height: int) -> int:
        """Returns the instructions that a node takes for all its rows: bands of ``height`` units,
        and units for the rest."""
        unit = self.unit(number)
        bands, rest = divmod(self.rows(number), height * unit)
        found = bands * self.of(number, height * unit).instructions if bands else 0
        return found + (rest // unit * self.of(number, unit).instructions if rest else 0)

    def of_all(
        self, nodes: Iterable[int], bands: Iterable[Mapping[int, int]]
    ) -> tuple[int, int]:
        """Returns the instructions that nodes take in ``bands``, numbers of them by their rows; and
        the bytes of the kernels that compute them, those once that differ in constants only."""
        instructions = 0
        code: dict[object, int] = {}
        for number, counts in zip(nodes, bands, strict=True):
            for rows, count in counts.items():
                cost = self.of(number, rows)
                instructions += count * cost.instructions
                code[self._kinds[number], rows] = cost.code
        return instructions, sum(code.values())

    def structure(self, nodes: Iterable[int], outputs: Iterable[int]) -> object:
        """Returns what is equal for runs of nodes of the same kinds that read each other alike, so
        that cascades of them cost the same."""
        names: dict[int, int] = {}
        fills: defaultdict[int, set[Number]] = defaultdict(set)
        parts = []
        for number in nodes:
            node = self.graph.nodes[number]
            parts.append((self._kinds[number], tuple(
                None if t is None or self.graph.constant(t) is not None
                else names.setdefault(t, len(names))
                for t in (*node.inputs, *node.outputs)
            )))
            for tensor, value in self.paddings(number).items():
                fills[tensor].add(value)
        several = tuple(names[tensor] for tensor, values in fills.items() if len(values) > 1)
        return tuple(parts), tuple(names[tensor] for tensor in outputs), several

    def whole_code(self, nodes: Iterable[int]) -> int:
        """Returns the bytes of the kernels that compute nodes as a whole, as in :meth:`of_all`."""
        return sum({
            self._kinds[number]: self._cost(number).code for number in nodes
        }.values())

    @property
    def byte(self) -> float:
        """The instructions that a byte of code is worth."""
        return self.total / 100 / BALANCE


def _kind(graph: Graph, number: int) -> object:
    """Equal for nodes of one operator and one shape."""
    node = graph.nodes[number]
    tensors = (*node.inputs, *node.outputs)
    types = tuple(
        None if t is None else (graph.type(t).dtype, graph.type(t).shape) for t in tensors
    )
    return node.op, types

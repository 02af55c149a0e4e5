"""The costs of computing the nodes of a graph as a whole, or so many rows at once.

Many numbers of rows are compared, and few are computed in the end: so what many rows cost follows
from what few cost.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import ChannelSums, Conv2D, DepthwiseConv2D
from crtexport.lowering.facts import Facts, Freedom, Freedoms
from crtexport.lowering.lowered_graph import LoweredGraph, LoweredNode
from crtexport.lowering.rows.bands import band, moving
from crtexport.lowering.rows.windows import (
    Number,
    RowWindow,
    of_rows,
    paddings,
    row_windows,
    rows_of,
    rows_together,
)
from crtexport.schedules.select.cost_model import Cost
from crtexport.schedules.select.lower import Lowerer


class BandCost(Struct, frozen=True):
    """A run of a kernel that computes a band: ``instructions``, ``time`` (cycles, or where they
    aren't known instructions), bytes of ``code``, and how the facts for the planner are found."""

    instructions: int
    time: int
    code: int
    find_facts: Callable[[], Facts]

    @property
    def facts(self) -> Facts:
        """Returns the facts for the planner, which only few of the bands that are compared need."""
        return self.find_facts()


class KernelTotals(Struct, frozen=True):
    """The ``instructions`` of kernels that compute nodes, their ``time`` as in :class:`BandCost`,
    and bytes of ``code``, those once of kernels that differ in constants only."""

    instructions: int = 0
    time: int = 0
    code: int = 0

    def __add__(self, other: KernelTotals) -> KernelTotals:
        return KernelTotals(
            self.instructions + other.instructions, self.time + other.time, self.code + other.code
        )

    def __sub__(self, other: KernelTotals) -> KernelTotals:
        return KernelTotals(
            self.instructions - other.instructions, self.time - other.time, self.code - other.code
        )


_FEW = 2
"""Rows from which on each further one costs the same, where pixels are computed in blocks."""
_BLOCK = 4
"""Pixels that variants compute together, at most: each row has whole blocks."""
_PLANE = 6
"""Rows of a channel that depthwise layers compute together, at most, as a rule."""


class BandCosts:
    """The costs of the bands of a graph's nodes, each found once; ``lowered`` is the graph with
    each node as a whole, which takes ``total`` instructions and ``time``. ``turned`` is the graph
    whose rows are computed; ``lowered`` are nodes that were lowered before."""

    def __init__(
        self, graph: Graph, turned: Graph, lower: Lowerer,
        lowered: Mapping[Node, LoweredNode] = MappingProxyType({}),
    ) -> None:
        self._worth_of_percent = lower.worth_of_percent
        self.lowered: LoweredGraph = lower(graph, {
            number: lowered[node] for number, node in enumerate(graph.nodes) if node in lowered
        })
        graph = turned
        self.graph, self._lower = graph, lower
        self._windows = [row_windows(graph, node) for node in graph.nodes]
        self._paddings = [
            paddings(graph, node, windows) if windows else {}  # results of others may have no rows
            for node, windows in zip(graph.nodes, self._windows, strict=True)
        ]
        self._known: dict[tuple[int, int], BandCost] = {}
        self._moves: dict[int, KernelTotals] = {}
        self._whole = [self._cost(number).instructions for number in range(len(graph.nodes))]
        kinds: dict[object, int] = {}
        self._kinds = [
            kinds.setdefault(_kind(graph, number), number) for number in range(len(graph.nodes))
        ]
        self._alike = Counter(self._kinds)
        self.total = max(sum(self._whole), 1)
        self.time = max(sum(self._cost(number).time for number in range(len(graph.nodes))), 1)

    def whole(self, number: int) -> int:
        """Returns the instructions that a node takes as a whole."""
        return self._whole[number]

    def _cost(self, number: int) -> Cost:
        node = self.lowered.nodes[number]
        return Cost(0, 0) if node.build is None else self._lower.costs.of(node.lowered.kernel)

    def can(self, number: int) -> bool:
        """Returns whether a node can be computed row by row."""
        return self._windows[number] is not None

    def windows(self, number: int) -> Mapping[int, RowWindow]:
        """Returns the windows of a node's inputs, by position; none where it can't be computed row
        by row."""
        return self._windows[number] or {}

    def paddings(self, number: int) -> Mapping[int, Number]:
        """Returns what rows of padding are full of that a node sees, by tensor."""
        return self._paddings[number]

    def rows(self, number: int) -> int:
        """Returns how many rows a node computes in all, or sums."""
        node = self.graph.nodes[number]
        source = node.inputs[0] if isinstance(node.op, ChannelSums) else node.outputs[0]
        return rows_of(self.graph.type(source or 0))

    def unit(self, number: int) -> int:
        """Returns how many rows a node computes at once, at least."""
        return rows_together(self._windows[number] or {})

    def units(self, number: int) -> int:
        """Returns how many times a node computes rows, if it computes as few as it can at once."""
        return self.rows(number) // self.unit(number)

    def of(self, number: int, rows: int) -> BandCost:
        """Returns the cost of a band of so many rows, the same for nodes of one kind."""
        key = self._kinds[number], rows
        if key not in self._known:
            self._known[key] = self._estimated(number, rows) or self._found(number, rows)
        return self._known[key]

    def _estimated(self, number: int, rows: int) -> BandCost | None:
        """Returns the cost of many rows that those of few let expect; None where they don't."""
        node = self.graph.nodes[number]
        width = self.graph.type(node.outputs[0]).shape[2]
        if isinstance(node.op, Conv2D) and not width % _BLOCK and rows > _FEW + 1:
            one, two, more = self.of(number, _FEW), self.of(number, _FEW + 1), rows - _FEW
            instructions = one.instructions + (two.instructions - one.instructions) * more
            time, code = one.time + (two.time - one.time) * more, one.code
        elif isinstance(node.op, DepthwiseConv2D) and rows > _PLANE:
            part = next(count for count in range(_PLANE, 0, -1) if not rows % count)
            if part < _FEW:
                return None
            one, two, more = self.of(number, part - 1), self.of(number, part), rows - part + 1
            instructions, time, code = (
                two.instructions * (rows // part), two.time * (rows // part), two.code
            )
        else:
            return None

        def facts() -> Facts:
            freedoms = _FreedomsOfMore(one.facts.forward, two.facts.forward, more)
            return Facts(freedoms, scratch=two.facts.scratch)

        return BandCost(instructions, time, code, facts)

    def _found(self, number: int, rows: int) -> BandCost:
        graph = band(self.graph, self.graph.nodes[number], rows)
        # They share a kernel.
        runs = (max(self.rows(number) // rows, 1) * self._alike[self._kinds[number]],)
        (node,) = self._lower(graph, runs=runs, around=self.graph).nodes
        cost = self._lower.costs.of(node.lowered.kernel)
        return BandCost(cost.instructions, cost.time, cost.code, lambda: node.facts)

    def moving(self, tensor: int, rows: int) -> KernelTotals:
        """Returns the work of moving so many rows of a ring."""
        nbytes = of_rows(self.graph.type(tensor), rows).nbytes
        if nbytes not in self._moves:
            (node,) = self._lower(moving(self.graph, tensor, rows)).nodes
            cost = self._lower.costs.of(node.lowered.kernel)
            self._moves[nbytes] = KernelTotals(cost.instructions, cost.time)
        return self._moves[nbytes]

    def by_rows(self, number: int, height: int) -> int:
        """Returns the instructions that a node takes for all its rows: bands of ``height`` units,
        and units for the rest."""
        unit = self.unit(number)
        bands, rest = divmod(self.rows(number), height * unit)
        found = bands * self.of(number, height * unit).instructions if bands else 0
        return found + (rest // unit * self.of(number, unit).instructions if rest else 0)

    def of_all(self, nodes: Iterable[int], bands: Iterable[Mapping[int, int]]) -> KernelTotals:
        """Returns the work of nodes in ``bands``, numbers of them by their rows."""
        instructions, time = 0, 0
        code: dict[object, int] = {}
        for number, counts in zip(nodes, bands, strict=True):
            for rows, count in counts.items():
                cost = self.of(number, rows)
                instructions += count * cost.instructions
                time += count * cost.time
                code[self._kinds[number], rows] = cost.code
        return KernelTotals(instructions, time, sum(code.values()))

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

    def of_whole(self, nodes: Sequence[int]) -> KernelTotals:
        """Returns the work of nodes as a whole."""
        costs = [self._cost(number) for number in nodes]
        code = {self._kinds[n]: cost.code for n, cost in zip(nodes, costs, strict=True)}
        return KernelTotals(
            sum(cost.instructions for cost in costs), sum(cost.time for cost in costs),
            sum(code.values()),
        )

    @property
    def flash(self) -> int:
        """Returns the bytes of constants, and of kernels that compute all nodes as a whole."""
        constants = {t.constant for t in self.graph.tensors if t.constant is not None}
        code = self.of_whole(range(len(self.graph.nodes))).code
        return sum(constant.nbytes for constant in constants) + code

    @property
    def byte(self) -> float:
        """Returns the instructions that a byte of code is worth."""
        return self.total / 100 / self._worth_of_percent


def _kind(graph: Graph, number: int) -> object:
    """Equal for nodes of one operator and one shape."""
    node = graph.nodes[number]
    tensors = (*node.inputs, *node.outputs)
    types = tuple(
        None if t is None else (graph.type(t).dtype, graph.type(t).shape) for t in tensors
    )
    return node.op, types


def time_of(lowered: LoweredGraph, lower: Lowerer) -> int:
    """Returns the time of all kernels of a graph, as in :class:`BandCost`."""
    time = 0
    for node in lowered.nodes:
        if node.rows is not None:
            time += sum(
                count * lower.costs.of(band.lowered.kernel).time
                for count, band in zip(node.rows.bands.runs, node.rows.lowered.nodes, strict=True)
            )
        elif node.build is not None:
            time += lower.costs.of(node.lowered.kernel).time
    return time


class _FreedomsOfMore(Mapping[tuple[int, int], Freedom]):
    """The freedoms of a band of ``more`` rows than ``first`` are of, as those of one more row,
    ``second``, let expect."""

    def __init__(self, first: Freedoms, second: Freedoms, more: int) -> None:
        self._first, self._second, self._more = first, second, more

    def __getitem__(self, pair: tuple[int, int]) -> Freedom:
        first, second = self._first[pair], self._second[pair]
        return Freedom(
            first.before + (second.before - first.before) * self._more,
            first.after + (second.after - first.after) * self._more,
        )

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._first)

    def __len__(self) -> int:
        return len(self._first)

"""Decides how many rows the parts of a cascade compute at once.

A kernel that computes one row has overhead that others spread over many: it prepares rows that its
windows share again, and has pixels left over. More rows at once take more memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Cascade, ChannelSums
from crtexport.lowering.rows.bands import bands
from crtexport.lowering.rows.schedule import Compute, Work
from crtexport.lowering.rows.windows import row_windows, rows_of, rows_together
from crtexport.plan.rows import row_bytes
from crtexport.schedules.select.lower import Lowerer

_HEIGHTS = (1, 2, 3, 4, 6, 8)


def joint(parts: Sequence[Node], heights: Sequence[int] = ()) -> Node:
    """Returns the cascade of some nodes, which compute so many rows at once: one by default."""
    made = {tensor for part in parts for tensor in part.outputs}
    inputs = dict.fromkeys(
        tensor for part in parts for tensor in part.inputs
        if tensor is not None and tensor not in made
    )
    last = parts[-1]
    return Node(
        Cascade(tuple(heights) or (1,) * len(parts)), tuple(inputs), last.outputs, last.name,
        f"rows of {parts[0]} to {last}", parts=tuple(parts),
    )


class Heights:
    """Chooses heights for the nodes of a graph; ``lowered`` is that with each node as a whole."""

    def __init__(self, graph: Graph, lower: Lowerer) -> None:
        self._graph, self._lower = graph, lower
        self._costs = lower.costs
        self._known: dict[tuple[int, int], int] = {}
        self._makers = {t: n for n, node in enumerate(graph.nodes) for t in node.outputs}
        self._readers: dict[int, list[tuple[int, int]]] = {}
        self._windows = [row_windows(graph, node) or {} for node in graph.nodes]
        for number, node in enumerate(graph.nodes):
            for position in self._windows[number]:
                self._readers.setdefault(graph.required(node, position), []).append(
                    (number, position)
                )
        self.lowered = lower(graph)
        self._whole = [
            0 if node.build is None else self._costs.of(node.lowered.kernel).instructions
            for node in self.lowered.nodes
        ]

    def within(self, nodes: Sequence[int], part: float) -> dict[int, int]:
        """Returns how many rows each of these nodes computes at once: one, but where that costs
        more than a ``part`` of the network's instructions."""
        chosen = dict.fromkeys(nodes, 1)
        while self._excess(chosen) > part * sum(self._whole):
            taller = self.taller(chosen)
            if taller is None:
                break
            chosen = taller
        return chosen

    def taller(self, chosen: Mapping[int, int]) -> dict[int, int] | None:
        """Returns heights of which one is larger: the one that saves most instructions for a byte.
        None where that saves nothing."""
        steps = [step for number in chosen for step in self._steps(chosen, number)]
        if not steps:
            return None
        _, number, height = max(steps)
        return {**chosen, number: height}

    def _excess(self, chosen: Mapping[int, int]) -> int:
        return sum(
            self._cost(number, height) - self._whole[number] for number, height in chosen.items()
        )

    def _steps(self, chosen: Mapping[int, int], number: int) -> list[tuple[float, int, int]]:
        """The next larger height of a node that takes fewer instructions, if there is one:
        (instructions for a byte, number, height)."""
        node, height = self._graph.nodes[number], chosen[number]
        together = rows_together(self._windows[number])
        rows = rows_of(self._graph.type(node.outputs[0])) // together
        if isinstance(node.op, ChannelSums):
            return []
        near = {t for t in (*node.inputs, *node.outputs) if t in self._readers}
        before = self._kept(chosen, near)
        for taller in _HEIGHTS:
            if height < taller <= rows:
                gained = self._cost(number, height) - self._cost(number, taller)
                if gained > 0:
                    more = self._kept({**chosen, number: taller}, near) - before
                    return [(gained / max(more, 1), number, taller)]
        return []

    def _kept(self, chosen: Mapping[int, int], tensors: Iterable[int]) -> int:
        """The bytes of the rows that are kept of some tensors.

        Rows that come ``made`` at once, and of which ``window`` are read and then ``used`` dropped
        at once, need room for window + made - gcd(made, used) rows.
        """
        total = 0
        for tensor in tensors:
            maker = self._makers.get(tensor, -1)
            made = chosen.get(maker, 1) * (rows_together(self._windows[maker]) if maker >= 0 else 1)
            room = 0
            for reader, position in self._readers[tensor]:
                if reader in chosen:
                    window = self._windows[reader][position]
                    used = window.stride * chosen[reader]
                    size = window.covered(chosen[reader] * window.made)
                    room = max(room, size + made - math.gcd(made, used))
            total += room * row_bytes(self._graph, tensor)
        return total

    def _cost(self, number: int, height: int) -> int:
        """Instructions that a node takes for all its rows, so many at once."""
        if (number, height) not in self._known:
            self._known[number, height] = self._counted(number, height)
        return self._known[number, height]

    def _counted(self, number: int, height: int) -> int:
        found = bands(self._graph, joint((self._graph.nodes[number],), (height,)))
        if found is None:
            return self._whole[number]
        lowered = self._lower(found.graph).nodes
        cost: dict[Work, int] = {
            work: self._costs.of(node.lowered.kernel).instructions
            for work, node in zip(found.works, lowered, strict=True) if isinstance(work, Compute)
        }
        return sum(int(cost.get(step.work, 0)) for step in found.schedule.steps)

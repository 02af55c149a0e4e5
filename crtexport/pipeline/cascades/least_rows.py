"""A quick lower bound of the memory that a cascade needs: without its schedule.

While a part computes rows, what it reads and writes is in memory, and of each other ring the rows
that the windows of its readers share. That holds in the middle of tensors of many bands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from crtexport.lowering.rows.windows import RowWindow
from crtexport.pipeline.cascades.costs import BandCosts
from crtexport.plan.rows import row_bytes

_BANDS = 3
"""Bands of which one is in the middle."""


class _RingNode(Struct, frozen=True):
    """A node by its ``number``: the ``windows`` of its inputs that are in rings, by position, and
    ``reads``: these tensors; ``writes``: its output, if that is in a ring."""

    number: int
    windows: Mapping[int, RowWindow]
    reads: Mapping[int, int]
    writes: int | None


class LeastRows(Struct, frozen=True):
    """The ``parts`` of a cascade; ``shared``: bytes of each ring that neighbouring windows of
    readers share; ``row_sizes`` of the rings, and ``readers``: places of parts that read them."""

    costs: BandCosts
    parts: tuple[_RingNode, ...]
    row_sizes: Mapping[int, int]
    shared: Mapping[int, int]
    readers: Mapping[int, tuple[int, ...]]

    @classmethod
    def of(cls, costs: BandCosts, nodes: Sequence[int], outputs: Sequence[int]) -> LeastRows:
        """Returns the bound for a cascade of some nodes."""
        graph = costs.graph
        rings = {t for n in nodes for t in graph.nodes[n].outputs} - {*outputs}
        parts, shared = [], dict.fromkeys(rings, 0)
        readers: dict[int, tuple[int, ...]] = dict.fromkeys(rings, ())
        sizes = {tensor: row_bytes(graph, tensor) for tensor in rings}
        for place, number in enumerate(nodes):
            node = graph.nodes[number]
            reads = {
                position: tensor for position in costs.windows(number)
                if (tensor := graph.required(node, position)) in rings
            }
            windows = {position: costs.windows(number)[position] for position in reads}
            for position, tensor in reads.items():
                rows = windows[position].size - windows[position].stride
                shared[tensor] = max(shared[tensor], rows * sizes[tensor])
                readers[tensor] += (place,)
            writes = node.outputs[0] if node.outputs[0] in rings else None
            parts.append(_RingNode(number, windows, reads, writes))
        return cls(costs, tuple(parts), sizes, shared, readers)

    def least(self, heights: Sequence[int]) -> int:
        """Returns bytes that are needed at least, if parts compute so many units of rows at
        once."""
        rows = [
            height * self.costs.unit(part.number)
            for part, height in zip(self.parts, heights, strict=True)
        ]
        middle = [
            self.costs.rows(part.number) >= _BANDS * count
            for part, count in zip(self.parts, rows, strict=True)
        ]
        kept = {
            tensor: nbytes if all(middle[place] for place in self.readers[tensor]) else 0
            for tensor, nbytes in self.shared.items()
        }
        everything = sum(kept.values())
        return max(
            self._running(part, count, kept) + (everything if all(middle) else 0)
            for part, count in zip(self.parts, rows, strict=True)
        )

    def _running(self, part: _RingNode, rows: int, kept: Mapping[int, int]) -> int:
        """Returns the bytes that a part needs while it computes so many rows, more than what is
        kept."""
        facts = self.costs.of(part.number, rows).facts
        written = 0 if part.writes is None else rows * self.row_sizes[part.writes]
        found, over = facts.scratch + written, 0
        for position, tensor in part.reads.items():
            window, size = part.windows[position], self.row_sizes[tensor]
            read = window.covered(rows) * size
            found += read - kept[tensor]
            freedom = facts.forward.get((0, position)) if written else None
            if freedom is not None:
                dying = rows // window.made * window.stride * size
                over = max(over, min(dying, freedom.shared(read, written)))
        return found - over

"""Draws a network as a graph beside a table: a row for each node, and edges as lines between rows.

Networks for microcontrollers are chains with a few bypasses. Graph layout in layers would put one
node into each layer, with labels that are far apart or overlap; here each row has room for all its
figures. An edge to the next row goes straight down; one that passes rows has a lane of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

ROW = 30
"""Height of a row, in pixels."""
_LANE = 12
_MIDDLE = ROW // 2
_COLORS = 6


class Wire(Struct, frozen=True):
    """An edge that passes rows: a tensor, from the row ``start`` that computes it to the rows
    ``ends`` that read it, in lane ``lane``."""

    start: int
    ends: tuple[int, ...]
    lane: int


class RailLine(Struct, frozen=True):
    """A piece of an edge within a row, as the path of an SVG file; ``color`` is that of its lane.
    """

    path: str
    color: int


class Rail(Struct, frozen=True):
    """The lines of each row. All rows are ``width`` pixels wide."""

    width: int
    rows: tuple[tuple[RailLine, ...], ...]
    node: int = _LANE


def rail(count: int, edges: Sequence[tuple[int, int]]) -> Rail:
    """Returns the lines of ``count`` rows; ``edges`` lead from earlier rows to later ones."""
    straight = {start for start, end in edges if end == start + 1}
    wires = _wires([(start, end) for start, end in edges if end > start + 1])
    lanes = max((wire.lane for wire in wires), default=0)
    rows: list[list[RailLine]] = [[] for _ in range(count)]
    for start in straight:
        rows[start].append(RailLine(f"M{_x(0)},{_MIDDLE}V{ROW}", 0))
        rows[start + 1].append(RailLine(f"M{_x(0)},0V{_MIDDLE}", 0))
    for wire in wires:
        for row, path in _pieces(wire):
            rows[row].append(RailLine(path, 1 + (wire.lane - 1) % (_COLORS - 1)))
    return Rail(_x(lanes) + _LANE, tuple(map(tuple, rows)))


def _x(lane: int) -> int:
    return _LANE + _LANE * lane


def _wires(edges: Sequence[tuple[int, int]]) -> list[Wire]:
    """Returns the edges sorted by their start, each in the first lane that is free in all its rows.
    """
    ends: dict[int, list[int]] = {}
    for start, end in edges:
        ends.setdefault(start, []).append(end)
    free_from: list[int] = []  # by lane
    wires = []
    for start, reached in sorted(ends.items()):
        lane = next((n for n, row in enumerate(free_from) if row <= start), len(free_from))
        free_from[lane : lane + 1] = [max(reached)]
        wires.append(Wire(start, tuple(sorted(set(reached))), lane + 1))
    return wires


def _pieces(wire: Wire) -> list[tuple[int, str]]:
    x, node, last = _x(wire.lane), _x(0), wire.ends[-1]
    found = [(wire.start, f"M{node},{_MIDDLE}C{x},{_MIDDLE} {x},{_MIDDLE} {x},{ROW}")]
    for row in range(wire.start + 1, last + 1):
        if row < last:
            found.append((row, f"M{x},0V{ROW}"))
        if row in wire.ends:
            found.append((row, f"M{x},0C{x},{_MIDDLE} {x},{_MIDDLE} {node},{_MIDDLE}"))
    return found

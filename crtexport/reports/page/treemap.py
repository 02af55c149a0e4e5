"""Squarified treemaps (Bruls, Huizing and van Wijk, 2000): rectangles whose areas are given
numbers, as square as possible.

They are written here, in forty lines, since the packages that have them are seldom released.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class TreemapBox(Struct, frozen=True):
    """A rectangle: the upper left corner, width and height, in pixels."""

    x: float
    y: float
    width: float
    height: float

    def inner(self, margin: float, top: float) -> TreemapBox:
        """Returns the part within margins, which are wider at the top."""
        return TreemapBox(
            self.x + margin, self.y + top, max(self.width - 2 * margin, 0),
            max(self.height - top - margin, 0),
        )


def treemap(sizes: Sequence[float], box: TreemapBox) -> list[TreemapBox]:
    """Returns a box for each of ``sizes``, which are positive and descend; together they are
    ``box``."""
    total = sum(sizes)
    if not total or box.width <= 0 or box.height <= 0:
        return [TreemapBox(box.x, box.y, 0, 0) for _ in sizes]
    scale = box.width * box.height / total
    areas = [size * scale for size in sizes]
    made: list[TreemapBox] = []
    while len(made) < len(areas):
        row = _row(areas[len(made):], min(box.width, box.height))
        boxes, box = _placed(row, box)
        made += boxes
    return made


def _row(areas: Sequence[float], side: float) -> Sequence[float]:
    """Returns the first of ``areas``, so many that the worst ratio of sides in a row along ``side``
    is the best."""
    count, best = 1, _worst(areas[:1], side)
    while count < len(areas) and (worst := _worst(areas[: count + 1], side)) <= best:
        count, best = count + 1, worst
    return areas[:count]


def _worst(row: Sequence[float], side: float) -> float:
    """Returns the largest ratio of sides in a row along ``side``."""
    depth = sum(row) / side
    return max(max(depth * depth / area, area / (depth * depth)) for area in (row[0], row[-1]))


def _placed(row: Sequence[float], box: TreemapBox) -> tuple[list[TreemapBox], TreemapBox]:
    """Returns the boxes of a row along the shorter side of ``box``, and the remaining box."""
    along = box.height if box.width >= box.height else box.width
    # Not more than is left: areas of thin boxes lose some digits.
    depth, at, boxes = min(sum(row) / along, max(box.width, box.height)), 0.0, []
    for area in row:
        length = area / depth
        boxes.append(
            TreemapBox(box.x, box.y + at, depth, length) if box.width >= box.height
            else TreemapBox(box.x + at, box.y, length, depth)
        )
        at += length
    if box.width >= box.height:
        return boxes, TreemapBox(box.x + depth, box.y, max(box.width - depth, 0), box.height)
    return boxes, TreemapBox(box.x, box.y + depth, box.width, max(box.height - depth, 0))

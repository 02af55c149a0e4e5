"""Draws the workspace over time: a column for each step, and a box for each tensor over the steps
in which it is live.

Tensors that share bytes, because a step works in place or because one is a view of the other, are
drawn as one shape. Scratch memory is hatched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from crtexport.pipeline.summary.records import ReportedTensor
from crtexport.reports.figures import Report
from crtexport.reports.page.words import fitting, grouped, shape

WIDTH = 960
HEIGHT = 340
LEFT = 76
TOP = 10
BOTTOM = 26
_GAP = 18
_COLORS = 7
_LEAST = 30  # pixels between the numbers of columns
_WORDS = 13  # pixels that a label takes in height


class Bar(Struct, frozen=True):
    """A rectangle for a tensor or scratch memory, in pixels; ``title`` is its tooltip."""

    x: float
    y: float
    width: float
    height: float
    title: str


class TimelineBar(Struct, frozen=True):
    """Rectangles of tensors that share bytes, drawn as one shape. ``label`` is in the middle of the
    largest one; ``upright``: rotated, because that is narrow."""

    bars: tuple[Bar, ...]
    color: int
    label: str
    label_x: float
    label_y: float
    upright: bool


class TimelineMark(Struct, frozen=True):
    """A number beside an axis, ``at`` pixels from its origin."""

    at: float
    text: str


class Timeline(Struct, frozen=True):
    """The picture. ``peak`` is the step with the most bytes, ``peak_bytes`` their number;
    ``peak_at`` is (left edge, width) of its column in pixels."""

    shapes: tuple[TimelineBar, ...]
    scratch: tuple[Bar, ...]
    columns: tuple[TimelineMark, ...]
    bytes: tuple[TimelineMark, ...]
    peak: int
    peak_bytes: int
    peak_at: tuple[float, float]


class _TimeScale:
    """Converts steps and bytes to pixels. The pools of the workspace are drawn below each other."""

    def __init__(self, report: Report) -> None:
        self.count = len(report.steps)
        self.pools = [max(pool.bytes, 1) for pool in report.pools]
        self.column = (WIDTH - LEFT) / (self.count + 2)
        room = HEIGHT - _GAP * (len(self.pools) - 1)
        self._pixels = room / sum(self.pools)

    def x(self, step: int) -> float:
        return LEFT + self.column * (step + 1)

    def y(self, pool: int, offset: int) -> float:
        return TOP + self._pixels * (sum(self.pools[:pool]) + offset) + _GAP * pool

    def height(self, size: int) -> float:
        return max(self._pixels * size, 1)


def timeline(report: Report) -> Timeline | None:
    """Returns the picture; None if there is no workspace, or no step."""
    tensors = {
        one.id: one for one in report.tensors if one.space == "workspace" and one.bytes
    }
    scratch = [step for step in report.steps if step.scratch is not None]
    if not report.steps or not (tensors or scratch):
        return None
    scale = _TimeScale(report)
    every = max(1, -(-_LEAST // max(int(scale.column), 1)))
    peak, peak_bytes = _peak(report, tensors)
    return Timeline(
        shapes=tuple(
            _shape(scale, group, number)
            for number, group in enumerate(_groups(report, tensors))
        ),
        scratch=tuple(_scratch(report, scale)),
        columns=tuple(
            TimelineMark(scale.x(step) + scale.column / 2, str(step))
            for step in range(0, scale.count, every)
        ),
        bytes=tuple(_bytes(report, scale)), peak=peak, peak_bytes=peak_bytes,
        peak_at=(scale.x(peak), scale.column),
    )


def _groups(
    report: Report, tensors: Mapping[int, ReportedTensor]
) -> list[list[ReportedTensor]]:
    """Returns the tensors that share bytes, together."""
    leader = {tensor: tensor for tensor in tensors}

    def found(tensor: int) -> int:
        while leader[tensor] != tensor:
            tensor = leader[tensor]
        return tensor

    for step in report.steps:
        pairs = [(o, i) for o in step.outputs for i in step.inputs] if step.view else step.in_place
        for output, given in pairs:
            if output in leader and given in leader:
                leader[found(output)] = found(given)
    groups: dict[int, list[ReportedTensor]] = {}
    for tensor in tensors.values():
        groups.setdefault(found(tensor.id), []).append(tensor)
    return list(groups.values())


def _shape(scale: _TimeScale, group: Sequence[ReportedTensor], number: int) -> TimelineBar:
    bars = [_bar(scale, tensor) for tensor in group]
    largest = max(range(len(bars)), key=lambda n: bars[n].width * bars[n].height)
    bar, text = bars[largest], grouped(group[largest].bytes)
    upright = fitting(text, bar.width) != text
    along, across = (bar.height, bar.width) if upright else (bar.width, bar.height)
    fits = fitting(text, along) == text and across >= _WORDS
    return TimelineBar(
        tuple(bars), number % _COLORS, text if fits else "", bar.x + bar.width / 2,
        bar.y + bar.height / 2, upright,
    )


def _bar(scale: _TimeScale, tensor: ReportedTensor) -> Bar:
    last = min(tensor.last, scale.count)
    return Bar(
        scale.x(tensor.first), scale.y(tensor.pool, tensor.offset),
        scale.column * (last - tensor.first + 1), scale.height(tensor.bytes),
        f"{tensor.name} ({shape(tensor.dtype, tensor.shape)}): bytes {tensor.offset:,} to "
        f"{tensor.offset + tensor.bytes:,}, steps {max(tensor.first, 0)} to "
        f"{min(tensor.last, scale.count - 1)}",
    )


def _scratch(report: Report, scale: _TimeScale) -> Iterator[Bar]:
    for number, step in enumerate(report.steps):
        part = step.scratch
        if part is not None and part.bytes:
            yield Bar(
                scale.x(number), scale.y(part.pool, part.offset), scale.column,
                scale.height(part.bytes), f"scratch of step {number}, {step.name}: bytes "
                f"{part.offset:,} to {part.offset + part.bytes:,}",
            )


def _bytes(report: Report, scale: _TimeScale) -> Iterator[TimelineMark]:
    """Yields the numbers beside the vertical axis: for each pool round numbers, and its size."""
    for number, pool in enumerate(report.pools):
        step = _round_step(pool.bytes) if len(report.pools) == 1 else max(pool.bytes, 1)
        for offset in range(0, pool.bytes, step):
            if scale.height(pool.bytes - offset) >= _WORDS + 1:
                yield TimelineMark(scale.y(number, offset), grouped(offset))
        yield TimelineMark(scale.y(number, pool.bytes), grouped(pool.bytes))


def _round_step(size: int) -> int:
    """Returns the least of 1, 2 and 5 times a power of ten that divides ``size`` bytes into at most
    five parts."""
    power = int(10 ** max(len(str(size)) - 2, 0))
    return next(
        factor * power for factor in (1, 2, 5, 10, 20, 50) if factor * power * 5 >= size
    )


def _peak(report: Report, tensors: Mapping[int, ReportedTensor]) -> tuple[int, int]:
    """Returns (step, bytes): the first step in which the most bytes are in use."""
    spans: list[list[tuple[int, int, int]]] = [[] for _ in report.steps]
    for one in tensors.values():
        for step in range(max(one.first, 0), min(one.last + 1, len(spans))):
            spans[step].append((one.pool, one.offset, one.offset + one.bytes))
    for step, node in enumerate(report.steps):
        if node.scratch is not None:
            first = node.scratch.offset
            spans[step].append((node.scratch.pool, first, first + node.scratch.bytes))
    taken = [_covered(each) for each in spans]
    return taken.index(max(taken)), max(taken)


def _covered(spans: Sequence[tuple[int, int, int]]) -> int:
    """Returns the bytes in at least one span of (pool, first, end)."""
    total, reached = 0, (-1, 0)
    for pool, first, end in sorted(spans):
        begin = max(first, reached[1]) if pool == reached[0] else first
        total += max(end - begin, 0)
        reached = (pool, max(end, reached[1] if pool == reached[0] else 0))
    return total

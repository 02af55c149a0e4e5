"""Draws a plan: time from left to right, the bytes of the workspace from top to bottom, one memory
below the other.

Each tensor is a box as wide as it is live and as high as it is large; tensors that share bytes,
because an operator works in place or one is a view of the other, are one shape. Scratch memory is
hatched. A cascade has a column for each tensor of which it keeps rows, with a band of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from msgspec import Struct

from crtexport.ir.graph import Graph
from crtexport.ir.ops import Cascade, Reshape
from crtexport.plan.liveness import Lifetime, lifetimes
from crtexport.plan.model import Plan, Space, Step
from crtexport.plan.order import whole_order
from crtexport.plan.rows import row_bytes
from crtexport.plan.text import peak_text
from crtexport.support.errors import printable

_COLUMN = 56
_HEIGHT = 480
_LEFT = 76
_TOP = 84
_BOTTOM = 190
_LEAST_WIDTH = 720
_LINE = 16
_CHARACTER = 5.6
_WORDS = 12
"""Pixels that a label takes in height."""
_LONGEST = 36
_COLORS = ("#4e79a7", "#f28e2b", "#76b7b2", "#59a14f", "#edc948", "#b07aa1", "#9c755f")
_HATCH = (
    '<defs><pattern id="scratch" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect width="6" height="6" fill="#eeeeee"/>'
    '<line x1="0" y1="0" x2="0" y2="6" stroke="#888888" stroke-width="1.5"/></pattern></defs>'
)


def draw(graph: Graph, plan: Plan) -> str:
    """Returns the plan as the text of an SVG file."""
    return "\n".join(_Picture(graph, plan).lines()) + "\n"


class _Picture:
    def __init__(self, graph: Graph, plan: Plan) -> None:
        self._graph, self._plan = graph, plan
        self._order = whole_order(graph, (step.node for step in plan.steps))
        self._lives = lifetimes(graph, self._order)
        self._steps = {step.node: step for step in plan.steps}
        self._edges = [_LEFT, _LEFT + _COLUMN]
        for number in self._order:
            self._edges.append(self._edges[-1] + _COLUMN * self._lanes(number))
        self._edges.append(self._edges[-1] + _COLUMN)

    def _lanes(self, number: int) -> int:
        """Returns the number of columns of a node: one for each tensor of which it keeps rows."""
        step = self._steps.get(number)
        return max(1, 0 if step is None or step.rows is None else len(step.rows.rings))

    def lines(self) -> Iterator[str]:
        """Yields the lines of the file."""
        graph, plan = self._graph, self._plan
        width = max(self._edges[-1] + 16, _LEAST_WIDTH)
        height = _TOP + _HEIGHT + _BOTTOM
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">'
        )
        yield _HATCH
        yield f'<rect width="{width}" height="{height}" fill="white"/>'
        yield (
            f'<text x="8" y="18" font-size="14">{_text(graph.name)}: {plan.total} bytes of '
            "workspace</text>"
        )
        said = f"peak: {peak_text(graph, plan)}", lower_text(graph, plan)
        for number, words in enumerate(said):
            yield _words(8, 36 + _LINE * number, words, width - 16)
        yield from self._grid()
        yield from self._peak()
        for step in plan.steps:
            yield from self._scratch(step)
        for group in self._groups():
            yield from self._shape(group)
        for step in plan.steps:
            yield from self._rings(step)
        for position, number in enumerate(self._order):
            yield from self._label(number, position)
        yield "</svg>"

    # -- places

    def _x(self, position: int) -> int:
        """Returns the left edge of a step's column; -1 is before the first node."""
        return self._edges[position + 1]

    def _y(self, offset: int) -> float:
        return round(_TOP + _HEIGHT * offset / max(self._plan.total, 1), 2)

    def _start(self, pool: int) -> int:
        return sum(self._plan.pools[:pool])

    def _grid(self) -> Iterator[str]:
        """Yields the scale of bytes at the left, with lines."""
        step = _round_step(self._plan.total)
        for offset in range(0, self._plan.total + 1, step):
            y = self._y(offset)
            yield (
                f'<line x1="{_LEFT}" y1="{y}" x2="{self._edges[-1]}" y2="{y}" stroke="#dddddd"/>'
            )
            yield f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{_size(offset)}</text>'

    def _peak(self) -> Iterator[str]:
        """Yields the highlighted column of the operator that sets the peak."""
        if self._plan.peak.node in self._order:
            position = self._order.index(self._plan.peak.node)
            x = self._x(position)
            yield (
                f'<rect x="{x}" y="{_TOP}" width="{self._x(position + 1) - x}" '
                f'height="{_HEIGHT}" fill="#e15759" fill-opacity="0.15"/>'
            )

    # -- boxes

    def _groups(self) -> list[list[int]]:
        """Returns the tensors in the workspace; those that share bytes together."""
        places = self._plan.placements
        leader = {
            t: t for t in self._lives if self._graph.type(t).nbytes
            and (home := places[t]) is not None and home.space is Space.WORKSPACE
        }

        def found(tensor: int) -> int:
            while leader[tensor] != tensor:
                tensor = leader[tensor]
            return tensor

        for number in self._order:
            node, step = self._graph.nodes[number], self._steps.get(number)
            pairs = step.in_place if step is not None else (
                ((0, 0),) if isinstance(node.op, Reshape) else ()
            )
            for output, given in pairs:
                pair = node.outputs[output], node.inputs[given]
                if pair[0] in leader and pair[1] in leader:
                    leader[found(pair[0])] = found(pair[1])
        groups: dict[int, list[int]] = {}
        for tensor in leader:
            groups.setdefault(found(tensor), []).append(tensor)
        return list(groups.values())

    def _shape(self, group: list[int]) -> Iterator[str]:
        """Yields boxes as one shape: outlines below, and what they are filled with above."""
        bars = {tensor: self._bar(tensor, self._lives[tensor]) for tensor in group}
        color = _COLORS[group[0] % len(_COLORS)]
        yield '<g opacity="0.7">'
        for tensor, bar in bars.items():
            home = self._plan.placements[tensor]
            if home is None:
                continue
            type_, name = self._graph.type(tensor), self._graph.tensors[tensor].name
            title = f"{name} {type_}: bytes {home.offset} to {home.offset + type_.nbytes}"
            yield f"<g><title>{_text(title)}</title>"
            yield f'{bar.rect} fill="{color}" stroke="#333333" stroke-width="1.4"/></g>'
        for bar in bars.values() if len(bars) > 1 else ():
            yield f'{bar.rect} fill="{color}" pointer-events="none"/>'
        yield "</g>"
        largest = max(bars, key=lambda tensor: bars[tensor].width * bars[tensor].height)
        yield from bars[largest].label(f"{self._graph.type(largest).nbytes:,}")

    def _bar(self, tensor: int, life: Lifetime) -> _Bar:
        home, count = self._plan.placements[tensor], len(self._order)
        start = 0 if home is None else self._start(home.index) + home.offset
        x = self._x(life.first)
        end = self._x(min(life.last, count) + 1)
        return self._at(x, end - x, start, self._graph.type(tensor).nbytes)

    def _at(self, x: int, width: int, start: int, size: int) -> _Bar:
        y = self._y(start)
        return _Bar(x + 1, y, width - 2, max(round(self._y(start + size) - y, 2), 1))

    def _scratch(self, step: Step) -> Iterator[str]:
        """Yields the scratch memory of a node; the rows of a cascade are drawn over it."""
        scratch = step.scratch
        if scratch is None or not scratch.nbytes:
            return
        position = self._order.index(step.node)
        x, end = scratch.offset, scratch.offset + scratch.nbytes
        title = f"scratch of {self._graph.nodes[step.node]}: bytes {x} to {end}"
        left = self._x(position)
        bar = self._at(
            left, self._x(position + 1) - left, self._start(scratch.pool) + x, scratch.nbytes
        )
        yield f"<g><title>{_text(title)}</title>"
        yield f'{bar.rect} fill="url(#scratch)" stroke="#888888" stroke-width="0.7"/></g>'

    def _rings(self, step: Step) -> Iterator[str]:
        """Yields the rows that a cascade keeps: a band for each tensor, a line for each row."""
        scratch, rows = step.scratch, step.rows
        if scratch is None or rows is None:
            return
        start = self._start(scratch.pool) + scratch.offset
        left, parts = self._x(self._order.index(step.node)), self._graph.nodes[step.node].parts
        made = {tensor: number for number, part in enumerate(parts) for tensor in part.outputs}
        for lane, tensor in enumerate(sorted(rows.rings, key=lambda t: made.get(t, -1))):
            offset = rows.rings[tensor]
            size, count = row_bytes(self._graph, tensor), rows.rows[tensor]
            x, name = left + lane * _COLUMN, self._graph.tensors[tensor].name
            bar = self._at(x, _COLUMN, start + offset, count * size)
            yield f"<g><title>{_text(f'{count} rows of {name}, {size} bytes each')}</title>"
            yield (
                f'{bar.rect} fill="{_COLORS[tensor % len(_COLORS)]}" stroke="#333333" '
                'stroke-width="0.7"/>'
            )
            for row in range(1, count):
                y = self._y(start + offset + row * size)
                yield (
                    f'<line x1="{bar.x}" y1="{y}" x2="{bar.x + bar.width}" y2="{y}" '
                    'stroke="#333333" stroke-width="0.4" stroke-dasharray="3 2"/>'
                )
            yield from bar.label(f"{count}×{size:,}")
            yield "</g>"
            yield from _slanted(x, _short(name), name)

    def _label(self, number: int, position: int) -> Iterator[str]:
        """Yields the operator's name under its column; a cascade's is above its columns, which
        have names of their own."""
        node, step = self._graph.nodes[number], self._steps.get(number)
        x = self._x(position)
        if step is not None and step.rows is not None and step.rows.rings:
            words = f"{number} rows of {len(node.parts)} layers"
            yield _words(x, _TOP - 6, words, self._x(position + 1) - x)
            return
        layers = "rows of " if isinstance(node.op, Cascade) else ""
        yield from _slanted(x, f"{number} {layers}{node.operator}", str(node))


class _Bar(Struct, frozen=True):
    """A rectangle, in pixels."""

    x: int
    y: float
    width: int
    height: float

    @property
    def rect(self) -> str:
        """Returns the element, without what it is filled with and its end."""
        return f'<rect x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}"'

    def label(self, words: str) -> Iterator[str]:
        """Yields words inside, if there is room for them."""
        if self.height >= _WORDS and len(words) * _CHARACTER + 6 <= self.width:
            y = round(self.y + self.height / 2 + 4, 2)
            yield f'<text x="{self.x + 4}" y="{y}" pointer-events="none">{_text(words)}</text>'


def lower_text(graph: Graph, plan: Plan) -> str:
    """Returns what would make the peak of a plan lower."""
    number = plan.peak.node
    if not plan.total:
        return "nothing is in the workspace"
    if number is None:
        return "lower: inputs and outputs in buffers of the caller (--io caller)"
    node = graph.nodes[number]
    step = next((step for step in plan.steps if step.node == number), None)
    if step is not None and step.rows is not None:
        sizes = {t: step.rows.rows[t] * row_bytes(graph, t) for t in step.rows.rings}
        largest = max(sizes, key=lambda t: sizes[t], default=None)
        most = "" if largest is None else (
            f" most of them are the {step.rows.rows[largest]} of"
            f" {_short(graph.tensors[largest].name)}, {sizes[largest]} bytes:"
        )
        return (
            f"lower: rows that windows span are kept;{most} narrower or lower windows, or strides"
        )
    sizes = {
        t: graph.type(t).nbytes for t in (*node.inputs, *node.outputs)
        if t is not None and (home := plan.placements[t]) is not None
        and home.space is Space.WORKSPACE
    }
    largest = max(sizes, key=lambda t: sizes[t], default=None)
    if largest is None:
        return f"lower: less scratch memory of node {number}, as with --optimize size"
    name = _short(graph.tensors[largest].name)
    return (
        f"lower: {name}, {sizes[largest]} bytes, is there as a whole; --optimize ram keeps only"
        " rows where layers allow that"
    )


def _text(text: str) -> str:
    return escape(printable(text))


def _words(x: int, y: int, words: str, width: int) -> str:
    """Returns words, cut where there is no room for more; all of them where they are pointed at."""
    room = max(int(width / _CHARACTER), 1)
    shown = words if len(words) <= room else f"{words[: room - 1]}…"
    return f'<text x="{x}" y="{y}"><title>{_text(words)}</title>{_text(shown)}</text>'


def _slanted(x: int, words: str, title: str) -> Iterator[str]:
    """Yields a name under a column, slanted."""
    shown = words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
    left, y = x + _COLUMN // 2, _TOP + _HEIGHT + 14
    yield (
        f"<g><title>{_text(title)}</title>"
        f'<text transform="translate({left},{y}) rotate(50)">{_text(shown)}</text></g>'
    )


def _short(name: str) -> str:
    """Returns the end of the first of the names that a converter joined for a tensor."""
    first = name.split(";", 1)[0].rstrip("/")
    return "/".join(first.split("/")[-2:]) or name


def _round_step(total: int) -> int:
    """Returns the bytes between marks of the scale: a power of two, at most eight times."""
    step = 1
    while step * 8 < total:
        step *= 2
    return step


def _size(offset: int) -> str:
    """Returns an offset in KiB, or in bytes below that."""
    kib = offset / 1024
    return f"{offset}" if 0 < kib < 1 and offset % 256 else f"{kib:g} KiB"

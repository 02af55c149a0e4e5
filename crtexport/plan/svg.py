"""Draws a plan: time from left to right, the bytes of the workspace from top to bottom, one memory
below the other.

Each tensor is a box as wide as it is live and as high as it is large; if an output lies over an
input of the same operator, the boxes overlap in that operator's column. The rows that a cascade
keeps are bands in its column.
"""

from __future__ import annotations

from xml.sax.saxutils import escape

from crtexport.ir.graph import Graph
from crtexport.plan.liveness import Lifetime, lifetimes
from crtexport.plan.model import Plan, Space, Step
from crtexport.plan.order import whole_order
from crtexport.plan.rows import row_bytes
from crtexport.plan.text import peak_text
from crtexport.support.errors import printable

_COLUMN = 56
_HEIGHT = 480
_LEFT = 76
_TOP = 44
_BOTTOM = 190
_COLORS = ("#4e79a7", "#f28e2b", "#76b7b2", "#59a14f", "#edc948", "#b07aa1", "#9c755f")


def draw(graph: Graph, plan: Plan) -> str:
    """Returns the plan as the text of an SVG file."""
    order = whole_order(graph, (step.node for step in plan.steps))
    lives = lifetimes(graph, order)
    width = _LEFT + _COLUMN * (len(order) + 2) + 16
    height = _TOP + _HEIGHT + _BOTTOM
    lines = [
        (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">'),
        f'<rect width="{width}" height="{height}" fill="white"/>',
        (f'<text x="8" y="18" font-size="14">{_text(graph.name)}: {plan.total} bytes of '
        "workspace</text>"),
        f'<text x="8" y="34">peak: {_text(peak_text(graph, plan))}</text>',
        *_grid(plan, len(order)),
        *_peak(plan, order),
    ]
    for tensor, life in lives.items():
        lines += _box(graph, plan, tensor, life, len(order))
    for step in plan.steps:
        if step.rows is not None and step.scratch is not None:
            lines += _rings(graph, plan, step, order.index(step.node))
    for position, number in enumerate(order):
        lines += _label(graph, number, position)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _text(text: str) -> str:
    return escape(printable(text))


def _x(position: int) -> int:
    """Returns the left edge of a step's column; -1 is before the first node."""
    return _LEFT + _COLUMN * (position + 1)


def _y(plan: Plan, offset: int) -> float:
    return round(_TOP + _HEIGHT * offset / max(plan.total, 1), 2)


def _grid(plan: Plan, count: int) -> list[str]:
    """Returns the scale of bytes at the left, with lines."""
    lines = []
    for part in range(5):
        offset = plan.total * part // 4
        y = _y(plan, offset)
        lines.append(
            f'<line x1="{_LEFT}" y1="{y}" x2="{_x(count + 1)}" y2="{y}" stroke="#dddddd"/>'
        )
        lines.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{offset}</text>')
    return lines


def _peak(plan: Plan, order: tuple[int, ...]) -> list[str]:
    """Returns the highlighted column of the operator that sets the peak."""
    if plan.peak.node not in order:
        return []
    x = _x(order.index(plan.peak.node))
    return [
        (f'<rect x="{x}" y="{_TOP}" width="{_COLUMN}" height="{_HEIGHT}" fill="#e15759" '
        'fill-opacity="0.15"/>')
    ]


def _box(graph: Graph, plan: Plan, tensor: int, life: Lifetime, count: int) -> list[str]:
    home, size = plan.placements[tensor], graph.type(tensor).nbytes
    if home is None or home.space is not Space.WORKSPACE or not size:
        return []
    start = sum(plan.pools[: home.index]) + home.offset
    x, y = _x(life.first), _y(plan, start)
    end = _x(min(life.last, count) + 1)
    height = max(round(_y(plan, start + size) - y, 2), 1)
    name = graph.tensors[tensor].name
    title = f"{name} {graph.type(tensor)}: bytes {home.offset} to {home.offset + size}"
    label = f"{size}"
    lines = [
        f'<g><title>{_text(title)}</title>',
        (f'<rect x="{x + 1}" y="{y}" width="{end - x - 2}" height="{height}" rx="2" '
        f'fill="{_COLORS[tensor % len(_COLORS)]}" fill-opacity="0.6" stroke="#333333" '
        'stroke-width="0.7"/>'),
    ]
    if height >= 12:
        lines.append(f'<text x="{x + 5}" y="{round(y + height / 2 + 4, 2)}">{label}</text>')
    return [*lines, "</g>"]


def _rings(graph: Graph, plan: Plan, step: Step, position: int) -> list[str]:
    """Returns the rows that a cascade keeps, in its column: a band for each tensor, a line for each
    row."""
    scratch, rows = step.scratch, step.rows
    if scratch is None or rows is None:
        return []
    start = sum(plan.pools[: scratch.pool]) + scratch.offset
    lines: list[str] = []
    for tensor, offset in rows.rings.items():
        size, count = row_bytes(graph, tensor), rows.rows[tensor]
        top, bottom = _y(plan, start + offset), _y(plan, start + offset + count * size)
        title = f"{count} rows of {graph.tensors[tensor].name}, {size} bytes each"
        x, color = _x(position), _COLORS[tensor % len(_COLORS)]
        lines += [
            f"<g><title>{_text(title)}</title>",
            (f'<rect x="{x + 1}" y="{top}" width="{_COLUMN - 2}" '
             f'height="{max(round(bottom - top, 2), 1)}" fill="{color}" fill-opacity="0.45" '
             'stroke="#333333" stroke-width="0.7"/>'),
        ]
        for row in range(1, count):
            y = _y(plan, start + offset + row * size)
            lines.append(
                f'<line x1="{x + 1}" y1="{y}" x2="{x + _COLUMN - 1}" y2="{y}" stroke="#333333" '
                'stroke-width="0.4" stroke-dasharray="3 2"/>'
            )
        lines.append("</g>")
    return lines


def _label(graph: Graph, number: int, position: int) -> list[str]:
    """Returns the operator's name under its column, slanted."""
    node = graph.nodes[number]
    x, y = _x(position) + _COLUMN // 2, _TOP + _HEIGHT + 14
    words = f"{number} {node.operator}"
    return [
        (f'<g><title>{_text(str(node))}</title>'
        f'<text transform="translate({x},{y}) rotate(50)">{_text(words)}</text></g>')
    ]

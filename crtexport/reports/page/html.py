"""Renders a report as HTML: computes texts and positions, which the template only inserts.

The page has no scripts and loads nothing; its content security policy forbids both. Names from
models are escaped by Jinja, in texts and attributes alike. The page contains the report as JSON, so
that ``crtexport diff`` can read it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import jinja2
import markupsafe
from msgspec import Struct

from crtexport.pipeline.summary.records import Finding, Layer
from crtexport.reports.figures import Report, costliest, to_data
from crtexport.reports.page import words
from crtexport.reports.page.rail import ROW, RailLine, rail
from crtexport.reports.page.ranges import ranges
from crtexport.reports.page.timeline import BOTTOM, HEIGHT, LEFT, TOP, WIDTH, timeline
from crtexport.reports.page.treemap import TreemapBox, treemap
from crtexport.support.errors import printable
from crtexport.support.resources import templates_dir

_COSTLIEST = 12
_NAMED = 3  # operators in a row of findings
_MAP = TreemapBox(0, 0, WIDTH, 360)
_LEAST_LABEL = 15  # pixels that a label takes in height


class Row(Struct, frozen=True):
    """A row of the table of the network: an input, or a step with the sums over its layers. None:
    unknown. ``lines`` are the pieces of edges to its left, ``marks`` remarks such as scratch."""

    number: str
    name: str
    label: str
    operator: str
    type: str
    lines: tuple[RailLine, ...]
    kind: str
    macs: int | None = None
    instructions: int | None = None
    code: int | None = None
    constants: int | None = None
    marks: tuple[str, ...] = ()
    cycles: int | None = None


class FigureTile(Struct, frozen=True):
    """A rectangle of the treemap of flash. ``kind`` is code, weights, tables or other; ``labels``
    are the lines of text that fit into it."""

    box: TreemapBox
    kind: str
    title: str
    labels: tuple[str, ...]


def render(report: Report) -> str:
    """Returns the page. The same report gives the same text."""
    lines, width, rows = _network(report)
    return _environment().get_template("report/page.html.j2").render(
        r=report, words=words, rows=rows, rail_width=width, lines=lines, row_height=ROW,
        tiles=list(_tiles(report)), map=_MAP, timeline=timeline(report),
        time_box={"width": WIDTH, "height": TOP + HEIGHT + BOTTOM, "left": LEFT,
                  "top": TOP, "bottom": TOP + HEIGHT},
        costs=_costs(report), peers=_peers(report), findings=_findings(report),
        ranges=ranges(report), fills=_fills(report), data=_embedded(report),
        most=max((row.instructions or 0 for row in rows), default=0) or 1,
        most_flash=max(((row.code or 0) + (row.constants or 0) for row in rows), default=0) or 1,
    )


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_dir()), undefined=jinja2.StrictUndefined,
        autoescape=True, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )
    made.filters |= {
        "grouped": words.grouped, "real": words.real, "short": words.short, "plain": printable,
        "px": lambda value: f"{value:.1f}".removesuffix(".0"),
    }
    return made


def _embedded(report: Report) -> markupsafe.Markup:
    """Returns the report as JSON that can't end the element that it stands in."""
    text = json.dumps(to_data(report), separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return markupsafe.Markup(text)  # noqa: S704  (nothing is left that HTML would read)


def _fills(report: Report) -> list[dict[str, Any]]:
    """Returns the memories, with the widths of their contents in percent of the memory's size, or
    of the sum of contents if that is larger."""
    return [
        {
            "name": memory.name, "used": memory.used, "size": memory.size,
            "percent": f"{memory.percent:.1f}", "over": memory.used > memory.size,
            "parts": [
                {"what": part.what, "bytes": part.bytes, "color": number,
                 "percent": f"{100 * part.bytes / max(memory.size, memory.used):.3f}",
                 "share": words.percent(part.bytes, memory.size)}
                for number, part in enumerate(memory.contents)
            ],
        }
        for memory in report.memories
    ]


def _network(report: Report) -> tuple[list[tuple[RailLine, ...]], int, list[Row]]:
    tensors = {tensor.id: tensor for tensor in report.tensors}
    made = {t for step in report.steps for t in step.outputs}
    sources = list(dict.fromkeys(
        t for step in report.steps for t in step.inputs if t not in made and t in tensors
    ))
    row_of = {tensor: row for row, tensor in enumerate(sources)}
    edges = []
    for number, step in enumerate(report.steps, len(sources)):
        edges += [(row_of[t], number) for t in dict.fromkeys(step.inputs) if t in row_of]
        row_of |= dict.fromkeys(step.outputs, number)
    drawn = rail(len(sources) + len(report.steps), edges)
    rows = [
        Row("", one.name, one.name, "input" if one.space != "state" else "state",
            words.shape(one.dtype, one.shape), drawn.rows[number], "input")
        for number, one in enumerate(tensors[t] for t in sources)
    ]
    by_step: dict[int, list[Layer]] = {}
    for layer in report.layers:
        by_step.setdefault(layer.step, []).append(layer)
    for number, step in enumerate(report.steps):
        layers = by_step.get(number, [])
        output = next((tensors[t] for t in step.outputs if t in tensors), None)
        rows.append(Row(
            str(number), step.name, words.without_type(step.name), words.joined(step.operator),
            "" if output is None else words.shape(output.dtype, output.shape),
            drawn.rows[len(sources) + number], "view" if step.view else "step",
            _sum([layer.macs for layer in layers]), _sum([one.instructions for one in layers]),
            _sum([layer.code for layer in layers]),
            _sum([layer.weights + layer.tables for layer in layers]),
            tuple(_marks(report, number, layers)),
            _sum([None if one.cycles is None else one.cycles.mid for one in layers]),
        ))
    return list(drawn.rows), drawn.width, rows


def _marks(report: Report, number: int, layers: Sequence[Layer]) -> Iterator[str]:
    step = report.steps[number]
    if step.view:
        yield "view"
    if step.in_place:
        yield "in place"
    if step.scratch is not None and step.scratch.bytes:
        yield f"{step.scratch.bytes:,} B scratch"
    if step.row_by_row:
        yield "row by row"
    elif any(layer.fused for layer in layers):
        yield "fused"
    yield from dict.fromkeys(layer.by for layer in layers if layer.by != "crtexport")


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _tiles(report: Report) -> Iterator[FigureTile]:
    totals, layers = report.totals, report.layers
    code = {layer: layer.code or 0 for layer in layers}
    groups: dict[str, list[tuple[str, int]]] = {
        "weights": [(_called(one), one.weights) for one in layers],
        "tables": [(_called(one), one.tables) for one in layers],
        "code": [
            *((_called(one), size) for one, size in code.items()),
            ("entry points", (totals.code or 0) - sum(code.values())),
        ],
        "other": [("names and other data", totals.other)],
    }
    for kind, whole in (("weights", totals.weights), ("tables", totals.tables)):
        groups[kind].append(("all layers", whole - sum(size for _, size in groups[kind])))
    sorted_groups = {
        kind: sorted(((name, size) for name, size in parts if size > 0), key=lambda p: -p[1])
        for kind, parts in groups.items()
    }
    sums = {kind: sum(size for _, size in parts) for kind, parts in sorted_groups.items()}
    kinds = sorted((kind for kind in sums if sums[kind]), key=lambda kind: -sums[kind])
    for kind, box in zip(kinds, treemap([sums[kind] for kind in kinds], _MAP), strict=True):
        parts = sorted_groups[kind]
        for (name, size), tile in zip(
            parts, treemap([size for _, size in parts], box), strict=True
        ):
            yield _tile(kind, name, size, tile)


def _tile(kind: str, name: str, size: int, box: TreemapBox) -> FigureTile:
    amount = f"{size:,} B"
    wanted = [words.fitting(printable(name), box.width)]
    wanted += [amount] if words.fitting(amount, box.width) == amount else []
    room = int(box.height // _LEAST_LABEL)
    labels = [text for text in wanted if text]
    return FigureTile(box, kind, f"{name}: {size:,} bytes of {kind}", tuple(labels[:room]))


def _called(layer: Layer) -> str:
    number = f"{layer.step} " if layer.step >= 0 else ""
    return f"{number}{layer.operator}" if layer.shape else layer.name


def _costs(report: Report) -> list[dict[str, Any]]:
    """Returns the rows of the chart of costs: the costliest layers, and the sum of the others."""
    measured = [layer for layer in report.layers if layer.instructions is not None]
    total = sum(layer.instructions or 0 for layer in measured)
    first = costliest(tuple(measured), _COSTLIEST)
    most = max((layer.instructions or 0 for layer in first), default=0)
    rows = [
        _cost(f"{_called(one)}", one.name, one.instructions or 0, total, most,
              _each(one.instructions, one.macs))
        for one in first
    ]
    rest = total - sum(layer.instructions or 0 for layer in first)
    if len(measured) > len(first):
        rows.append(
            _cost(f"{len(measured) - len(first)} others", "", rest, total, max(most, rest), "")
        )
    return rows


def _cost(
    name: str, title: str, count: int, total: int, most: int, each: str
) -> dict[str, Any]:
    return {
        "name": name, "title": title, "count": count, "share": words.percent(count, total),
        "width": f"{100 * count / (most or 1):.2f}", "each": each,
    }


def _each(instructions: int | None, macs: int | None) -> str:
    return f"{instructions / macs:.2f} per MAC" if instructions and macs else ""


def _peers(report: Report) -> list[dict[str, Any]]:
    """Returns the rows of the comparison: crtexport, then the recorded figures of other tools."""
    if not report.peers:
        return []
    totals = report.totals
    rows = [
        (f"crtexport ({totals.instructions_are})", totals.instructions,
         totals.cycles.mid if totals.cycles else None, totals.flash, totals.ram - totals.stack,
         True),
        *((one.peer, one.instructions, one.cycles, one.flash, one.ram, False)
          for one in report.peers),
    ]
    most = max(row[1] or 0 for row in rows) or 1
    return [
        {"name": name, "count": count, "cycles": cycles, "flash": flash, "ram": ram, "ours": ours,
         "width": f"{100 * (count or 0) / most:.2f}",
         "ratio": "" if ours or not totals.instructions
         else f"{(count or 0) / totals.instructions:.2f}×"}
        for name, count, cycles, flash, ram, ours in rows
    ]


_TITLES = {
    "fused": "Fused", "removed": "Removed operators",
    "pruned": "Channels removed", "offloaded": "Offloaded",
    "refused": "Not offloaded", "float": "Computed in float",
}


def _findings(report: Report) -> list[tuple[str, int, list[Finding]]]:
    groups = [
        (title, [one for one in report.findings if one.kind == kind])
        for kind, title in _TITLES.items()
    ]
    return [(title, len(found), _together(found)) for title, found in groups if found]


def _together(findings: Sequence[Finding]) -> list[Finding]:
    """Returns the findings with those of equal reason merged into one."""
    by_reason: dict[str, list[Finding]] = {}
    for one in findings:
        by_reason.setdefault(one.why, []).append(one)
    rows = []
    for why, same in by_reason.items():
        more = f" and {len(same) - _NAMED} more" if len(same) > _NAMED + 1 else ""
        named = same if not more else same[:_NAMED]
        rows.append(Finding(same[0].kind, ", ".join(one.what for one in named) + more, why))
    return rows

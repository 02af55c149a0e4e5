"""Two reports side by side, and whether the second stays within limits."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from crtexport.firmware.sizes import parse_size
from crtexport.pipeline.summary.records import Layer
from crtexport.reports.figures import Report
from crtexport.support.errors import CrtExportError
from crtexport.support.short import count, line, table

FIGURES = ("flash", "ram", "stack", "instructions", "macs", "code", "weights", "workspace")
"""Figures of a report that can have a limit."""

_SIZED = frozenset(FIGURES) - {"instructions", "macs"}
_LIMIT = re.compile(r"(?P<sign>\+?)(?P<number>[0-9]+(\.[0-9]+)?)(?P<percent>%?)")


class Limit(Struct, frozen=True):
    """The limit of a figure of the second report: ``percent`` or ``more`` above the first report's
    figure, or the absolute number ``most``; one of them is set. ``text`` is how it was written."""

    text: str
    percent: float | None = None
    more: int | None = None
    most: int | None = None

    def above(self, before: int) -> float:
        """Returns the largest figure that is allowed if the first report's is ``before``."""
        if self.percent is not None:
            return before + before * self.percent / 100
        return before + self.more if self.more is not None else self.most or 0


class Change(Struct, frozen=True):
    """A figure of both reports, None in one that doesn't contain it. ``beyond`` is the text of the
    limit that the second figure exceeds, else ""."""

    what: str
    before: int | None
    after: int | None
    beyond: str = ""

    @property
    def more(self) -> int | None:
        """Returns the difference."""
        if self.before is None or self.after is None:
            return None
        return self.after - self.before

    @property
    def percent(self) -> float | None:
        """Returns the difference in percent of the first."""
        return 100 * self.more / self.before if self.before and self.more is not None else None


class LayerChange(Struct, frozen=True):
    """A layer of the first, the second or both reports."""

    name: str
    macs: Change
    instructions: Change
    flash: Change


class Difference(Struct, frozen=True):
    """The comparison of two reports. ``layers`` has only layers that changed; ``notes`` list other
    differences that figures depend on, such as the board or a compiler's version."""

    figures: tuple[Change, ...]
    layers: tuple[LayerChange, ...]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        changed = [change for change in self.figures if change.more]
        return line(
            "Difference", f"{count(len(self.layers), 'changed layer')};",
            ", ".join(f"{change.what} {change.more:+,}" for change in changed),
            "" if self.within else "(beyond limits)",
        )

    def _repr_html_(self) -> str:
        return table("Difference", [
            (change.what, change.before, change.after, change.more, change.beyond or None)
            for change in self.figures
        ], ("", "before", "after", "change", "beyond the limit"))

    @property
    def within(self) -> bool:
        """Returns whether no figure is above its limit."""
        return not any(change.beyond for change in self.figures)


def limit(what: str, text: str) -> Limit:
    """Returns the limit of figure ``what`` that ``text`` describes: relative to the first report
    ("+2%", "+4KiB", "+512") or absolute ("128KiB"). Raises CrtExportError for other texts."""
    plain, sign = text.removeprefix("+"), text.startswith("+")
    match = _LIMIT.fullmatch(text)
    if match and match["percent"] and sign:
        return Limit(text, percent=float(match["number"]))
    try:
        number = int(plain) if plain.isdecimal() else parse_size(plain) if what in _SIZED else None
    except ValueError:
        number = None
    if not isinstance(number, int):
        raise CrtExportError(
            f"{text!r} is no limit", location=f"--max-{what}",
            hint="write +2%, +512 or a number" + (", or sizes as 4KiB" if what in _SIZED else ""),
        )
    return Limit(text, more=number) if sign else Limit(text, most=number)


def compare(before: Report, after: Report, limits: Mapping[str, Limit]) -> Difference:
    """Returns the differences; ``limits`` are by the names in FIGURES. Raises CrtExportError if a
    report lacks a figure that has a limit, or if instructions with a limit were counted for one
    report and estimated for the other."""
    kinds = {before.totals.instructions_are, after.totals.instructions_are}
    if "instructions" in limits and len(kinds) > 1:
        raise CrtExportError(
            f"instructions are {' in one report and '.join(sorted(kinds))} in the other",
            location="--max-instructions", hint="make both reports with --measure, or both without",
        )
    return Difference(
        tuple(_figure(what, before, after, limits.get(what)) for what in FIGURES),
        tuple(_layers(before.layers, after.layers)), tuple(_notes(before, after)),
    )


def _figure(what: str, before: Report, after: Report, allowed: Limit | None) -> Change:
    change = Change(what, _of(before, what), _of(after, what))
    if allowed is None:
        return change
    if change.after is None or (change.before is None and allowed.most is None):
        raise CrtExportError(
            "the reports don't know this figure", location=f"--max-{what}",
            hint="`crtexport report MODEL --measure` finds all of them",
        )
    beyond = change.after > allowed.above(change.before or 0)
    return Change(what, change.before, change.after, allowed.text if beyond else "")


def _of(report: Report, what: str) -> int | None:
    totals = report.totals
    if what == "stack":
        return totals.stack if totals.stack_measured is None else totals.stack_measured
    # A sum without code can't be compared with one that includes it.
    figure = None if what == "flash" and totals.code is None else getattr(totals, what)
    return None if figure is None else int(figure)


def _layers(before: tuple[Layer, ...], after: tuple[Layer, ...]) -> list[LayerChange]:
    """Returns the layers that differ. Layers are matched by their names, those with the same name
    by their order."""
    old, new = _named(before), _named(after)
    changed = []

    def change_of(what: str, a: Layer | None, b: Layer | None) -> Change:
        return Change(what, getattr(a, what, None), getattr(b, what, None))

    for name in dict.fromkeys((*old, *new)):
        pair = old.get(name), new.get(name)
        change = LayerChange(
            name[0], change_of("macs", *pair), change_of("instructions", *pair),
            change_of("flash", *pair),
        )
        if any(one.before != one.after for one in (change.macs, change.instructions, change.flash)):
            changed.append(change)
    return changed


def _named(layers: tuple[Layer, ...]) -> dict[tuple[str, int], Layer]:
    counts: dict[str, int] = {}
    found = {}
    for layer in layers:
        number = counts[layer.name] = counts.get(layer.name, -1) + 1
        found[layer.name, number] = layer
    return found


def _notes(before: Report, after: Report) -> list[str]:
    old, new = before.reproduce.tools, after.reproduce.tools
    pairs = (
        ("model file", before.model.source, after.model.source),
        ("the model's hash", before.model.sha256[:12], after.model.sha256[:12]),
        ("numerics", before.model.numerics, after.model.numerics),
        ("board", before.board.name, after.board.name),
        ("code", before.reproduce.emit, after.reproduce.emit),
        ("optimization", before.reproduce.optimize, after.reproduce.optimize),
        ("instructions", before.totals.instructions_are, after.totals.instructions_are),
        ("crtexport", before.crtexport, after.crtexport),
        *(
            (tool, old.get(tool, "none"), new.get(tool, "none"))
            for tool in sorted({*old, *new} - {"crtexport"})
        ),
    )
    return [f"{what}: {one} → {other}" for what, one, other in pairs if one != other]

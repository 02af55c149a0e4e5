"""``crtexport diff``: two reports as a table, and an exit code for continuous integration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tarfile import is_tarfile
from typing import Any

import click
import msgspec

from crtexport.cli.claims import claim
from crtexport.cli.groups import Verb
from crtexport.cli.options import with_output
from crtexport.cli.output import Output
from crtexport.cli.parameter_types import MODEL_OR_PACKAGE
from crtexport.reports import difference, figures, packages
from crtexport.reports.difference import FIGURES, Change, Difference

Command = Callable[..., Any]

_CALLED = {
    "flash": "the total flash", "ram": "the total RAM", "stack": "the stack",
    "instructions": "the instructions of an inference", "macs": "the multiply-accumulates",
    "code": "the code", "weights": "the weights", "workspace": "the workspace",
}


def _limits(command: Command) -> Command:
    """Adds ``--max-FIGURE`` for every figure."""
    for what in reversed(FIGURES):
        command = click.option(
            f"--max-{what}", what, metavar="LIMIT",
            help=f"The limit for {_CALLED[what]}.",
        )(command)
    return command


@click.command("diff", cls=Verb)
@click.argument("before", metavar="A", type=MODEL_OR_PACKAGE)
@click.argument("after", metavar="B", type=MODEL_OR_PACKAGE)
@_limits
@with_output
def command(
    out: Output, before: Path, after: Path, **limits: str | None
) -> int:
    """Compare the reports A and B. Each is a file of `crtexport report`, or a package.

    Ends with code 1 if a figure of B exceeds its limit. A limit is relative to A, as in +2%,
    +4KiB or +512, or an absolute number.
    """
    claim(out, {}, reads=(before, after))
    allowed = {
        what: difference.limit(what, text) for what, text in limits.items() if text is not None
    }
    found = difference.compare(_read(before), _read(after), allowed)
    _show(out, found, before, after)
    out.result({
        "a": str(before), "b": str(after), "within": found.within,
        "figures": [_data(change) for change in found.figures],
        "layers": msgspec.to_builtins(found.layers), "notes": list(found.notes),
    })
    return 0 if found.within else 1


def _read(path: Path) -> figures.Report:
    return packages.report(path) if path.is_file() and is_tarfile(path) else figures.read(path)


def _data(change: Change) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(change)
    return {**data, "more": change.more, "percent": change.percent}


def _show(out: Output, difference: Difference, before: Path, after: Path) -> None:
    out.table("Total", ("", before.name, after.name, "change", "percent", "limit"), (
        (change.what, _or_dash(change.before), _or_dash(change.after), _more(change),
         "-" if change.percent is None else f"{change.percent:+.2f} %",
         f"above {change.beyond}" if change.beyond else "")
        for change in difference.figures
        if change.before is not None or change.after is not None
    ))
    if difference.layers:
        out.table("Layers that differ", ("layer", "MACs", "instructions", "flash"), (
            (layer.name, _pair(layer.macs), _pair(layer.instructions), _pair(layer.flash))
            for layer in difference.layers
        ))
    for note in difference.notes:
        out.line(note)


def _pair(change: Change) -> str:
    if change.before == change.after:
        return _grouped(change.after)
    return f"{_grouped(change.before)} → {_grouped(change.after)}"


def _grouped(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _more(change: Change) -> str:
    return "-" if change.more is None else f"{change.more:+,}"


def _or_dash(value: int | None) -> int | str:
    return "-" if value is None else value

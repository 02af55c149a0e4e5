"""``crtexport report``: a model's costs on a board, as a page for people and JSON for programs."""

from __future__ import annotations

from pathlib import Path
from tarfile import is_tarfile
from typing import Unpack

import click
from click.core import ParameterSource

from crtexport.cli.claims import claim
from crtexport.cli.groups import Verb
from crtexport.cli.options import (
    DEFAULT_BOARD,
    FILE,
    accelerator_option,
    board_option,
    choices_options,
    emit_option,
    given_option,
    io_option,
    note_board,
    numerics_option,
    optimize_option,
    pool_option,
    timeout_option,
    tuning_option,
    weights_option,
    with_output,
)
from crtexport.cli.output import Output
from crtexport.cli.results import read_arrays
from crtexport.cli.short_report import show_costs, show_memories
from crtexport.firmware.board import user_files
from crtexport.importers.files import data_files
from crtexport.importers.formats import NO_CHOICES
from crtexport.pipeline.driver import load, resolve_board
from crtexport.pipeline.options import ExportChanges, ExportOptions
from crtexport.report import collect, packages
from crtexport.report.figures import Report, to_data
from crtexport.report.measure import Setting
from crtexport.report.page import file as page_file

_NOT_REPRODUCED = {"path", "page", "as_json", "verbose", "quiet", "debug"}


@click.command("report", cls=Verb)
@click.argument("path", metavar="MODEL|PACKAGE", type=FILE)
@board_option
@click.option(
    "-o", "--output", "page", type=FILE, metavar="FILE.html",
    help="Also write the report as a page for people: one file, with pictures.",
)
@emit_option
@optimize_option
@weights_option
@io_option
@click.option(
    "--const-inputs", is_flag=True,
    help="Inputs stay in flash: they take no RAM of the board.",
)
@pool_option
@numerics_option
@accelerator_option
@choices_options
@tuning_option
@click.option(
    "--measure", "measured", is_flag=True,
    help="Build and run the board's firmware: count instructions and stack instead of estimating.",
)
@given_option("With --measure")
@timeout_option("With --measure")
@with_output
@click.pass_context
def command(
    context: click.Context, out: Output, path: Path, board: str | None, page: Path | None,
    measured: bool, given: Path | None, timeout: float, **chosen: Unpack[ExportChanges],
) -> None:
    """Report whether MODEL fits a board, and what each of its layers costs there.

    Instructions are estimated, or with --measure counted in the board's emulator. A PACKAGE is
    reported by what it says of itself: sizes, but no products and instructions.
    """
    if given is not None and not measured:
        raise click.UsageError("--input goes with --measure")
    tuning = chosen.get("tuning")
    package = path.is_file() and is_tarfile(path)
    if package and (board is not None or measured):
        raise click.UsageError("--board and --measure go with a MODEL: a package has its board")
    target = DEFAULT_BOARD if board is None else board
    if measured and resolve_board(target).hosted:
        raise click.UsageError(
            "--measure is for boards that QEMU emulates; `crtexport bench` times models here"
        )
    if page is not None:
        page_file.check(page)
    claims = claim(
        out, {"-o": page}, reads=(path, given, None if tuning is None else Path(tuning))
    )
    with out.steps() as step:
        step(f"measure {path.name}" if measured else f"export {path.name}")
        words = command_words(context, path)
        if package:
            made = packages.report(path, words)
        else:
            graph = load(
                path, numerics=chosen.get("numerics"), accelerators=chosen.get("accelerators"),
                board=target, choices=chosen.get("choices", NO_CHOICES),
            )
            claims.reads(*data_files(graph), *user_files(target))
            setting = Setting(graph, target, ExportOptions(**chosen), read_arrays(given), timeout)
            made = collect.report(setting, words, measured=measured)
        if page is not None:
            step(f"write {page.name}")
            page_file.write(made, page)
    show(out, made)
    if page is not None:
        out.line(f"page: {page}")
    if not package:
        note_board(out, board)
    out.result(to_data(made))


def command_words(context: click.Context, path: Path) -> str:
    """Returns the command that makes the report again; of files only their names."""
    words = ["crtexport", "report", path.name]
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in _NOT_REPRODUCED or (
            context.get_parameter_source(name) is not ParameterSource.COMMANDLINE
        ):
            continue
        words += _option(parameter, context.params[name])
    return " ".join(words)


def _option(parameter: click.Parameter, value: object) -> list[str]:
    option = parameter.opts[-1]
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return [option]
    values = value if isinstance(value, tuple) and parameter.multiple else (value,)
    found = []
    for one in values:
        text = "=".join(map(str, one)) if isinstance(one, tuple) else str(one)
        found += [option, Path(text).name if isinstance(one, Path) else text]
    return found


def show(out: Output, made: Report) -> None:
    """Shows the report in short."""
    code = "objects" if made.reproduce.emit == "llvm" else "C sources"
    fits = {True: "it fits", False: "it doesn't fit", None: "for this computer"}[made.fits]
    out.line(f"{made.model.name} on {made.board.name}, {code}: {fits}")
    out.line()
    show_memories(out, made)
    show_costs(out, made.totals, made.layers)
    warnings = [one for one in made.findings if one.kind == "warning"]
    for one in warnings:
        out.line(f"warning: {one.what}: {one.why}")

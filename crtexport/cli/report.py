"""``crtexport report``: a model's costs on a board, as a page for people and JSON for programs.

Modules that export and measure are imported while LLVM's processes start.
"""

from __future__ import annotations

from pathlib import Path
from tarfile import is_tarfile
from typing import TYPE_CHECKING, Unpack

import click
from click.core import ParameterSource

from crtexport.backends.llvm.pool import POOL
from crtexport.cli.claims import claim
from crtexport.cli.groups import Verb
from crtexport.cli.options import (
    DEFAULT_BOARD,
    accelerator_option,
    board_option,
    choices_options,
    code_options,
    const_inputs_option,
    input_option,
    io_option,
    note_board,
    numerics_option,
    pool_option,
    system_lib_option,
    timeout_option,
    tuning_option,
    with_output,
)
from crtexport.cli.output import Output
from crtexport.cli.parameter_types import MODEL_OR_PACKAGE, OUTPUT_FILE

if TYPE_CHECKING:
    from crtexport.pipeline.options import ExportChanges
    from crtexport.reports.figures import Report
    from crtexport.support.outputs.claims import Claims

_NOT_REPRODUCED = {"path", "page", "as_json", "verbose", "quiet", "debug"}


@click.command("report", cls=Verb)
@click.argument("path", metavar="MODEL|PACKAGE", type=MODEL_OR_PACKAGE)
@board_option
@click.option(
    "-o", "--output", "page", type=OUTPUT_FILE, metavar="FILE.html|json",
    help="Also write the report to a file: as a page with pictures, or as JSON.",
)
@code_options
@io_option
@const_inputs_option
@pool_option
@numerics_option
@accelerator_option
@system_lib_option
@choices_options
@tuning_option
@click.option(
    "--measure", "measured", is_flag=True,
    help="Build and run firmware, to count instructions and measure the stack instead of "
    "estimating.",
)
@input_option("With --measure")
@timeout_option("With --measure")
@with_output
@click.pass_context
def command(
    context: click.Context, out: Output, path: Path, board: str | None, page: Path | None,
    measured: bool, input_file: Path | None, timeout: float, **chosen: Unpack[ExportChanges],
) -> None:
    """Report whether MODEL fits a board, and what each layer costs.

    Instructions are estimated, or with --measure counted in the board's emulator. The report of a
    PACKAGE is the same as that of its model, and takes no export.
    """
    if input_file is not None and not measured:
        raise click.UsageError("--input goes with --measure")
    package = path.is_file() and is_tarfile(path)
    if package and (board is not None or measured):
        raise click.UsageError("--board and --measure go with a MODEL: a package has its board")
    if not package and chosen.get("emit") != "c":
        POOL.start()
    from crtexport.reports import figures, packages  # noqa: PLC0415
    from crtexport.reports.page import file as page_file  # noqa: PLC0415

    if page is not None:
        page_file.check(page)
    tuning = chosen.get("tuning")
    claims = claim(
        out, {"-o": page}, reads=(path, input_file, None if tuning is None else Path(tuning))
    )
    words = command_words(context, path)
    with out.steps() as step:
        step(f"{'measure' if measured else 'read' if package else 'export'} {path.name}")
        made = packages.report(path, words) if package else _of_model(
            path, DEFAULT_BOARD if board is None else board, input_file, timeout, claims, words,
            chosen, measured=measured,
        )
        if page is not None:
            step(f"write {page.name}")
            page_file.write(made, page)
    show(out, made)
    if page is not None:
        out.line(f"report: {page}")
    if not package:
        note_board(out, board)
    out.result(figures.to_data(made))


def _of_model(
    path: Path, board: str, input_file: Path | None, timeout: float, claims: Claims, words: str,
    chosen: ExportChanges, *, measured: bool,
) -> Report:
    from crtexport.cli.results import read_arrays  # noqa: PLC0415
    from crtexport.firmware.board import user_files  # noqa: PLC0415
    from crtexport.importers.files import data_files  # noqa: PLC0415
    from crtexport.importers.formats import NO_CHOICES  # noqa: PLC0415
    from crtexport.pipeline.driver import load, resolve_board  # noqa: PLC0415
    from crtexport.pipeline.options import ExportOptions  # noqa: PLC0415
    from crtexport.reports import collect  # noqa: PLC0415
    from crtexport.reports.measure import MeasureSetting  # noqa: PLC0415

    if measured and resolve_board(board).hosted:
        raise click.UsageError(
            "--measure is for boards that QEMU emulates; `crtexport bench` times models here"
        )
    graph = load(
        path, numerics=chosen.get("numerics"), accelerators=chosen.get("accelerators"),
        board=board, choices=chosen.get("choices", NO_CHOICES),
    )
    claims.reads(*data_files(graph), *user_files(board))
    setting = MeasureSetting(
        graph, board, ExportOptions(**chosen), read_arrays(input_file), timeout
    )
    return collect.report(setting, words, measured=measured)


def command_words(context: click.Context, path: Path) -> str:
    """Returns the command line that makes the same report, with files' names without folders."""
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
        is_path = isinstance(one, Path) or (parameter.name == "board" and "/" in text)
        found += [option, Path(text).name if is_path else text]
    return found


def show(out: Output, report: Report) -> None:
    """Prints the short form of the report."""
    from crtexport.cli.short_report import show_costs, show_memories  # noqa: PLC0415

    code = "objects" if report.reproduce.emit == "llvm" else "C sources"
    fits = {True: "it fits", False: "it doesn't fit", None: "for this computer"}[report.fits]
    out.line(f"{report.model.name} on {report.board.name}, {code}: {fits}")
    out.line()
    show_memories(out, report)
    show_costs(out, report.totals, report.layers)
    warnings = [one for one in report.findings if one.kind == "warning"]
    for one in warnings:
        out.line(f"warning: {one.what}: {one.why}")

"""``crtexport plan``: the plans that a model can have on a board, RAM against instructions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click
import msgspec

from crtexport.cli.claims import claim
from crtexport.cli.groups import Verb
from crtexport.cli.options import (
    DEFAULT_BOARD,
    accelerator_option,
    board_option,
    choices_options,
    const_inputs_option,
    io_option,
    model_argument,
    note_board,
    numerics_option,
    pool_option,
    weights_option,
    with_output,
)
from crtexport.cli.output import Output
from crtexport.cli.parameter_types import OUTPUT_FILE

if TYPE_CHECKING:
    from crtexport.pipeline.options import ExportChanges
    from crtexport.reports.plans import PlanPoint, Plans


@click.command("plan", cls=Verb)
@model_argument
@board_option
@click.option(
    "-o", "--output", "picture", type=OUTPUT_FILE, metavar="FILE.svg|png",
    help="Also draw the plans into this file.",
)
@weights_option
@io_option
@const_inputs_option
@pool_option
@numerics_option
@accelerator_option
@choices_options
@with_output
def command(
    out: Output, model: Path, board: str | None, picture: Path | None,
    **chosen: Unpack[ExportChanges],
) -> None:
    """Compare the plans that MODEL can have on a board: RAM against instructions and code.

    Layers that run row by row take less memory, and some more instructions. Each plan has the
    option that `crtexport export` wants for it. Instructions and code are estimated; `crtexport
    bench` counts them.
    """
    from crtexport.firmware.board import user_files  # noqa: PLC0415
    from crtexport.importers.files import data_files  # noqa: PLC0415
    from crtexport.importers.formats import NO_CHOICES  # noqa: PLC0415
    from crtexport.pipeline.driver import load, resolve_board  # noqa: PLC0415
    from crtexport.pipeline.options import ExportOptions  # noqa: PLC0415
    from crtexport.reports.plans import plans_of  # noqa: PLC0415

    if picture is not None:
        from crtexport.reports import chart  # noqa: PLC0415

        chart.check(picture)
    claims = claim(out, {"-o": picture}, reads=(model,))
    target = resolve_board(DEFAULT_BOARD if board is None else board)
    with out.steps() as step:
        step(f"load {model.name}")
        graph = load(
            model, numerics=chosen.get("numerics"), accelerators=chosen.get("accelerators"),
            board=target, choices=chosen.get("choices", NO_CHOICES),
        )
        claims.reads(*data_files(graph), *user_files(DEFAULT_BOARD if board is None else board))
        found = plans_of(graph, target, ExportOptions(**chosen), step)
        if picture is not None:
            chart.draw_plans(found, picture)
    _show(out, found)
    if picture is not None:
        out.line(f"picture: {picture}")
    note_board(out, board)
    out.result(_data(found))


def _show(out: Output, plans: Plans) -> None:
    points = [*plans.points, *([plans.fed] if plans.fed is not None else [])]
    out.table(
        f"Plans of {plans.model} on {plans.board}, instructions and code as estimated",
        ("workspace", "RAM in all", "instructions", "", "code", "by rows", "fits", "options"),
        (_row(plans, point) for point in points),
    )
    chosen = plans.chosen
    if chosen is None and plans.fed is not None and plans.fed.fits:
        out.line("none of them fits the board but that with --feed")
    elif chosen is None:
        out.line("none of them fits the board")
    elif plans.usual.fits is False:
        out.line(
            "the usual plan doesn't fit the board: an export without options has "
            f"layers run row by row, as {' '.join(chosen.options)}"
        )
    if plans.fed is not None:
        out.line("--feed: the input is given row by row, and takes no RAM")


def _row(plans: Plans, point: PlanPoint) -> tuple[str, ...]:
    from crtexport.reports.plans import percent_of  # noqa: PLC0415

    usual = plans.usual.instructions
    worse = "" if point.best or point is plans.fed else " (others are better)"
    known = point.instructions is not None and usual is not None
    return (
        f"{point.workspace:,}", f"{point.ram:,}",
        f"{point.instructions:,}" if point.instructions is not None else "-",
        f"{percent_of(point.instructions or 0, usual or 1):+.1f} %" if known else "",
        f"{point.code:,}", f"{point.by_rows}",
        {True: "yes", False: "no", None: "-"}[point.fits],
        " ".join(point.options) + worse,
    )


def _data(plans: Plans) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(plans)
    chosen = plans.chosen
    return {**data, "chosen": None if chosen is None else msgspec.to_builtins(chosen)}

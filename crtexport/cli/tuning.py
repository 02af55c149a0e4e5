"""``--tuning`` and ``--tune``: measurements select the variants of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins
from msgspec.structs import replace

from crtexport.cli.options import Command, tuning_option
from crtexport.cli.output import Output, Steps
from crtexport.support.outputs.claims import Claims

if TYPE_CHECKING:
    from crtexport.ir.graph import Graph
    from crtexport.pipeline.options import ExportOptions
    from crtexport.reports.measure import MeasureSetting
    from crtexport.reports.tune import Tuned


def tuning_options(command: Command) -> Command:
    """``--tuning`` and ``--tune``; the command gets ``tuning`` and ``tune_it``."""
    command = click.option(
        "--tune", "tune_it", is_flag=True,
        help=(
            "First measure the candidates for each kernel on the board, and write the results to "
            "the file of --tuning, by default MODEL.tune.json beside the model."
        ),
    )(command)
    return tuning_option(command)


def cache_for(models: Sequence[Path], tuning: Path | None) -> Path:
    """Returns the path of the file with measurements of models: ``tuning``, or one beside the
    model. Raises UsageError for several models without ``tuning``."""
    if tuning is not None:
        return tuning
    if len(models) > 1:
        raise click.UsageError("with several models, --tune needs the name of a file: --tuning")
    return models[0].with_name(f"{models[0].name}.tune.json")


def tune_first(
    models: Sequence[Path], graphs: Sequence[Graph], board: str, options: ExportOptions,
    step: Steps,
) -> tuple[ExportOptions, list[Tuned]]:
    """Tunes models, loaded as ``graphs``, before they are exported for ``board`` with ``options``.
    Returns the options with the file of measurements, and the result of tuning each model."""
    from crtexport.firmware.board import user_files  # noqa: PLC0415
    from crtexport.importers.files import data_files  # noqa: PLC0415
    from crtexport.pipeline.options import ExportOptions  # noqa: PLC0415
    from crtexport.reports.measure import MeasureSetting  # noqa: PLC0415

    cache = cache_for(models, None if options.tuning is None else Path(options.tuning))
    code = ExportOptions(
        emit=options.emit, optimize=options.optimize, llvm_options=options.llvm_options,
        accelerators=options.accelerators, weights=options.weights,
    )
    claims = Claims()
    claims.file("--tuning", cache)
    claims.reads(*models, *user_files(board))
    claims.reads(*(file for graph in graphs for file in data_files(graph)))
    tuned = tune_all([MeasureSetting(graph, board, code) for graph in graphs], cache, step)
    return replace(options, tuning=cache), tuned


def tune_all(
    settings: Sequence[MeasureSetting], cache: Path, step: Steps
) -> list[Tuned]:
    """Tunes the models of ``settings`` one after the other, and returns the results."""
    from crtexport.reports.tune import tune  # noqa: PLC0415

    return [
        tune(one, cache, progress=lambda text: step(f"tune: {text}"),
             counted=step.counter("kernels"))
        for one in settings
    ]


def show_tuned(out: Output, results: Sequence[Tuned]) -> dict[str, Any]:
    """Shows the result of tuning, layer by layer; returns it for ``--json``."""
    for result in results:
        time = "instructions" if result.before.cycles is None else "cycles"
        out.table(
            f"Tuned for {result.configuration}",
            ("layer", "usual variant", time, "code", "chosen variant", time, "code"),
            [
                *(
                    (layer.name, layer.usual, layer.before.time, layer.before.code,
                     layer.chosen, layer.after.time, layer.after.code)
                    for layer in result.layers
                ),
                ("total", "", result.before.time, result.before.code, "",
                 result.after.time, result.after.code),
            ],
        )
        out.line(f"{result.path}: {result.measured} kernels measured in {result.rounds} rounds")
    return {"tuned": [_data(result) for result in results]} if results else {}


def _data(result: Tuned) -> dict[str, Any]:
    return {
        "file": str(result.path), "configuration": to_builtins(result.configuration),
        "measured": result.measured, "rounds": result.rounds,
        "before": to_builtins(result.before), "after": to_builtins(result.after),
        "layers": [to_builtins(layer) for layer in result.layers],
    }

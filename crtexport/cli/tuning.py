"""``--tuning`` and ``--tune``: what was measured of kernels decides about their forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from crtexport.cli.options import FILE, Command
from crtexport.cli.output import Output
from crtexport.outputs.claims import Claims

if TYPE_CHECKING:
    from crtexport.ir.graph import Graph
    from crtexport.report.measure import Setting
    from crtexport.report.tune import Tuned


def tuning_options(command: Command) -> Command:
    """Both; the command gets ``tuning`` and ``tune_it``."""
    command = click.option(
        "--tune", "tune_it", is_flag=True,
        help="First run the board's firmware with each form that kernels can have, and keep what"
        " that takes in the file of --tuning, by default MODEL.tune.json beside the model.",
    )(command)
    return click.option(
        "--tuning", type=FILE, metavar="FILE.json",
        help="Let what was measured of kernels decide about their forms.",
    )(command)


def cache_for(models: Sequence[Path], tuning: Path | None) -> Path:
    """Where measurements of models are kept."""
    if tuning is not None:
        return tuning
    if len(models) > 1:
        raise click.UsageError("with several models, --tune needs the name of a file: --tuning")
    return models[0].with_name(f"{models[0].name}.tune.json")


def tune_first(
    models: Sequence[Path], graphs: Sequence[Graph], facts: tuple[Any, ...], tuning: Path | None,
    step: Callable[[str], None],
) -> tuple[Path, list[Tuned]]:
    """Tunes for models, which are ``graphs``, before they are exported; ``facts``: a Setting's from
    the board on."""
    from crtexport.firmware.board import user_files  # noqa: PLC0415
    from crtexport.importers.files import data_files  # noqa: PLC0415
    from crtexport.report.measure import Setting  # noqa: PLC0415

    cache = cache_for(models, tuning)
    claims = Claims()
    claims.file("--tuning", cache)
    claims.reads(*models, *user_files(facts[0]))
    claims.reads(*(file for graph in graphs for file in data_files(graph)))
    return cache, tune_all([Setting(graph, *facts) for graph in graphs], cache, step)


def tune_all(
    settings: Sequence[Setting], cache: Path, step: Callable[[str], None]
) -> list[Tuned]:
    """Tunes for all of them, one after the other, telling each step."""
    from crtexport.report.tune import tune  # noqa: PLC0415

    return [tune(one, cache, progress=lambda text: step(f"tune: {text}")) for one in settings]


def show_tuned(out: Output, results: Sequence[Tuned]) -> dict[str, Any]:
    """Shows what tuning found, layer by layer; returns it for ``--json``."""
    for result in results:
        out.table(
            f"Tuned for {result.configuration}",
            ("layer", "usual form", "instructions", "code", "chosen form", "instructions", "code"),
            [
                *(
                    (layer.name, layer.usual, layer.before.instructions, layer.before.code,
                     layer.chosen, layer.after.instructions, layer.after.code)
                    for layer in result.layers
                ),
                ("together", "", result.before.instructions, result.before.code, "",
                 result.after.instructions, result.after.code),
            ],
        )
        out.line(f"{result.path}: {result.measured} kernels measured in {result.rounds} rounds")
    return {"tuned": [_data(result) for result in results]} if results else {}


def _data(result: Tuned) -> dict[str, Any]:
    return {
        "file": str(result.path), "configuration": result.configuration.model_dump(),
        "measured": result.measured, "rounds": result.rounds,
        "before": to_builtins(result.before), "after": to_builtins(result.after),
        "layers": [to_builtins(layer) for layer in result.layers],
    }

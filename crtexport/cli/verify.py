"""``crtexport verify``: exported code against the reference runtime."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Literal

import click

from crtexport import compare
from crtexport.cli.options import board_option, model_argument, rounding_option, with_output
from crtexport.cli.output import Output


@click.command("verify", short_help="Compare a model with the reference runtime.")
@model_argument
@board_option(None)
@click.option(
    "--emit", type=click.Choice(["llvm", "c"]), help="Objects or C sources; by default the board's."
)
@click.option(
    "--samples", type=click.IntRange(min=1), default=10, show_default=True,
    help="How many random inputs to compare on.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random inputs.")
@rounding_option
@with_output
def command(
    out: Output, model: Path, board: str | None, emit: Literal["c", "llvm"] | None, samples: int,
    seed: int, rounding: str,
) -> int:
    """Compare the exported MODEL with the reference runtime on random inputs.

    It runs on this computer, or with --board in that board's emulator. Integers must agree bit for
    bit, floats within a small part of their full scale.
    """
    with out.steps() as step:
        step("export, run, compare")
        result = compare.verify(
            model, board=board, samples=samples, seed=seed, rounding=rounding, emit=emit
        )
    out.result(
        {
            "model": str(model), "agrees": result.agrees, "reference": result.reference,
            "ran_on": result.ran_on, "samples": result.samples, "rewritten": result.rewritten,
            "outputs": [
                {
                    **dataclasses.asdict(output), "agrees": output.agrees,
                    "largest_difference": _finite(output.largest_difference),
                }
                for output in result.outputs
            ],
        }
    )
    out.line(f"reference: {result.reference}")
    if result.rewritten:
        out.line(f"given:     {result.rewritten}")
    out.line(f"compared:  {model} on {result.ran_on}, {result.samples} samples, seed {seed}")
    out.line()
    out.table(
        "Outputs",
        ("output", "type", "largest difference", "allowed", "differing samples", "verdict"),
        (
            (
                output.name, output.dtype, f"{output.largest_difference:.6g}",
                f"{output.tolerance:.6g}", output.differing_samples,
                "agrees" if output.agrees else "DIFFERS",
            )
            for output in result.outputs
        ),
    )
    return 0 if result.agrees else 1


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)

"""``crtexport verify``: compares exported code with the reference runtime."""

from __future__ import annotations

import math
from pathlib import Path

import click
from msgspec.structs import asdict

from crtexport import verification
from crtexport.cli.groups import Verb
from crtexport.cli.options import (
    accelerator_option,
    board_option,
    choices_options,
    emit_option,
    io_option,
    model_argument,
    note_board,
    numerics_option,
    optimize_option,
    timeout_option,
    tuning_option,
    weights_option,
    with_output,
)
from crtexport.cli.output import Output
from crtexport.pipeline.driver import Emit, InputChoices, Io, Optimize, Weights

_LONGEST_NAME = 40
_SHOWN = 6


@click.command("verify", cls=Verb)
@model_argument
@board_option
@emit_option
@optimize_option
@click.option(
    "--samples", type=click.IntRange(min=1), default=10, show_default=True,
    help="Number of random inputs.",
)
@click.option(
    "--per-layer", is_flag=True,
    help="Compare every operator's results; show the first that differs, with -v all.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random inputs.")
@click.option(
    "--install-reference", "install", is_flag=True,
    help="First make an environment with the reference runtime in the user's cache, where there is"
    " none; packages come from pip's index.",
)
@io_option
@numerics_option
@weights_option
@accelerator_option
@tuning_option
@timeout_option("With --board")
@choices_options
@with_output
def command(
    out: Output, model: Path, board: str | None, emit: Emit | None, samples: int, seed: int,
    io: Io, numerics: str, accelerators: tuple[str, ...] | None, per_layer: bool, install: bool,
    choices: InputChoices, weights: Weights, optimize: Optimize | None, tuning: Path | None,
    timeout: float,
) -> int:
    """Compare the exported MODEL with the reference runtime on random inputs.

    It runs on this computer, or with --board in that board's emulator. Integers must agree bit for
    bit, floats within a small part of their full scale. With --per-layer the results of all
    operators are compared, and the first that differs is shown.
    """
    if per_layer and io != "caller":
        raise click.UsageError("--per-layer compares results in buffers of the caller's")
    with out.steps() as step:
        if install:
            step("install the reference runtime")
            verification.install_reference(model, numerics)
        step("export, run, compare")
        if per_layer:
            layers = verification.verify_layers(
                model, board=board, samples=samples, seed=seed, numerics=numerics, emit=emit,
                accelerators=accelerators, choices=choices, weights=weights, optimize=optimize,
                tuning=tuning, timeout=timeout,
            )
            note_board(out, board)
            return _show_layers(out, model, layers, seed)
        result = verification.verify(
            model, board=board, samples=samples, seed=seed, numerics=numerics, emit=emit, io=io,
            accelerators=accelerators, choices=choices, weights=weights, optimize=optimize,
            tuning=tuning, timeout=timeout,
        )
    _show_outputs(out, model, result, seed)
    note_board(out, board)
    return 0 if result.agrees else 1


def _show_outputs(out: Output, model: Path, result: verification.VerifyResult, seed: int) -> None:
    out.result(
        {
            **_facts(model, result),
            "outputs": [_output_facts(output) for output in result.outputs],
        }
    )
    _introduce(out, model, result, seed)
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


def _show_layers(out: Output, model: Path, result: verification.LayersResult, seed: int) -> int:
    first = result.first_difference
    out.result(
        {
            **_facts(model, result),
            "first_difference": None if first is None else _layer_facts(first),
            "layers": [_layer_facts(layer) for layer in result.layers],
            "unseen": list(result.unseen),
        }
    )
    _introduce(out, model, result, seed)
    if out.verbosity > 0:
        out.table(
            "Operators",
            ("operator", "output", "type", "largest difference", "allowed", "verdict", "kernel"),
            (
                (
                    layer.operator, _shortened(layer.output.name),
                    f"{layer.output.dtype}{list(layer.shape)}",
                    f"{layer.output.largest_difference:.6g}", f"{layer.output.tolerance:.6g}",
                    "agrees" if layer.agrees else "DIFFERS",
                    "own" if layer.kept else "fused",
                )
                for layer in result.layers
            ),
        )
    if result.unseen:
        names = result.unseen if out.verbosity > 0 else result.unseen[:_SHOWN]
        more = len(result.unseen) - len(names)
        out.line(
            f"not compared: {', '.join(names)}{f' and {more} more' if more else ''}, whose results"
            " the reference doesn't keep"
        )
    if first is None:
        out.line(f"all {len(result.layers)} results of operators agree")
        return 0
    _show_difference(out, first)
    return 1


def _shortened(name: str) -> str:
    """Returns the last part of a name: converters join the names of all operators that they fused.
    """
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME - 1]}…"


def _show_difference(out: Output, layer: verification.LayerComparison) -> None:
    out.line(f"the first that differs is {layer.operator}")
    output, first = layer.output, layer.first
    out.line(f"  output:    {output.name!r}, {output.dtype}{list(layer.shape)}")
    if first is not None:
        out.line(f"  element:   {list(first.position)} of sample {first.sample}")
        out.line(f"  exported:  {first.exported:.9g}")
        out.line(f"  reference: {first.reference:.9g}")
    out.line(
        f"  largest:   {output.largest_difference:.6g}, allowed {output.tolerance:.6g}, in"
        f" {output.differing_samples} samples"
    )


def _introduce(
    out: Output, model: Path, result: verification.VerifyResult | verification.LayersResult,
    seed: int,
) -> None:
    out.line(f"reference: {result.reference}")
    if result.rewritten:
        out.line(f"given:     {result.rewritten}")
    out.line(f"compared:  {model} on {result.ran_on}, {result.samples} samples, seed {seed}")
    out.line()


def _facts(
    model: Path, result: verification.VerifyResult | verification.LayersResult
) -> dict[str, object]:
    return {
        "model": str(model), "agrees": result.agrees, "reference": result.reference,
        "ran_on": result.ran_on, "samples": result.samples, "rewritten": result.rewritten,
    }


def _output_facts(output: verification.OutputComparison) -> dict[str, object]:
    return {
        **asdict(output), "agrees": output.agrees,
        "largest_difference": _finite(output.largest_difference),
    }


def _layer_facts(layer: verification.LayerComparison) -> dict[str, object]:
    first = layer.first
    return {
        "operator": layer.operator, "output": _output_facts(layer.output),
        "shape": list(layer.shape), "kept": layer.kept,
        "first": None if first is None else {
            "sample": first.sample, "position": list(first.position),
            "exported": _finite(first.exported), "reference": _finite(first.reference),
        },
    }


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)

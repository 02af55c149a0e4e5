"""``crtexport quantize``: a float network into one of integers."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

import click
import msgspec

from crtexport.cli.claims import claim
from crtexport.cli.groups import Verb
from crtexport.cli.options import choices_options, complete_boards, model_argument, with_output
from crtexport.cli.output import Output
from crtexport.cli.parameter_types import OUTPUT_FILE, Words
from crtexport.firmware.board import user_files
from crtexport.importers.formats import InputChoices
from crtexport.quantization import quantize as library
from crtexport.quantization.cost import BoardCost
from crtexport.simulation.runtimes import install as install_library


@click.command("quantize", cls=Verb)
@model_argument
@click.option(
    "--data", required=True, metavar="FILE.npz|FOLDER|module:name",
    help="Calibration data: an .npz with arrays by input, whose first axis are the samples; a "
    "folder with a .npy for each sample; or a Python function that yields batches, which is run.",
)
@click.option(
    "-o", "--output", type=OUTPUT_FILE, required=True, metavar="FILE", help="The file to write.",
)
@click.option(
    "--format", "form", type=Words(["qdq", "qoperator"]), default="qdq", show_default=True,
    help="Quantization as nodes between float operators, or quantized operators.",
)
@click.option(
    "--activations", type=Words(["uint8", "int8", "int16"]),
    help="Integers between layers; weights are int8 with a scale per channel.  [default: uint8;"
    " in .tflite files int8]",
)
@click.option(
    "--calibration", type=Words(["minmax", "entropy", "percentile"]), default="minmax",
    show_default=True, help="How ranges come from the data: all of it, or without rare values.",
)
@click.option(
    "--keep", metavar="LAYER", multiple=True,
    help="Leave this layer, by its name in the report, and those that read its result in float;"
    " may be repeated.",
)
@click.option(
    "--keep16", metavar="LAYER", multiple=True,
    help="Give the result of this layer 16 bits; may be repeated.",
)
@click.option(
    "--corrections/--no-corrections", default=True, show_default=True,
    help="Equalize channels between layers, and correct biases, where the outputs gain by it.",
)
@click.option(
    "--samples", type=click.IntRange(min=1), default=1000, show_default=True,
    help="How many samples are used at most.",
)
@click.option(
    "--board", metavar="NAME|FILE", shell_complete=complete_boards,
    help="Also compare what both networks cost on this board.",
)
@click.option(
    "--install-reference", "install", is_flag=True,
    help="First make an environment with the library that quantizes in the user's cache, where"
    " there is none; packages come from pip's index.",
)
@choices_options
@with_output
def command(
    out: Output, model: Path, data: str, output: Path, form: library.Form,
    activations: library.Activations | None, calibration: library.Calibration,
    keep: tuple[str, ...], keep16: tuple[str, ...], corrections: bool, samples: int,
    board: str | None, install: bool, choices: InputChoices,
) -> None:
    """Quantize the float network MODEL (.onnx or .tflite) after training.

    Ranges are calibrated on --data, which should be like what the network will see. The report has
    the error of each layer against the float network as a ratio of signal to noise (SQNR), the
    worst layers first, and which layer would gain most by staying float (--keep).
    """
    files = () if board is None else user_files(board)
    claims = claim(out, {"-o": output}, reads=(model, *files))
    with out.steps() as step:
        if install:
            step("install what quantizes")
            install_library(library.quantizer_of(model))
        step(f"quantize {model}")
        result = library.quantize(
            model, data, output, format=form, activations=activations, calibration=calibration,
            keep=keep, keep16=keep16, corrections=corrections, samples=samples, board=board,
            choices=choices, claims=claims,
        )
    out.result(msgspec.to_builtins(result, enc_hook=str))
    _show(out, result)


def _show(out: Output, result: library.QuantizeResult) -> None:
    columns = ("SQNR in dB", "worst channel", "its SQNR")
    out.table("Layers, the worst first", ("layer", "operator", "type", *columns), (
        (error.layer, error.operator, error.type, *_ratios(error)) for error in result.layers
    ))
    out.table("Outputs", ("output", *columns), (
        (error.output, *_ratios(error)) for error in result.outputs
    ))
    if result.cost is not None:
        _show_cost(out, result.cost)
    for tried in result.corrections:
        out.line(
            f"{tried.name}: {'used' if tried.used else 'not used'}, the outputs have"
            f" {tried.after:.1f} dB with it and {tried.before:.1f} dB without"
        )
    if result.hint is not None:
        hint = result.hint
        option = "--keep16" if hint.bits == 16 else "--keep"
        what = f"{option} {shlex.quote(hint.layer)}" if hint.layer else "--activations int16"
        out.line(f"hint: {what} takes the outputs from {hint.before:.1f} to {hint.after:.1f} dB")
    out.line(f"{result.path}: by {result.library}, calibrated on {result.samples} samples")


def _ratios(error: library.Ratio) -> tuple[str, str, str]:
    channel = "-" if error.channel is None else str(error.channel)
    return _decibels(error.sqnr), channel, _decibels(error.channel_sqnr)


def _decibels(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _show_cost(out: Output, cost: BoardCost) -> None:
    both = (cost.before, cost.after)
    rows: Iterable[tuple[str, str]] = (
        ("bytes of workspace", "workspace"), ("bytes of inputs and outputs", "buffers"),
        ("bytes of constants", "constants"), ("bytes of flash, whole program", "flash"),
        ("instructions of an inference", "instructions"),
    )
    out.table(f"Cost on {cost.board}", ("what", "float", "quantized"), (
        (what, *(_or_dash(None if one is None else getattr(one, name)) for one in both))
        for what, name in rows
    ))
    if cost.problem:
        out.notes([f"not everything could be measured: {cost.problem}"])


def _or_dash(value: int | None) -> int | str:
    return "-" if value is None else value

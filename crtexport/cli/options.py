"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from crtexport.cli.output import Output
from crtexport.cli.parameter_types import (
    FILE,
    MODEL_FILE,
    OUTPUT_FILE,
    PACKAGE_FILE,
    BytesType,
    NumericsType,
    PoolType,
    SecondsType,
    Words,
)
from crtexport.firmware.waiting import DEFAULT_TIMEOUT
from crtexport.support.errors import CrtExportError
from crtexport.support.levels import LEVELS

Command = Callable[..., Any]


class Settings:
    """Options that :func:`crtexport.cli.main.main` needs to print errors: ``--json``, ``--debug``.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.debug = False
        self.as_json = as_json


def _set_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.ensure_object(Settings).debug |= value


def with_output(command: Command) -> Command:
    """Adds ``-v``, ``-q``, ``--json`` and ``--debug``; the command gets an Output first."""

    @click.option("-v", "--verbose", is_flag=True, help="Print every step.")
    @click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
    @click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON object and nothing else."
    )
    @click.option(
        "--debug", is_flag=True, expose_value=False, callback=_set_debug,
        help="Print a traceback with an error.",
    )
    @functools.wraps(command)
    def wrapped(*args: Any, verbose: bool, quiet: bool, as_json: bool, **kwargs: Any) -> Any:
        if verbose and quiet:
            raise click.UsageError("-v and -q exclude each other")
        return command(Output(as_json=as_json, verbosity=verbose - quiet), *args, **kwargs)

    return wrapped


def model_argument(command: Command) -> Command:
    """The argument MODEL."""
    return click.argument("model", type=MODEL_FILE)(command)


def models_argument(command: Command) -> Command:
    """The arguments MODEL, one or more."""
    return click.argument(
        "models", type=MODEL_FILE, metavar="MODEL...", nargs=-1, required=True
    )(command)


def outside_option(command: Command) -> Command:
    """``--allow-outside``"""
    return click.option(
        "--allow-outside", "outside", is_flag=True,
        help="Also read data files of a model.json or ONNX file outside of its folder. Only for "
        "models that you trust.",
    )(command)


def choices_options(command: Command) -> Command:
    """``--dim``, ``--input-shape``, ``--bind`` and ``--input-layout``; the command gets
    ``choices``."""

    @click.option(
        "--dim", "dims", metavar="NAME=SIZE", multiple=True,
        help="The size of a dimension with a name; may be repeated.",
    )
    @click.option(
        "--input-shape", "shapes", metavar="INPUT=N,N,...", multiple=True,
        help="The shape of an input that is open in the file; may be repeated.",
    )
    @click.option(
        "--bind", "values", metavar="INPUT=FILE.npy", multiple=True,
        help="Replace an input by a constant value; may be repeated.",
    )
    @click.option(
        "--input-layout", "layout", type=Words(["nchw", "nhwc"]), default="nchw",
        show_default=True,
        help="Whether your images have their channels first, as in the file, or last, which "
        "saves a transposition.",
    )
    @functools.wraps(command)
    def wrapped(
        *args: Any, dims: tuple[str, ...], shapes: tuple[str, ...], values: tuple[str, ...],
        layout: Any, **kwargs: Any,
    ) -> Any:
        from crtexport.importers.formats import InputChoices  # noqa: PLC0415

        choices = InputChoices(
            {name: _size("--dim", size) for name, size in _pairs("--dim", dims)},
            {
                name: [_size("--input-shape", size) for size in sizes.split(",")]
                for name, sizes in _pairs("--input-shape", shapes)
            },
            {name: Path(file) for name, file in _pairs("--bind", values)},
            layout,
        )
        return command(*args, choices=choices, **kwargs)

    return wrapped


def _pairs(option: str, texts: tuple[str, ...]) -> list[tuple[str, str]]:
    """Returns the two sides of each NAME=VALUE. A name may have "=" itself, a value has none."""
    found = [text.rpartition("=") for text in texts]
    for text, (name, sign, value) in zip(texts, found, strict=True):
        if not (name and sign and value):
            raise click.UsageError(f"{option} takes NAME=VALUE, not {text!r}")
    names = [name for name, _, _ in found]
    if len(set(names)) < len(names):
        raise click.UsageError(f"{option} names {max(names, key=names.count)!r} twice")
    return [(name, value) for name, _, value in found]


def _size(option: str, text: str) -> int:
    if not (text.strip().isdecimal() and len(text) < 16):
        raise click.UsageError(f"{option}: {text!r} is no size")
    return int(text)


def package_argument(command: Command) -> Command:
    """The argument PACKAGE."""
    return click.argument("package", type=PACKAGE_FILE)(command)


def chosen_option(command: Command) -> Command:
    """``--model``"""
    return click.option(
        "--model", "chosen", metavar="NAME",
        help="Run only this model of a package; by default, all run alternately.",
    )(command)


def complete_boards(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Returns completions for shells: boards whose names begin with ``incomplete``, or files if it
    is the beginning of a path."""
    return _completed(incomplete, families=False)


def complete_families(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """As :func:`complete_boards`, with the families of boards."""
    return _completed(incomplete, families=True)


def _completed(incomplete: str, *, families: bool) -> list[CompletionItem]:
    from crtexport.firmware.board import list_boards, list_families  # noqa: PLC0415

    try:
        known = {one.name: one.description for one in list_boards()}
        known |= {one.name: one.description for one in list_families()} if families else {}
    except CrtExportError:  # a damaged board file of the user's, which the command will report
        known = {}
    return [
        CompletionItem(name, help=words) for name, words in sorted(known.items())
        if name.startswith(incomplete)
    ] or [CompletionItem(incomplete, type="file")]


DEFAULT_BOARD = "host"


def board_option(command: Command) -> Command:
    """``--board``, a name or the path of a YAML file; the command gets None without it."""
    return click.option(
        "--board", metavar="NAME|FILE", show_default=DEFAULT_BOARD,
        shell_complete=complete_boards,
        help="The board to generate code for; `crtexport boards` lists the boards.",
    )(command)


def note_board(out: Output, board: str | None) -> None:
    """Prints a note on stderr if no board was named: the default is this computer, whose code
    doesn't run on any other board."""
    if board is None:
        out.notes([f"no --board was given: this is for {DEFAULT_BOARD}, this computer"])


def numerics_option(command: Command) -> Command:
    """``--numerics``; ``--rounding`` and its words are older spellings of it."""
    return click.option(
        "--numerics", "--rounding", "numerics", type=NumericsType(),
        show_default="tflite, and ort for quantized ONNX files",
        help="Whose integer results to reproduce: tflite-runtime 2.14, LiteRT 2.x, TensorFlow Lite "
        "Micro or ONNX Runtime.",
    )(command)


def pool_option(command: Command) -> Command:
    """``--pool``, once for each memory."""
    return click.option(
        "--pool", "pools", type=PoolType(), multiple=True,
        help=(
            "A memory for the workspace, and how much of it may be used; repeat it for several, "
            "the fastest first. By default the board's memories."
        ),
    )(command)


def accelerator_option(command: Command) -> Command:
    """``--accelerator``, may be repeated; the command gets ``accelerators``."""
    return click.option(
        "--accelerator", "accelerators", metavar="NAME", multiple=True, callback=_accelerators,
        help=(
            "Let this plugin compute layers; may be repeated, in order of priority. By default "
            "the board's plugins; `none` means none."
        ),
    )(command)


def _accelerators(
    context: click.Context, parameter: click.Parameter, words: tuple[str, ...]
) -> tuple[str, ...] | None:
    """Returns the accelerators, or None where the board decides."""
    if "none" in words and len(words) > 1:
        raise click.BadParameter("none excludes others", context, parameter)
    return () if words == ("none",) else words or None


def emit_option(command: Command) -> Command:
    """``--emit``"""
    return click.option(
        "--emit", type=Words(["llvm", "c"]),
        help="Objects or C sources; the default depends on the board.",
    )(command)


def feed_option(command: Command) -> Command:
    """``--feed``"""
    return click.option(
        "--feed", is_flag=True,
        help="Also generate functions that take the input row by row, as it comes from a sensor, "
        "so that it is never in memory as a whole.",
    )(command)


def stream_option(command: Command) -> Command:
    """``--stream``"""
    return click.option(
        "--stream", is_flag=True,
        help="As --feed, for a window that moves over time: what layers computed of earlier rows is"
        " kept, so that the next result needs the new rows alone.",
    )(command)


def optimize_option(command: Command) -> Command:
    """``--optimize``"""
    return click.option(
        "--optimize", type=Words([*LEVELS, "ram"]),
        help="What to optimize for; the default depends on the board. ram: compute layers row by "
        "row if that saves memory; compact and balanced: if it also costs hardly anything.",
    )(command)


def ram_option(command: Command) -> Command:
    """``--ram``"""
    return click.option(
        "--ram", type=BytesType(),
        help="The largest workspace of each model, as in 24KiB: layers are computed row by row "
        "until it fits.",
    )(command)


def tuning_option(command: Command) -> Command:
    """``--tuning``"""
    return click.option(
        "--tuning", type=FILE, metavar="FILE.json",
        help="Select kernels by the measurements in this file.",
    )(command)


def weights_option(command: Command) -> Command:
    """``--weights``"""
    return click.option(
        "--weights", type=Words(["auto", "packed", "unpacked"]), default="auto",
        show_default=True,
        help="Whether weights that fit 4 or 2 bits stay packed in flash. auto: where unpacking "
        "takes almost no instructions.",
    )(command)


def input_option(when: str = "") -> Callable[[Command], Command]:
    """``--input``, an .npz; ``when`` is a condition that the help text starts with."""
    text = "rrays with the names of the inputs; by default a fixed pattern."
    return click.option(
        "--input", "input_file", type=FILE, metavar="FILE.npz",
        help=f"{when}: a{text}" if when else f"A{text}",
    )


def trust_option(command: Command) -> Command:
    """``--trust-package``; the command gets ``trust_package``."""
    return click.option(
        "--trust-package", is_flag=True,
        help="Run the code of a package that wasn't exported on this computer, and the programs "
        "that it names, with your rights.",
    )(command)


def device_code_option(command: Command) -> Command:
    """``--device-code``, may be repeated."""
    return click.option(
        "--device-code", type=FILE, multiple=True, metavar="FILE.c",
        help="C source with the hooks of devices, instead of simulated devices.",
    )(command)


def code_options(command: Command) -> Command:
    """``--emit``, ``--optimize``, ``--ram``, ``--feed``, ``--stream`` and ``--weights``: the code
    that is generated for a model."""
    for option in (
        weights_option, stream_option, feed_option, ram_option, optimize_option, emit_option,
    ):
        command = option(command)
    return command


def io_option(command: Command) -> Command:
    """``--io``"""
    return click.option(
        "--io", type=Words(["caller", "workspace"]), default="caller", show_default=True,
        help="Where inputs and outputs are: in buffers of the caller, or in the workspace.",
    )(command)


def const_inputs_option(command: Command) -> Command:
    """``--const-inputs``"""
    return click.option(
        "--const-inputs", is_flag=True, help="Inputs are read from flash, so they need no RAM.",
    )(command)


def system_lib_option(command: Command) -> Command:
    """``--no-system-lib``; the command gets ``system_lib``, which is False with it."""
    return click.option(
        "--no-system-lib", "system_lib", is_flag=True, callback=_system_lib,
        help="Leave out TVMSystemLibEntryPoint, for firmware that links several packages.",
    )(command)


def _system_lib(_context: click.Context, _parameter: click.Parameter, left_out: bool) -> bool:
    return not left_out


def array_options(command: Command) -> Command:
    """``--input`` and ``--output``, both .npz."""
    command = click.option(
        "-o", "--output", "save", type=OUTPUT_FILE, metavar="FILE.npz",
        help="Write the outputs to this file.",
    )(command)
    return input_option()(command)


def timeout_option(when: str = "") -> Callable[[Command], Command]:
    """``--timeout``; ``when`` is a condition that the help text starts with."""
    text = "ime limit for each boot."
    return click.option(
        "--timeout", type=SecondsType(), default=DEFAULT_TIMEOUT, show_default=True,
        help=f"{when}: t{text}" if when else f"T{text}",
    )


def force_option(target: str) -> Callable[[Command], Command]:
    """``--force``"""
    return click.option(
        "--force", is_flag=True,
        help=f"Replace files in {target} that crtexport didn't write, or that you changed."
    )

"""Options that several commands share."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from crtexport.cli.output import Output
from crtexport.firmware.sizes import parse_size

Command = Callable[..., Any]

class FileType(click.Path):
    """A path; whether it can be read or written is for the library to say.

    Files are read and written in any order, so that standard input and output can't be named.
    """

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        if value == "-":
            self.fail(
                "files can't be standard input or output here; name one (./- is called so)",
                param, ctx,
            )
        return super().convert(value, param, ctx)


FILE = FileType()


class Settings:
    """What the program's outermost frame must know of the command's options."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.debug = False
        self.as_json = as_json


def _set_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.ensure_object(Settings).debug |= value


def with_output(command: Command) -> Command:
    """Adds ``-v``, ``-q``, ``--json`` and ``--debug``; the command gets an Output first."""

    @click.option("-v", "--verbose", is_flag=True, help="Tell every step.")
    @click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
    @click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON object and nothing else."
    )
    @click.option(
        "--debug", is_flag=True, expose_value=False, callback=_set_debug,
        help="Show where in the program an error arose.",
    )
    @functools.wraps(command)
    def wrapped(*args: Any, verbose: bool, quiet: bool, as_json: bool, **kwargs: Any) -> Any:
        if verbose and quiet:
            raise click.UsageError("-v and -q exclude each other")
        return command(Output(as_json=as_json, verbosity=verbose - quiet), *args, **kwargs)

    return wrapped


def model_argument(command: Command) -> Command:
    """The argument MODEL."""
    return click.argument("model", type=FILE)(command)


def models_argument(command: Command) -> Command:
    """The arguments MODEL, one or more."""
    return click.argument("models", type=FILE, metavar="MODEL...", nargs=-1, required=True)(command)


def outside_option(command: Command) -> Command:
    """``--allow-outside``"""
    return click.option(
        "--allow-outside", "outside", is_flag=True,
        help="Also read data files of a model.json that lie outside of its folder, if you trust "
        "the model.",
    )(command)


def package_argument(command: Command) -> Command:
    """The argument PACKAGE."""
    return click.argument("package", type=FILE)(command)


def chosen_option(command: Command) -> Command:
    """``--model``"""
    return click.option(
        "--model", "chosen", metavar="NAME",
        help="Of a package of several models: this one. Without it, all run in turns.",
    )(command)


DEFAULT_BOARD = "host"


def board_option(command: Command) -> Command:
    """``--board``, a name or the path of a YAML file; the command gets None without it."""
    return click.option(
        "--board", metavar="NAME|FILE", show_default=DEFAULT_BOARD,
        help="The board to generate for; `crtexport boards` lists them.",
    )(command)


def note_board(out: Output, board: str | None) -> None:
    """Says on stderr which board was taken where none was named: what works, but for this computer
    alone, is easily taken for what was meant."""
    if board is None:
        out.notes([f"no --board was given: this is for {DEFAULT_BOARD}, this computer"])


def rounding_option(command: Command) -> Command:
    """``--rounding``"""
    return click.option(
        "--rounding", type=click.Choice(["double", "single"]), default="double", show_default=True,
        help="Round integers twice, as TensorFlow Lite Micro does, or once, as LiteRT 2.x does.",
    )(command)


class SecondsType(click.FloatRange):
    """A time to wait, more than none and less than a year."""

    name = "SECONDS"

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True, max=365 * 24 * 3600)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        return float(seconds)


if TYPE_CHECKING:
    _PairType = click.ParamType[tuple[str, int]]
else:
    _PairType = click.ParamType  # older releases don't take what it is of


class PoolType(_PairType):
    """``NAME=SIZE``: a memory and how much of it."""

    name = "NAME=SIZE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        name, sign, size = str(value).partition("=")
        try:
            nbytes = parse_size(size if not size.isdigit() else int(size))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not (name and sign and isinstance(nbytes, int)):
            self.fail(f"write a memory and a size, as in dtcm=64KiB, not {value!r}", param, ctx)
        return name, nbytes


def pool_option(command: Command) -> Command:
    """``--pool``, as often as there are memories."""
    return click.option(
        "--pool", "pools", type=PoolType(), multiple=True,
        help="A memory for the workspace and how much it may take of it, the fastest first;"
        " by default what the board says.",
    )(command)


def accelerator_option(command: Command) -> Command:
    """``--accelerator``, as often as there are some; the command gets ``accelerators``."""
    return click.option(
        "--accelerator", "accelerators", metavar="NAME", multiple=True, callback=_accelerators,
        help="Let this plugin take what it can; may come repeatedly, the first is asked first."
        " By default those that the board names; none: none.",
    )(command)


def _accelerators(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...] | None:
    """None where the board decides."""
    if "none" in given and len(given) > 1:
        raise click.BadParameter("none goes without others", context, parameter)
    return () if given == ("none",) else given or None


def emit_option(command: Command) -> Command:
    """``--emit``"""
    return click.option(
        "--emit", type=click.Choice(["llvm", "c"]),
        help="Objects or C sources; by default the board's.",
    )(command)


def optimize_option(command: Command) -> Command:
    """``--optimize``"""
    return click.option(
        "--optimize", type=click.Choice(["size", "balanced", "speed"]),
        help="What code is made for; by default the board's.",
    )(command)


def given_option(when: str = "") -> Callable[[Command], Command]:
    """``--input``, an .npz; ``when`` is a condition to say first."""
    text = "rrays by the names of the inputs; without it a fixed pattern is used."
    return click.option(
        "--input", "given", type=FILE, metavar="FILE.npz",
        help=f"{when}: a{text}" if when else f"A{text}",
    )


def trust_option(command: Command) -> Command:
    """``--trust-package``; the command gets ``trust_package``."""
    return click.option(
        "--trust-package", is_flag=True,
        help="Let a package that wasn't exported on this computer run its code, and the programs "
        "that it names, with your rights.",
    )(command)


def device_code_option(command: Command) -> Command:
    """``--device-code``, as often as there are files."""
    return click.option(
        "--device-code", type=FILE, multiple=True, metavar="FILE.c",
        help="C source with the hooks of devices, in the place of simulated ones.",
    )(command)


def io_option(command: Command) -> Command:
    """``--io``"""
    return click.option(
        "--io", type=click.Choice(["caller", "workspace"]), default="caller", show_default=True,
        help="Where inputs and outputs lie: in buffers that are handed in, or in the workspace.",
    )(command)


def array_options(command: Command) -> Command:
    """``--input`` and ``--output``, both .npz."""
    command = click.option(
        "--output", "save", type=FILE, metavar="FILE.npz", help="Keep the outputs in this file."
    )(command)
    return given_option()(command)


def force_option(what: str) -> Callable[[Command], Command]:
    """``--force``"""
    return click.option(
        "--force", is_flag=True, help=f"Replace files in {what} that crtexport didn't write."
    )

"""``crtexport build``: a package as a project or a library of a build system."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from crtexport import package_actions
from crtexport.cli.claims import claim
from crtexport.cli.groups import Verb
from crtexport.cli.options import (
    complete_boards,
    device_code_option,
    force_option,
    input_option,
    package_argument,
    trust_option,
    with_output,
)
from crtexport.cli.output import Output, named
from crtexport.cli.parameter_types import FILE, Words
from crtexport.cli.results import read_arrays
from crtexport.firmware.board_schema import Board
from crtexport.firmware.run import BuildResult
from crtexport.integrations import next_steps
from crtexport.integrations.formats import FORMATS
from crtexport.integrations.library import name_of
from crtexport.mlf.reader import open_package
from crtexport.support.errors import CrtExportError

MAKE = "make"
_MEANT = {
    "keil": "cmsis-pack", "uvision": "cmsis-pack", "mdk": "cmsis-pack", "iar": "cmsis-pack",
    "csolution": "cmsis-pack", "pack": "cmsis-pack", "idf": "esp-idf", "espidf": "esp-idf",
    "pio": "platformio", "west": "zephyr", "ino": "arduino", "mlperf": "mlperf-tiny",
    "makefile": "make", "baremetal": "make", "bare-metal": "make",
}
"""Words that users try for a format, and crtexport's name of it."""


@click.command("build", cls=Verb)
@package_argument
@click.option(
    "-o", "--output", "folder", type=FILE, required=True, metavar="DIR",
    help="The folder to write; it may contain other files.",
)
@click.option(
    "--format", "format_", default=MAKE, show_default=True,
    type=Words([MAKE, *FORMATS], {word: f"write {name}" for word, name in _MEANT.items()}),
    help="make: firmware for the package's board, with a Makefile. Others: a library with an "
    "example.",
)
@input_option()
@click.option(
    "--expected", type=FILE, metavar="FILE.npz",
    help="The outputs that the example compares with; by default those that the package's code "
    "computes on this computer or in QEMU.",
)
@click.option(
    "--library-version", "version", default="1.0.0", show_default=True, metavar="N.N.N",
    help="The version of the library.",
)
@click.option(
    "--board", metavar="NAME|FILE",
    shell_complete=complete_boards,
    help="The board whose toolchain is used; by default the installed board of the name in the "
    "package.",
)
@device_code_option
@trust_option
@force_option("DIR")
@with_output
def command(
    out: Output, package: Path, folder: Path, format_: str, input_file: Path | None,
    expected: Path | None, version: str, board: str | None, device_code: tuple[Path, ...],
    trust_package: bool, force: bool,
) -> None:
    """Turn PACKAGE into a project or a library for a build system.

    Its example runs the model on one input and compares the outputs with recorded ones.
    Run the command again to update: it replaces only files that it wrote.
    """
    claim(out, {}, folders={"-o": folder}, reads=(package, input_file, expected, *device_code))
    arrays, opened = read_arrays(input_file), open_package(package, verify=False)
    if format_ == MAKE:
        with out.steps() as step:
            step("write and build the firmware")
            built = package_actions.build(
                package, folder, arrays, read_arrays(expected), device_code=device_code,
                board=board, trust_package=trust_package, force=force,
            )
        where = package_actions.board_of(opened, board, trust_package)
        steps = next_steps.of_firmware(package, built.elf, where)
        _show_firmware(out, built, where, steps)
        out.result({"package": str(package), "format": format_, **named(opened.modules),
                    "recorded": not built.unrecorded, "elf": str(built.elf),
                    "next": [command for command, _ in steps]})
        return
    if device_code:
        raise CrtExportError("a library brings no code of devices", location="--device-code",
                             hint="the project that uses it does")
    written = package_actions.write_library(
        package, folder, format_, arrays, read_arrays(expected), version=version, board=board,
        trust_package=trust_package, force=force,
    )
    known = FORMATS[format_]
    name = name_of(opened, known)
    _note_unrecorded(out, written.unrecorded)
    out.line(f"{folder}: {known.what.format(name=name)}, {len(written.files)} files")
    out.line(f"next, in {folder}:")
    _show_steps(out, written.next_steps)
    out.result({
        "package": str(package), "format": format_, **named(opened.modules),
        "recorded": not written.unrecorded, "files": [*map(str, written.files)],
        "next": [command for command, _ in written.next_steps],
    })


def _show_firmware(
    out: Output, built: BuildResult, board: Board, steps: Sequence[next_steps.Step]
) -> None:
    out.line(f"{built.elf}: {built.sections.flash_size:,} bytes of flash and"
             f" {built.sections.ram_size:,} of RAM")
    _note_unrecorded(out, built.unrecorded)
    missing = next_steps.missing_part(board)
    out.notes([missing] if missing else [])
    out.line("next:")
    _show_steps(out, steps)


def _note_unrecorded(out: Output, reason: str) -> None:
    if reason:
        out.notes([f"the example compares no outputs: {reason}"])


def _show_steps(out: Output, steps: Sequence[next_steps.Step]) -> None:
    """Prints the commands to run next, each after a comment that says what it does."""
    for command, words in steps:
        out.line(f"  # {words}")
        out.line(f"  {command}")

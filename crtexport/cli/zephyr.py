"""``crtexport zephyr``: boards derived from builds of Zephyr, checks against them, and reports."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
from msgspec.structs import asdict

from crtexport.cli.claims import claim
from crtexport.cli.groups import Verb
from crtexport.cli.options import Command, accelerator_option, package_argument, with_output
from crtexport.cli.output import Output, named
from crtexport.cli.parameter_types import FILE, OUTPUT_FILE
from crtexport.firmware.abi_check import check_linkable
from crtexport.firmware.board import list_boards
from crtexport.firmware.board_reader import board_from_keys
from crtexport.firmware.zephyr.build import ZephyrBuild, files_of, read_build
from crtexport.firmware.zephyr.derive import board_text, derive_board, write_board
from crtexport.firmware.zephyr.report import REST, read_report
from crtexport.mlf.reader import open_package
from crtexport.pipeline.driver import sources_of_others
from crtexport.support.errors import CrtExportError


@click.group("zephyr")
def command() -> None:
    """Work with builds of Zephyr applications; `west crtexport` does the same inside a workspace.

    BUILD is the folder that `west build -d` built in.
    """


command.command_class = Verb

def _compiler_options(command: Command) -> Command:
    command = click.option(
        "--flags", metavar="TEXT", default="",
        help="The flags of --compiler, quoted as for a shell.",
    )(command)
    return click.option(
        "--compiler", metavar="PATH",
        help="The C compiler of the build; by default that in compile_commands.json.",
    )(command)


def _read(build: Path, compiler: str | None, flags: str) -> ZephyrBuild:
    return read_build(
        build, compiler=(compiler,) if compiler else (), flags=shlex.split(flags) if flags else ()
    )


@command.command("board", short_help="Derive the board file of a build.")
@click.argument("build", type=FILE)
@click.option("-o", "--output", type=OUTPUT_FILE, metavar="FILE.yaml",
              help="Write it there, unless it would not change; by default it is printed.")
@_compiler_options
@with_output
def board(out: Output, build: Path, output: Path | None, compiler: str | None, flags: str) -> None:
    """Derive the board file that generates code for BUILD exactly as it is configured.

    Processor, floating point and ABI come from the build's compiler and its flags, flash and RAM
    from Kconfig and devicetree.
    """
    claim(out, {"-o": output}, reads=files_of(build))
    data = derive_board(_read(build, compiler, flags))
    if output is None:
        if out.as_json:
            out.result(data)
        else:
            out.raw(board_text(data, str(build)))
        return
    derived = write_board(data, output, str(build))
    out.result(derived.to_data())
    out.line(f"{output}: {derived.description}")


@command.command("check", short_help="Check that a package fits a build.")
@package_argument
@click.argument("build", type=FILE)
@_compiler_options
@with_output
def check(out: Output, package: Path, build: Path, compiler: str | None, flags: str) -> None:
    """Refuse PACKAGE if its code must not be linked into BUILD, with both sides' values."""
    found = _read(build, compiler, flags)
    opened = open_package(package)
    derived = board_from_keys(derive_board(found), str(build))
    check_linkable(opened, derived, found.compiler.abi)
    out.result({"package": str(package), "build": str(build), **named(opened.modules)})
    out.line(f"{package} fits {build}")


@command.command(
    "sources", short_help="Check that a build can export a model by itself.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.argument("model", type=FILE)
@click.argument("board", type=FILE)
@accelerator_option
@with_output
def sources(
    out: Output, model: Path, board: Path, accelerators: tuple[str, ...] | None
) -> None:
    """Refuse MODEL if its export for BOARD brings C sources that a build has to know beforehand.

    Of the options of an export, which may all be given, --accelerator matters.
    """
    found = sources_of_others(model, board=board, accelerators=accelerators)
    if found:
        raise CrtExportError(
            f"the export brings external C sources: {', '.join(found)}",
            location=str(model), hint="export the model beforehand, and name the PACKAGE instead",
        )
    out.result({"model": str(model), "sources": []})
    out.line(f"{model}: all of its code is generated")


@command.command("boards", short_help="List the boards that Zephyr and the exporter share.")
@with_output
def boards(out: Output) -> None:
    """List the exporter's boards that Zephyr has too, by both names.

    Any other board of Zephyr's works as well: `crtexport zephyr board BUILD` derives it.
    """
    shared = [(found, found.zephyr) for found in list_boards() if found.zephyr]
    out.result({
        "boards": [
            {"name": found.name, "zephyr": names.board, "legacy": names.legacy}
            for found, names in shared
        ]
    })
    out.table(
        "Boards", ("crtexport", "Zephyr since 3.7", "before", "description"),
        ((found.name, names.board, names.legacy or "-", found.description)
         for found, names in shared),
    )


@command.command("report", short_help="Flash and RAM of a built image, by model and layer.")
@click.argument("build", type=FILE)
@with_output
def report(out: Output, build: Path) -> None:
    """Say what each model takes in the image built in BUILD, by layer, and what the rest takes.

    The sizes are those of the linked image; what they are compared with is the memory that the
    image has, by its partitions.
    """
    usage = read_report(build)
    memories = _memories(build)
    out.result({
        "flash": usage.flash, "ram": usage.ram,
        "memories": memories,
        "models": {
            name: {
                "flash": usage.flash_of(name), "ram": usage.ram_of(name),
                "parts": {key: asdict(part) for key, part in parts.items()},
            }
            for name, parts in usage.models.items()
        },
    })
    for name, parts in usage.models.items():
        out.table(
            f"Model {name}", ("part", "code", "constants", "RAM"),
            [*((key, p.code, p.constants, p.ram) for key, p in parts.items()),
             ("total", sum(p.code for p in parts.values()),
              sum(p.constants for p in parts.values()), usage.ram_of(name))],
        )
    flash = {name: usage.flash_of(name) for name in usage.models}
    ram = {name: usage.ram_of(name) for name in usage.models}
    out.table("Image", ("what", "flash", "RAM"), [
        *((f"model {name}", flash[name], ram[name]) for name in usage.models),
        (REST, usage.flash - sum(flash.values()), usage.ram - sum(ram.values())),
        ("total", usage.flash, usage.ram),
        *((f"size of {name}", size if name == "flash" else "-", size if name != "flash" else "-")
          for name, size in memories.items()),
    ])


def _memories(build: Path) -> dict[str, int]:
    """Bytes of the memories that the image may take; empty under an operating system."""
    derived = board_from_keys(derive_board(read_build(build)), str(build))
    return {name: memory.size for name, memory in derived.memory.items()}

"""``crtexport boards new``: writes a board file, asking for what the options don't say."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from crtexport.cli.claims import claim
from crtexport.cli.groups import Verb
from crtexport.cli.options import complete_families, with_output
from crtexport.cli.output import Output
from crtexport.cli.parameter_types import FILE, OUTPUT_FILE
from crtexport.firmware.board import list_boards, list_families
from crtexport.firmware.board_schema import Memory
from crtexport.firmware.chips.chip import Chip
from crtexport.firmware.chips.write import check_name, write_new_board
from crtexport.firmware.sizes import parse_size
from crtexport.support.errors import CrtExportError
from crtexport.support.schema import did_you_mean

T = TypeVar("T")
_PLACE = re.compile(r"(0x[0-9a-fA-F]+|\d+):(.+)")

if TYPE_CHECKING:
    _NamedMemory = click.ParamType[tuple[str, Memory]]
else:
    _NamedMemory = click.ParamType


class MemoryType(_NamedMemory):
    """``NAME=ORIGIN:SIZE``"""

    name = "NAME=ORIGIN:SIZE"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Memory]:
        name, _, place = str(value).partition("=")
        try:
            return name, memory_of(place)
        except ValueError as error:
            self.fail(f"{error}, not {value!r}", param, ctx)


def memory_of(text: str) -> Memory:
    """Returns the memory ORIGIN:SIZE. Raises ValueError."""
    found = _PLACE.fullmatch(text.strip())
    if found is None:
        raise ValueError("write address and size, as in 0x20000000:256KiB")
    size = parse_size(found[2])
    return Memory(int(found[1], 0), size if isinstance(size, int) else 0)


@click.command("new", cls=Verb)
@click.argument("name", required=False)
@click.option(
    "--from", "source", type=FILE, metavar="FILE.dts|pdsc",
    help="Read processor and memories from a devicetree (a build's zephyr.dts, or a preprocessed "
    "one), or from the description of a CMSIS pack.",
)
@click.option("--device", metavar="NAME", help="The device in the pack, if there are several.")
@click.option("--core", metavar="NAME", help="The processor of the device, if there are several.")
@click.option(
    "--extends", "family", metavar="FAMILY", shell_complete=complete_families,
    help="The family of the processor; `crtexport boards --families` lists them.",
)
@click.option(
    "--memory", "memories", type=MemoryType(), multiple=True,
    help="A memory; flash and ram are required. May be repeated, and replaces what --from says.",
)
@click.option("--description", metavar="TEXT", help="One line for people.")
@click.option(
    "-o", "--output", type=OUTPUT_FILE, metavar="FILE.yaml",
    help="The file to write; by default NAME.yaml in the current folder.",
)
@with_output
def new(
    out: Output, name: str | None, source: Path | None, device: str | None, core: str | None,
    family: str | None, memories: tuple[tuple[str, Memory], ...], description: str | None,
    output: Path | None,
) -> None:
    """Write the file of a board of your own.

    On a terminal, the command asks for what is missing. It never replaces a file.
    """
    claim(out, {"-o": output}, reads=(source,))
    if name is not None:
        check_name(name)
    chip = _read(source, device, core)
    name = name or asked("the board's name", "NAME", _name)
    path = output or Path(f"{name}.yaml")
    if family is None and chip is not None:
        family = _family(chip)
    family = family or asked("the family of its processor, as cortex_m4f", "--extends", _known)
    places = {**(chip.memories if chip else {}), **dict(memories)}
    for kind in ("flash", "ram"):
        if kind not in places:
            what = f"address and size of its {kind}, as 0x20000000:256KiB"
            places[kind] = asked(what, f"--memory {kind}=ORIGIN:SIZE", memory_of)
    described = description or (chip.name if chip and chip.name else f"The board {name}")
    board = write_new_board(path, name, described, family, places, _origin(source, chip))
    out.line(f"{path}: {board.name}, {board.description}, a {family}")
    for key, memory in board.memory.items():
        out.line(f"  {key:8} {memory.origin:#010x} {memory.size:12,} bytes")
    out.line(f"next: crtexport MODEL --board {path if '/' in str(path) else f'./{path}'}")
    out.result({"file": str(path), "extends": family, "board": board.to_data()})


def _read(source: Path | None, device: str | None, core: str | None) -> Chip | None:
    if source is None:
        if device is not None or core is not None:
            raise click.UsageError("--device and --core go with --from")
        return None
    if source.suffix == ".pdsc":
        from crtexport.firmware.chips.pack import read_pack  # noqa: PLC0415

        return read_pack(source, device, core)
    if device is not None or core is not None:
        raise click.UsageError("--device and --core are for packs, whose names end with .pdsc")
    from crtexport.firmware.chips.devicetree import read_tree  # noqa: PLC0415

    return read_tree(source)


def _family(chip: Chip) -> str:
    if not chip.family:
        raise CrtExportError(
            f"no family of boards is for the processor {chip.processor or 'of this chip'}",
            location=chip.name,
            hint="--extends takes one; `crtexport boards --families` lists them",
        )
    return chip.family


def _origin(source: Path | None, chip: Chip | None) -> str:
    if source is None or chip is None:
        return ""
    return f"{chip.name} in {source.name}" if source.suffix == ".pdsc" else source.name


def _known(text: str) -> str:
    """Returns the name of a family or board. Raises ValueError for another."""
    names = {one.name for one in list_families()} | {one.name for one in list_boards()}
    if text not in names:
        meant = did_you_mean(text, names) or "`crtexport boards --families` lists the families"
        raise ValueError(f"there is no family {text!r}; {meant}")
    return text


def _name(text: str) -> str:
    try:
        check_name(text)
    except CrtExportError as error:
        raise ValueError(error.problem) from error
    return text


def on_terminal() -> bool:
    """Returns whether questions can be asked: input and messages are on a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def asked(question: str, option: str, read: Callable[[str], T]) -> T:
    """Asks ``question`` and returns what ``read`` makes of the answer; asks again while it raises
    ValueError. Raises UsageError, which names ``option``, if nobody can be asked."""
    if not on_terminal():
        raise click.UsageError(f"{option} is missing: {question}")

    def checked(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    answer: T = click.prompt(question, value_proc=checked, err=True)
    return answer

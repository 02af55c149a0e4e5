"""Reads a Zephyr build: configuration, devicetree, and its C compiler with flags."""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from crtexport.firmware.elf_abi import ElfAbi, read_abi
from crtexport.firmware.toolchain import run_tool
from crtexport.firmware.zephyr.devicetree import Region, read_regions
from crtexport.support.errors import CrtExportError, RunFailedError, ToolMissingError

CONFIG = "zephyr/.config"
DEVICETREE = "zephyr/zephyr.dts"
IMAGE = "zephyr/zephyr.elf"
COMMANDS = "compile_commands.json"

_ASSIGNMENT = re.compile(r"CONFIG_([A-Za-z0-9_]+)=(.*)")
_MACHINE = re.compile(
    r"-m.+|-f(no-)?(pic|PIC|pie|PIE)|--target=.+|-f(no-)?short-enums|-ffreestanding"
)
_MODEL_FLAGS = re.compile(r"-m.+|-f(no-)?(pic|PIC|pie|PIE)|--target=.+")
_MACRO = re.compile(r"#define (\w+) ?(.*)")


def files_of(folder: Path) -> tuple[Path, ...]:
    """Returns the files of the build in ``folder`` that describe it."""
    return tuple(folder / name for name in (CONFIG, DEVICETREE, IMAGE, COMMANDS))


class CCompiler(Struct, frozen=True):
    """The C compiler of a build: its command, and the flags that select processor and ABI.
    ``macros`` are those that it predefines; ``abi`` is read from an object that it compiled."""

    command: tuple[str, ...]
    flags: tuple[str, ...]
    macros: dict[str, str]
    abi: ElfAbi


class ZephyrBuild(Struct, frozen=True):
    """A configured build. ``config`` maps Kconfig symbols, without ``CONFIG_``, to their values,
    texts without quotes; ``regions`` are the devicetree's memories."""

    config: dict[str, str]
    compiler: CCompiler
    regions: tuple[Region, ...] = ()

    def on(self, symbol: str) -> bool:
        """Returns whether a bool symbol is y."""
        return self.config.get(symbol) == "y"

    def number(self, symbol: str) -> int:
        """Returns the value of an int or hex symbol; 0 where it isn't set."""
        text = self.config.get(symbol, "0")
        try:
            return int(text, 0)
        except ValueError as error:
            raise CrtExportError(
                f"this should be a number, not {text!r}", location=(CONFIG, f"CONFIG_{symbol}")
            ) from error

    @property
    def board(self) -> str:
        """Returns Zephyr's name of the board, with its qualifiers where the version has any."""
        return self.config.get("BOARD_TARGET") or self.config.get("BOARD", "")


def read_build(
    folder: Path, *, compiler: Sequence[str] = (), flags: Sequence[str] | None = None
) -> ZephyrBuild:
    """Returns the build in ``folder``, which must have been configured, but not necessarily built.

    ``compiler`` and ``flags`` are how C is compiled; without them compile_commands.json is read,
    which exists after configuring. Raises CrtExportError for a folder that is no build of Zephyr.
    """
    if not (folder / CONFIG).is_file():
        raise CrtExportError(
            "this is no build of a Zephyr application: it has no " + CONFIG, location=str(folder),
            hint="name the folder that `west build -d` builds in",
        )
    config = parse_config(_text(folder / CONFIG))
    if compiler:
        command, chosen = tuple(compiler), machine_flags(flags or ())
    else:
        command, chosen = _compile_command(folder / COMMANDS)
    dts = folder / DEVICETREE
    regions = read_regions(dts) if dts.is_file() else ()
    return ZephyrBuild(config, examine(command, chosen), regions)


def parse_config(text: str) -> dict[str, str]:
    """Returns the assignments of a ``.config`` file; unset symbols are left out."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _ASSIGNMENT.fullmatch(line.strip())
        if match:
            value = match[2]
            if len(value) >= 2 and value[0] == value[-1] == '"':
                value = re.sub(r"\\(.)", r"\1", value[1:-1])
            found[match[1]] = value
    return found


def machine_flags(words: Iterable[str]) -> tuple[str, ...]:
    """Returns those of a compiler's arguments that choose processor, ABI and code model, in order.
    """
    return tuple(word for word in words if _MACHINE.fullmatch(word))


def model_flags(flags: Iterable[str]) -> tuple[str, ...]:
    """Returns the flags with which a model's C sources must be compiled to have the same ABI."""
    return tuple(flag for flag in flags if _MODEL_FLAGS.fullmatch(flag))


def examine(command: tuple[str, ...], flags: tuple[str, ...]) -> CCompiler:
    """Runs the compiler with ``flags`` to learn its macros and ABI.

    Raises RunFailedError when it can't compile with them, ToolMissingError when it isn't there.
    """
    with tempfile.TemporaryDirectory(prefix="crtexport-") as name:
        folder = Path(name)
        (folder / "probe.c").write_text("int probe(int value) { return value + 1; }\n")
        try:
            listed = run_tool(
                [*command, *flags, "-dM", "-E", "probe.c"], cwd=folder,
                what="asking the compiler for its macros",
            )
            run_tool(
                [*command, *flags, "-c", "-o", "probe.o", "probe.c"], cwd=folder,
                what="compiling with the build's flags",
            )
        except RunFailedError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise ToolMissingError(
                    "the build's compiler is not there", location=command[0]
                ) from error
            raise
        abi = read_abi(folder / "probe.o", "probe.o")
    macros = {m[1]: m[2] for m in map(_MACRO.fullmatch, listed.splitlines()) if m}
    return CCompiler(command, flags, macros, abi)


def _compile_command(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    try:
        entries = json.loads(_text(path))
        commands = [
            shlex.split(entry["command"]) for entry in entries
            if str(entry["file"]).endswith(".c")
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise CrtExportError(f"this is no list of compile commands ({error})",
                             location=str(path)) from error
    # Zephyr itself, not a file of the application with flags of its own.
    own = [words for words in commands if "-D__ZEPHYR__=1" in words]
    if not own:
        raise CrtExportError("there is no C file of Zephyr's here", location=str(path),
                             hint="configure the build first")
    words = own[0]
    # A launcher such as ccache stands before the compiler.
    start = 1 if Path(words[0]).name in ("ccache", "sccache") else 0
    return (words[start],), machine_flags(words[start + 1 :])


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CrtExportError(f"this can't be read: {error.strerror}", location=str(path)) from error
    except UnicodeDecodeError as error:
        raise CrtExportError(f"this isn't UTF-8 text ({error})", location=str(path)) from error

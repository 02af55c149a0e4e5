"""Types of arguments and options; their errors say how to write the value."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from crtexport.firmware.sizes import parse_size
from crtexport.ir.numerics import FORMER_WORDS, Numerics
from crtexport.support.errors import CrtExportError

_LONGEST = 365 * 24 * 3600  # seconds

_SEARCHED = 5000
"""The most files of a folder that are compared with a misspelt name."""


class Words(click.Choice[str]):
    """One of a few words, in upper or lower case, with "-" or "_". ``meant`` maps other words that
    users try to hints."""

    def __init__(self, words: Iterable[str], meant: Mapping[str, str] | None = None) -> None:
        super().__init__([*words], case_sensitive=False)
        self.meant = meant or {}

    def normalize_choice(self, choice: Any, ctx: click.Context | None) -> str:
        return super().normalize_choice(choice, ctx).replace("_", "-")

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:  # noqa: ARG002
        from crtexport.support.schema import did_you_mean  # noqa: PLC0415  (seldom)

        word = str(value).casefold()
        hint = self.meant.get(word) or did_you_mean(word, map(str, self.choices))
        words = f"{str(value)!r} is not one of {', '.join(map(str, self.choices))}"
        return f"{words}; {hint}" if hint else words


class NumericsType(Words):
    """The name of a member of Numerics, or its older name, a word of ``--rounding``."""

    def __init__(self) -> None:
        super().__init__([numerics.value for numerics in Numerics])

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        return str(super().convert(FORMER_WORDS.get(value, value), param, ctx))


class FileType(click.Path):
    """A path, which needn't exist: the library reports files that can't be read or written.

    "-" for standard input or output is refused, since files aren't read and written in sequence,
    and no name at all, which a shell makes of a variable that isn't set.
    """

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        if value == "-":
            self.fail(
                "standard input and output can't be used here; name a file (./- for one of that "
                "name)",
                param, ctx,
            )
        if value == "":
            self.fail("the name is empty; a variable may not be set", param, ctx)
        return super().convert(value, param, ctx)


class OutputFileType(FileType):
    """A file to write. Folders are refused."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        path = super().convert(value, param, ctx)
        if str(value).endswith(("/", os.sep)) or path.is_dir():
            raise CrtExportError(
                "this is a folder, and a file is written here", location=str(value),
                hint="name the file, as in " + str(path / "NAME") + _ending(param),
            )
        return path


class InputFileType(FileType):
    """A file that a command reads: a model, a package, or either. Errors for a file that doesn't
    exist, or is of the other kind, have a hint."""

    def __init__(self, *, models: bool, packages: bool) -> None:
        super().__init__()
        self._models, self._packages = models, packages

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        path: Path = super().convert(value, param, ctx)
        if not os.path.lexists(path):
            raise CrtExportError(
                "there is no such file", location=str(value),
                hint=_missing(path, models=self._models),
            )
        verb = "" if ctx is None else ctx.command_path
        if not self._packages and is_tar(path):
            raise CrtExportError(
                "this is a package, not a model", location=str(value),
                hint=f"`{verb}` takes the model that the package was made from; "
                "`crtexport run`, `simulate`, `build` and `inspect` take packages",
            )
        if not self._models and _is_model(path):
            raise CrtExportError(
                "this is a model, not a package", location=str(value),
                hint=f"export it first: `crtexport {value} --board NAME -o {path.stem}.tar`, then "
                f"`{verb} {path.stem}.tar`",
            )
        return path


FILE = FileType()
OUTPUT_FILE = OutputFileType()
MODEL_FILE = InputFileType(models=True, packages=False)
PACKAGE_FILE = InputFileType(models=False, packages=True)
MODEL_OR_PACKAGE = InputFileType(models=True, packages=True)


def _ending(param: click.Parameter | None) -> str:
    """Returns the ending of a parameter's files, from its metavariable: ".tar" of FILE.tar."""
    return Path((param.metavar or "") if param is not None else "").suffix.partition("|")[0]


def _missing(path: Path, *, models: bool) -> str | None:
    """Returns a hint for a file that doesn't exist; None if there is nothing to suggest."""
    from crtexport.firmware.board import list_boards  # noqa: PLC0415  (only where it is missing)
    from crtexport.support.schema import did_you_mean  # noqa: PLC0415

    word = models and path.parent == Path() and not path.suffix
    if word and path.name in {board.name for board in list_boards()}:
        return f"it is a board: write --board {path.name}"
    meant = did_you_mean(path.name, _files_in(path.parent))
    if meant is None and word:
        return "`crtexport --help` lists the commands; models are .tflite, .onnx and .json files"
    return meant


def _files_in(folder: Path) -> Iterator[str]:
    try:
        with os.scandir(folder) as found:
            for entry in itertools.islice(found, _SEARCHED):
                if entry.is_file():
                    yield entry.name
    except OSError:
        return


def is_tar(path: Path) -> bool:
    """Returns whether a file begins as tar files do."""
    return _head(path)[257:262] == b"ustar"


def _is_model(path: Path) -> bool:
    start = _head(path)
    if not start or start[257:262] == b"ustar":
        return False
    from crtexport.importers.formats import FORMATS, HEAD  # noqa: PLC0415  (it is no package)

    return any(known.begins(start[:HEAD]) for known in FORMATS)


def _head(path: Path) -> bytes:
    if not path.is_file():  # bytes that are read from a pipe would be lost
        return b""
    try:
        with path.open("rb") as stream:
            return stream.read(512)
    except OSError:
        return b""


if TYPE_CHECKING:
    _TimeType = click.ParamType[float]
    _PairType = click.ParamType[tuple[str, int]]
    _NumberType = click.ParamType[int]
else:
    _TimeType = _PairType = _NumberType = click.ParamType  # older releases have no type of values


class SecondsType(_TimeType):
    """A time in seconds, above 0 and below a year."""

    name = "SECONDS"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if math.isnan(seconds):
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        if not 0 < seconds <= _LONGEST:
            self.fail(f"{value} is not in the range of times, from 0 to a year", param, ctx)
        return seconds


class PoolType(_PairType):
    """``NAME=SIZE``: a memory and the part of it that may be used."""

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


class BytesType(_NumberType):
    """A number of bytes, as ``24KiB``."""

    name = "SIZE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        text = str(value)
        try:
            return int(str(parse_size(int(text) if text.isdigit() else text)))
        except ValueError as error:
            self.fail(str(error), param, ctx)

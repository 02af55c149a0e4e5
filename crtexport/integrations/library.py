"""Writes a package as a library of a build system, with an example that tests it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from crtexport.artifact.byte_sources import Blob, blob_chunks
from crtexport.artifact.symbols import sanitize_module
from crtexport.firmware.board_schema import Board
from crtexport.firmware.package import parts_from_package
from crtexport.firmware.parts import FirmwareParts
from crtexport.integrations.formats import FORMATS, BuildFormat
from crtexport.integrations.mlperf_tiny import mlperf_context
from crtexport.integrations.next_steps import of_library
from crtexport.integrations.test_vector import Recorded, test_context
from crtexport.mlf.reader import Package
from crtexport.support import resources
from crtexport.support.errors import CrtExportError
from crtexport.support.levels import COMPILER_OPTIONS
from crtexport.support.outputs.folders import Wanted, lay_out
from crtexport.version import __version__

_VERSION = re.compile(r"(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*")
_SUFFIXES = {None: "", "plus": "+", "p": "P"}


def write_library(
    package: Package, board: Board, folder: Path, format_name: str, recorded: Recorded, *,
    version: str = "1.0.0", force: bool = False,
) -> tuple[Path, ...]:
    """Writes the library for ``board`` into ``folder`` and returns its files, sorted.

    All files are written or none; what an earlier call wrote there and this one doesn't is removed,
    unless it was changed since. Raises CrtExportError for files in the way that are not ours
    (``force`` replaces them), for a package that this format can't hold, and if a file can't be
    written.
    """
    format_ = FORMATS[format_name]
    parts = parts_from_package(package)
    if not _VERSION.fullmatch(version):
        raise CrtExportError("a library's version is three numbers, as in 1.0.0", location=version)
    _check(package, parts, board, format_)
    files = _files(package, parts, board, format_, recorded, version)
    wanted = Wanted(
        f"library {format_.name}",
        {name: partial(blob_chunks, content) for name, content in files.items()},
    )
    try:
        return lay_out(folder, wanted, force=force)
    except OSError as error:
        raise CrtExportError(
            f"the library can't be written: {error.strerror}", location=str(folder)
        ) from error


def name_of(package: Package, format_: BuildFormat) -> str:
    """Returns the library's name: the model's; of several models, the package's. Where the build
    system has no place for all of it, it ends with a part of its hash."""
    models = [*package.modules]
    name = models[0] if len(models) == 1 else sanitize_module(package.path.stem)
    if format_.longest is None or len(name) <= format_.longest:
        return name
    ending = f"_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return name[: format_.longest - len(ending)] + ending


def _check(package: Package, parts: FirmwareParts, board: Board, format_: BuildFormat) -> None:
    """Raises CrtExportError for what a library of this format can't hold."""
    where = str(package.path)
    if any(model.devices for model in parts.models):
        raise CrtExportError(
            "a library for a model with devices needs their hooks, which are not ours",
            location=where, hint="`crtexport unpack` lays its files out for a build of yours",
        )
    if parts.libraries:
        raise CrtExportError(
            f"the package's code calls {parts.libraries[0].name}, which isn't part of it",
            location=where, hint="`crtexport build --format make` writes rules that build it",
        )
    if parts.objects and format_.objects is None:
        raise CrtExportError(
            f"the package has objects, and {format_.name} compiles its libraries from sources",
            location=where, hint="export the model with --emit c",
        )
    if format_.name == "cmsis-pack" and not _cmsis_core(board.cpu.name):
        raise CrtExportError(
            "CMSIS packs are for Arm's processors, this board has another", location=board.name,
            hint="the format cmake is for all",
        )
    for name in (*parts.sources, *parts.objects, *parts.runtime_headers, *parts.headers):
        if not _FILE_NAME.fullmatch(name):
            raise CrtExportError(
                "build systems have a meaning for characters of this name",
                location=(where, name), hint="packages that crtexport wrote have plain names",
            )


def _files(
    package: Package, parts: FirmwareParts, board: Board, format_: BuildFormat, recorded: Recorded,
    version: str,
) -> dict[str, Blob]:
    """Returns the library's files by name."""
    headers = {
        f"{format_.headers}/{name}": text.encode() for name, text in parts.headers.items()
    } | {f"{format_.headers}/{name}": text for name, text in parts.runtime_headers.items()}
    sources = {f"{format_.sources}/{name}": text.encode() for name, text in parts.sources.items()}
    objects = {f"{format_.objects}/{name}": blob for name, blob in parts.objects.items()}
    name, runs_here = name_of(package, format_), board.hosted or not objects
    context = {
        **test_context(parts, recorded),
        **_board_context(board, parts),
        "name": name, "version": version, "runs_here": runs_here, "firmware": False,
        "steps": of_library(format_.name, name, board, runs_here=runs_here),
        "made_by": f"crtexport {__version__}",
        "format": format_, "sources": sorted(sources), "objects": sorted(objects),
        "headers": sorted(headers),
    }
    if format_.name == "mlperf-tiny":
        context |= mlperf_context(parts, str(package.path))
    return {**headers, **sources, **objects, **_rendered(format_, context)}


def _board_context(board: Board, parts: FirmwareParts) -> dict[str, object]:
    cflags = [*board.cpu.cflags, *board.toolchain.cflags]
    return {
        "board": board.name, "description": board.description, "hosted": board.hosted,
        "compiler": [*map(_cmake_word, board.toolchain.compiler)], "cflags": cflags,
        "cmake_cflags": _cmake_word(" ".join(cflags)), "optimize": COMPILER_OPTIONS[parts.optimize],
        "core": _cmsis_core(board.cpu.name),
        "platformio": None if board.flashing is None else board.flashing.platformio,
    }


def _cmake_word(text: str) -> str:
    """Returns a quoted argument that CMake reads back unchanged."""
    return '"' + re.sub(r'([\\"$;])', r"\\\1", text) + '"'


def _cmsis_core(cpu: str) -> str:
    """Returns a pack's name of a processor that LLVM calls ``cpu``: cortex-m0plus is Cortex-M0+; ""
    for those that aren't Cortex-M."""
    found = re.fullmatch(r"cortex-m(\d+)(plus|p)?", cpu)
    return "" if found is None else f"Cortex-M{found[1]}{_SUFFIXES[found[2]]}"


def _rendered(format_: BuildFormat, context: Mapping[str, object]) -> dict[str, Blob]:
    """Returns the files made of templates: those of the format, and of the example in all."""
    environment, root = resources.environment(), resources.templates_dir() / "integrations"
    own = root / format_.name
    places = {
        path: path.relative_to(own).as_posix() for path in sorted(own.rglob("*")) if path.is_file()
    } | {
        path: f"{format_.example}/{path.name}" for path in sorted((root / "common").iterdir())
    }
    files: dict[str, Blob] = {}
    for path, place in places.items():
        template = environment.get_template(path.relative_to(root.parent).as_posix())
        name = place.removesuffix(".j2").replace("NAME", str(context["name"]))
        files[name] = template.render(context).encode()
    return files

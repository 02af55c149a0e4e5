"""Loads exported code into this process: objects through LLVM's linker, C through the compiler."""

from __future__ import annotations

import ctypes
import itertools
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from crtexport.artifact.byte_sources import Blob, blob_bytes
from crtexport.mlf.libraries import Located
from crtexport.mlf.objects import object_facts
from crtexport.simulation.mapped import Mapped, map_constants, pointers_object
from crtexport.support.errors import CrtExportError, RunFailedError, ToolMissingError

COMPILERS = ("cc", "gcc", "clang")
# Contraction would compute other floats than the exported code does on its target.
_CFLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-fPIC")
_MACHINES = {"x86_64": "EM_X86_64", "AMD64": "EM_X86_64", "aarch64": "EM_AARCH64"}
_POINTER_BITS = 8 * ctypes.sizeof(ctypes.c_void_p)
_names = itertools.count()


class LoadedCode(Protocol):
    """Loaded code."""

    def address(self, symbol: str) -> int | None:
        """Returns the address of ``symbol`` in this process; None if the code doesn't define it."""


class SharedLibrary:
    """A shared library that the host's C compiler made."""

    def __init__(self, handle: ctypes.CDLL, keep: tuple[Any, ...] = ()) -> None:
        self.handle = handle
        self._keep = keep  # the owners of the constants

    def address(self, symbol: str) -> int | None:
        try:
            return ctypes.cast(getattr(self.handle, symbol), ctypes.c_void_p).value
        except AttributeError:
            return None


class ObjectLibrary:
    """Objects that LLVM linked into this process, unchanged."""

    def __init__(self, addresses: dict[str, int], keep: tuple[Any, ...]) -> None:
        self._addresses = addresses
        self._keep = keep  # the owners of the memory

    def address(self, symbol: str) -> int | None:
        return self._addresses.get(symbol)


def load_objects(objects: Iterable[Blob]) -> ObjectLibrary:
    """Links ELF objects for this computer's processor into this process.

    Constants in files stay there until they are used. Undefined symbols are resolved in this
    process (the C library). Raises ToolMissingError without llvmlite, and CrtExportError for
    objects that can't be linked here.
    """
    try:
        import llvmlite.binding as llvm  # noqa: PLC0415
    except (ImportError, OSError) as error:
        raise ToolMissingError(
            f"llvmlite can't be imported ({error}), so objects can't be run here",
            hint="install it with: pip install 'llvmlite>=0.50,<0.51'; or export with --emit c",
        ) from error
    blobs = list(objects)
    symbols = _symbols(blobs)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    builder = llvm.JITLibraryBuilder().add_current_process()
    keep = []
    for blob in blobs:
        mapped = map_constants(blob)
        if mapped is None:
            builder.add_object_img(blob_bytes(blob))
            continue
        keep.append(mapped.memory)
        for symbol, address in mapped.addresses.items():
            builder.import_symbol(symbol, address)
        if mapped.tables:
            builder.add_object_img(pointers_object(mapped))
    for symbol in symbols:
        builder.export_symbol(symbol)
    jit = llvm.create_lljit_compiler(machine, use_jit_link=True, suppress_errors=True)
    try:
        tracker = builder.link(jit, f"crtexport.{next(_names)}")
    except RuntimeError as error:
        raise CrtExportError(f"the objects can't be linked here: {error}") from error
    return ObjectLibrary({symbol: tracker[symbol] for symbol in symbols}, (tracker, jit, keep))


def _symbols(blobs: Sequence[Blob]) -> list[str]:
    """Returns the symbols that the objects define. Raises CrtExportError for objects of another
    processor, and for undefined symbols that this process lacks."""
    defined: list[str] = []
    hidden: set[str] = set()
    undefined: set[str] = set()
    for position, blob in enumerate(blobs):
        facts = object_facts(f"object {position}", blob)
        if facts.machine != _MACHINES.get(platform.machine()) or facts.bits != _POINTER_BITS:
            raise CrtExportError(
                f"the object is for another processor ({facts.machine}), it can't run here",
                hint="export for --board host, or with --emit c: sources of any board run here",
            )
        defined += facts.defined
        hidden |= set(facts.hidden)
        undefined |= set(facts.undefined)
    process = ctypes.CDLL(None)
    needed = undefined.difference(defined, hidden)
    missing = sorted(symbol for symbol in needed if not hasattr(process, symbol))
    if missing:
        raise CrtExportError(f"the objects need symbols that nothing has: {', '.join(missing)}")
    return defined


def build_shared(
    sources: Sequence[Path], include_dirs: Sequence[Path] = (), cflags: Sequence[str] = (),
    constants: Iterable[Blob] = (), objects: Sequence[Path] = (),
    libraries: Sequence[Located] = (),
) -> SharedLibrary:
    """Compiles C ``sources`` with the host's compiler and loads them, linked with ``objects`` for
    this computer and the functions that they call of ``libraries``.

    ``constants``: objects of any processor with constants that the sources reach through tables of
    their addresses; they stay in their files. The compiler is ``$CC``, else cc, gcc or clang.
    Raises ToolMissingError when there is none, RunFailedError with its messages when it refuses the
    sources.
    """
    compiler = _compiler()
    mapped = [_constants_only(blob) for blob in constants]
    tables = {name: symbols for part in mapped for name, symbols in part.tables.items()}
    with tempfile.TemporaryDirectory(prefix="crtexport-") as folder:
        result, stand_in = Path(folder) / "model.so", Path(folder) / "tables.c"
        stand_in.write_text("".join(
            f"const void *{name}[{len(symbols)}];\n" for name, symbols in tables.items()
        ))
        _run([
            *compiler, *_CFLAGS, "-shared", *cflags, *(f"-I{path}" for path in include_dirs),
            *(f"-isystem{path}" for library in libraries for path in library.include),
            *map(str, (*sources, *objects)), *([str(stand_in)] if tables else []),
            *_archives(compiler, libraries, Path(folder)), "-o", str(result),
        ], "the exported sources")
        try:
            library = ctypes.CDLL(str(result))
        except OSError as error:
            raise RunFailedError(f"the compiled sources can't be loaded: {error}") from error
    addresses = {name: at for part in mapped for name, at in part.addresses.items()}
    for name, symbols in tables.items():
        table = (ctypes.c_void_p * len(symbols)).in_dll(library, name)
        table[:] = [addresses[symbol] for symbol in symbols]
    return SharedLibrary(library, tuple(part.memory for part in mapped))


def _run(command: Sequence[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise RunFailedError(
            f"the host's C compiler refused {what}:\n" + done.stderr.decode("utf-8", "replace"),
            location=command[0],
        )


def _archives(compiler: Sequence[str], libraries: Sequence[Located], folder: Path) -> list[str]:
    """Returns archives of the libraries, for this computer; linkers take the members that are
    called."""
    archives = []
    for number, library in enumerate(libraries):
        place = folder / f"library{number}"
        place.mkdir()
        # Two sources may have one name, so each object gets a number.
        objects = [place / f"{position}.o" for position in range(len(library.sources))]
        flags = [*_CFLAGS, *(f"-isystem{path}" for path in library.include)]
        for source, target in zip(library.sources, objects, strict=True):
            _run([*compiler, *flags, "-c", str(source), "-o", str(target)], library.library.name)
        archive = folder / f"library{number}.a"
        _run(["ar", "rcs", str(archive), *map(str, objects)], library.library.name)
        archives.append(str(archive))
    return archives


def _constants_only(blob: Blob) -> Mapped:
    mapped = map_constants(blob)
    if mapped is None:
        raise CrtExportError("an object beside C sources holds more than constants")
    return mapped


def _compiler() -> list[str]:
    """Returns the command of the host's C compiler; ``$CC`` may have options, as make takes it."""
    wanted = os.environ.get("CC", "").strip()
    commands = [[wanted], wanted.split()] if wanted else [[known] for known in COMPILERS]
    for name, *options in commands:
        found = shutil.which(name)
        if found:
            return [found, *options]
    raise ToolMissingError(
        f"there is no C compiler ({wanted or ', '.join(COMPILERS)})",
        hint="install one, on Debian with: apt-get install gcc",
    )

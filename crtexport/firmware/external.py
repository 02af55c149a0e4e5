"""Reads the files of external modules for a package, and checks that they define their functions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, field

from crtexport.artifact.byte_sources import Blob
from crtexport.firmware.abi_check import conflicts
from crtexport.firmware.elf_abi import ElfAbi, read_abi
from crtexport.ir.modules import ExternalModule, SourceText
from crtexport.mlf.objects import ObjectFacts, object_facts
from crtexport.support.errors import CrtExportError
from crtexport.support.files import open_regular

_AT_START_UP = (".init_array", ".preinit_array", ".ctors", ".init")
_BY_LOADERS = {
    "__tvm_dev_mblob": "modules in a blob, which would need unpacking",
    "__tvm_ffi__library_bin": "modules in a blob, which would need unpacking",
    "__tvm_module_ctx": "a table of functions, which a loader would have to fill in",
    "__tvm_ffi__library_ctx": "a table of functions, which a loader would have to fill in",
    "__tvm_main__": "an entry point for a loader, which would have to look it up",
}
"""Symbols of modules for TVM's C++ runtime, and their meaning."""
_REGISTERING = "TVMBackendRegisterSystemLibSymbol"
_COMMENTS = re.compile(
    r"/\*.*?\*/|//[^\n]*|(\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')", re.DOTALL
)
_CONSTRUCTOR = re.compile(
    r"\b(?:__constructor__|constructor)\s*(?:\)|\(|,|\])|\"\.(?:init_array|preinit_array|ctors)\b"
)
_MAX_SOURCE = 64 << 20


class ExternalFiles(Struct):
    """Files of modules by base name; ``facts`` are those of the objects."""

    sources: dict[str, str] = field(default_factory=dict)
    objects: dict[str, Blob] = field(default_factory=dict)
    facts: dict[str, ObjectFacts] = field(default_factory=dict)


def external_files(modules: Sequence[ExternalModule], ours: ElfAbi | None) -> ExternalFiles:
    """Returns the files of ``modules``; ``ours`` is the ABI of objects of the board's own code.

    Raises CrtExportError, naming module and file, for one that can't be read, lacks a promised
    function, was made for another processor or ABI, or has code that runs at start-up.
    """
    found = ExternalFiles()
    for module in modules:
        where = f"module {module.name!r}"
        try:
            _add(module, found, ours)
        except CrtExportError as error:
            raise error.within(where) from error.__cause__
    return found


def _add(module: ExternalModule, files: ExternalFiles, ours: ElfAbi | None) -> None:
    if module.kind in ("device-image", "ethos-u"):
        return  # programs are constants of the model's; what drives an Ethos-U is the firmware's
    suffix = ".c" if module.kind == "c-source" else ".o"
    defined: set[str] = set()
    for path in module.files:
        if not path.name.endswith(suffix):
            raise CrtExportError(
                f"a module of kind {module.kind} has files named *{suffix}", location=path.name
            )
        if path.name in files.sources or path.name in files.objects:
            raise CrtExportError("another file has this name", location=path.name)
        if module.kind == "c-source":
            files.sources[path.name] = text = _text(path)
            _check_source(text, path.name)
            defined |= set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*(?=\s*\()", text))
        elif isinstance(path, SourceText):
            raise CrtExportError("text is no object", location=path.name)
        else:
            files.objects[path.name] = path
            files.facts[path.name] = facts = _checked(path, ours)
            defined |= set(facts.defined)
    for function in module.functions:
        if function.symbol not in defined:
            raise CrtExportError(
                f"the function {function.symbol!r} is not in {_listed(module.files)}",
            )


def _checked(path: Path, ours: ElfAbi | None) -> ObjectFacts:
    """Returns the facts of an object. Raises CrtExportError if it can't be linked with our code, or
    if it has code that must run at start-up."""
    facts = object_facts(path.name, path)
    if ours is not None:
        for what, theirs, own in conflicts(read_abi(path, path.name), ours):
            raise CrtExportError(
                f"the object was made for another {what}: {theirs}; the board has {own}",
                location=path.name,
            )
    for name, size in facts.sections.items():
        if size and name.startswith(_AT_START_UP):
            raise _at_start_up(f"the object has code that must run at start-up (section {name})",
                               path.name)
    if _REGISTERING in facts.undefined:
        raise _at_start_up(
            f"the object registers its functions at start-up (it needs {_REGISTERING})", path.name
        )
    for symbol in facts.defined:
        if symbol in _BY_LOADERS:
            raise CrtExportError(
                f"the object is a module for TVM's C++ runtime: it has {_BY_LOADERS[symbol]} "
                f"({symbol})",
                location=path.name,
                hint="compile the functions for TVM's C runtime, or bring them as C sources",
            )
    return facts


def _check_source(text: str, name: str) -> None:
    """Raises CrtExportError for C code that must run at start-up, such as constructors."""
    found = _CONSTRUCTOR.search(_COMMENTS.sub(lambda match: match[1] or " ", text))
    if found:
        raise _at_start_up(
            f"the source has code that must run at start-up ({found[0].strip(' (),]')})", name
        )


def _at_start_up(problem: str, name: str) -> CrtExportError:
    return CrtExportError(
        problem, location=name,
        hint="nothing runs before the model does: leave constructors out of the module",
    )


def _text(path: Path | SourceText) -> str:
    if isinstance(path, SourceText):
        return path.text
    try:
        with open_regular(path) as stream:
            content = stream.read(_MAX_SOURCE + 1)
        if len(content) > _MAX_SOURCE:
            raise CrtExportError("this is too large for a source file", location=path.name)
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise CrtExportError(f"the source can't be read ({error})", location=path.name) from error


def _listed(files: Sequence[Path | SourceText]) -> str:
    return ", ".join(path.name for path in files)

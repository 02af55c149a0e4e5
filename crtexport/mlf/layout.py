"""Every path in the archive. No other module spells one.

Paths are relative, with ``/``, without the leading ``./`` that the tar members carry.
"""

from __future__ import annotations

import re

from crtexport.support.errors import CrtExportError

METADATA = "metadata.json"
SOURCE_DIR = "codegen/host/src"
OBJECT_DIR = "codegen/host/lib"
INCLUDE_DIR = "codegen/host/include"
PARAMETERS_DIR = "parameters"
GRAPH_DIR = "src"
RUNTIME_INCLUDE_DIR = "runtime/include"
OWN_DIR = "crtexport"
BOARD = "crtexport/board.json"
OFFLOAD = "crtexport/devices.offload"
PLAN = "plan.json"
NETWORK = "network.json"

SOURCE_SUFFIXES = (".c", ".cc", ".cpp")
OBJECT_SUFFIX = ".o"

_MODULE = re.compile(r"[a-z0-9_]+")
_BASENAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def source(basename: str) -> str:
    """``codegen/host/src/<basename>``"""
    return f"{SOURCE_DIR}/{basename}"


def stand_in(module: str) -> str:
    """``<module>_objects.c``: a source without code, the only one in a package of objects."""
    return f"{module}_objects.c"


def library(basename: str) -> str:
    """``codegen/host/lib/<basename>``"""
    return f"{OBJECT_DIR}/{basename}"


def header(module: str) -> str:
    """``codegen/host/include/tvmgen_<module>.h``"""
    return f"{INCLUDE_DIR}/tvmgen_{module}.h"


def parameters(module: str) -> str:
    """``parameters/<module>.params``"""
    return f"{PARAMETERS_DIR}/{module}.params"


def graph(module: str) -> str:
    """Returns ``src/<module>.relay``: the name that readers of the format look for."""
    return f"{GRAPH_DIR}/{module}.relay"


def bundle(number: int) -> str:
    """Returns the path of the bundle of a device program, by its number among all programs."""
    return f"{OWN_DIR}/device_{number}.ccob"


def of_model(module: str, name: str, *, only_model: bool) -> str:
    """Returns the path of a model's PLAN or NETWORK; ``only_model``: the package has no other."""
    return f"{OWN_DIR}/{name}" if only_model else f"{OWN_DIR}/{module}/{name}"


def runtime_header(relative: str) -> str:
    """``runtime/include/<relative>``"""
    return f"{RUNTIME_INCLUDE_DIR}/{relative}"


def check_module(name: str) -> None:
    """Raises CrtExportError unless ``name`` can be a module's name in files, symbols and macros."""
    if not _MODULE.fullmatch(name):
        raise CrtExportError(
            "a module's name must consist of a-z, 0-9 and _", location=name,
            hint="give another one with --module-name",
        )


def check_relative(path: str) -> None:
    """Raises CrtExportError unless ``path`` is a plain relative path of portable names."""
    if not all(_BASENAME.fullmatch(part) for part in path.split("/")):
        raise CrtExportError("this is no file name that a package may hold", location=path)


def folders(files: list[str]) -> set[str]:
    """Returns the folders of ``files``, with all of their parents."""
    return {
        "/".join(parts[:depth])
        for parts in (name.split("/") for name in files)
        for depth in range(1, len(parts))
    }

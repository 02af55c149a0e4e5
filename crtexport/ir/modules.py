"""External modules: functions compiled by other tools, as a network refers to them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import Struct

from crtexport.ir.types import ConstantRef, TensorType

ModuleKind = Literal["c-source", "object", "device-image", "ethos-u"]
Signature = Literal["c", "packed"]
Compression = Literal["none", "lz4", "zlib", "smallest"]


class Device(Struct, frozen=True):
    """A device context: device number ``id`` of a ``kind`` (``ethos-u``), running ``program``."""

    kind: str
    id: int = 0
    program: str = ""


class ConstantVariable(Struct, frozen=True):
    """A constant that a function is given the address of; ``name`` serves messages."""

    name: str
    type: TensorType
    data: ConstantRef


class ModuleFunction(Struct, frozen=True):
    """A C function that returns 0 or a code; with a ``device``, which is open while it runs.

    ``const_vars``: its last arguments before the context. With the ``signature`` "packed" it is a
    ``TVMBackendPackedCFunc``, whose arguments are DLTensors and whose resource handle the context.
    In a device image, ``symbol`` only has to be unique, and ``entry`` is what the program calls the
    function (default: the same).
    """

    symbol: str
    device: Device | None = None
    const_vars: tuple[ConstantVariable, ...] = ()
    entry: str = ""
    signature: Signature = "c"


class DeviceProgram(Struct, frozen=True):
    """A program that ``device`` runs: the bytes in ``file``, loaded at a multiple of ``align``
    bytes."""

    device: Device
    file: Path
    compression: Compression = "none"
    align: int = 16


class SourceText(Struct, frozen=True):
    """A C file that was made while exporting."""

    name: str
    text: str


class ModuleLibrary(Struct, frozen=True):
    """A third-party library that a module is built with and that no package contains: users have
    it.

    ``<variable>_PATH`` says in which folder, in the environment or to make; ``include`` are the
    folders with headers below it, ``sources`` patterns of C files. ``<variable>_LIBRARY`` may name
    an archive that was built from them.
    """

    name: str
    version: str
    url: str
    variable: str
    include: tuple[str, ...]
    sources: tuple[str, ...]


class ExternalModule(Struct, frozen=True):
    """Files that are compiled or linked into the firmware unchanged, and the functions that they
    define; or, for a device image, the ``programs`` that ``files`` contain.

    ``name`` is unique in the network. Nothing may have to run before the functions are called.
    A module of the kind "ethos-u" has no files: its function is that of the firmware's driver.
    """

    name: str
    kind: ModuleKind
    files: tuple[Path | SourceText, ...]
    functions: tuple[ModuleFunction, ...]
    library: ModuleLibrary | None = None
    programs: tuple[DeviceProgram, ...] = ()

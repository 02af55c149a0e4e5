"""Reads packages: ours, and those that TVM or another exporter wrote."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from crtexport.artifact.byte_sources import FileRange
from crtexport.artifact.model import Interface
from crtexport.artifact.symbols import sanitize_module
from crtexport.ir.types import DType, TensorType
from crtexport.mlf import layout
from crtexport.mlf.archive import Archive, open_archive
from crtexport.mlf.metadata import (
    CrtexportSection,
    Json,
    Metadata,
    ModuleEntry,
    ModuleSection,
    TensorQuantization,
    parse,
)
from crtexport.support.errors import CrtExportError
from crtexport.support.short import line

_JSON_LIMIT = 64 << 20
"""Bytes of metadata, a plan or a summary that are read."""


def module_of(name: str, modules: Collection[str]) -> str | None:
    """Returns the module called ``name``, or the one that a model called ``name`` became; None if
    it isn't among ``modules``."""
    if name in modules:
        return name
    try:
        made = sanitize_module(name)
    except CrtExportError:
        return None
    return made if made in modules else None


class PackageTensor(Struct, frozen=True):
    """An input or output. ``shape`` and ``field`` are None in packages of other exporters."""

    name: str
    dtype: str
    nbytes: int
    shape: tuple[int, ...] | None = None
    field: str | None = None
    quantization: TensorQuantization | None = None


class Package(Struct, frozen=True):
    """An open package. Its files are read on demand, so the tar must stay where it is.

    ``metadata`` is in the form of version 7 whatever the file's version is; ``raw_metadata`` is the
    unchanged JSON object. ``chosen`` is the model that :attr:`module` and the other properties of
    one model refer to; without it, that is the only one.
    """

    archive: Archive
    metadata: Metadata
    raw_metadata: Json
    chosen: str | None = None

    def __repr__(self) -> str:
        return line("Package", self.path, "of", self._models())

    def select(self, name: str | None) -> Package:
        """Returns the same package with the model called ``name`` chosen; the only one for None.

        The model's own name is understood as well as the name of its module. Raises CrtExportError
        for a model that the package doesn't have.
        """
        chosen = None if name is None else module_of(name, self.modules)
        if name is not None and chosen is None:
            raise self._error(f"there is no model {name!r}; there is {self._models()}")
        return replace(self, chosen=chosen)

    @property
    def each(self) -> tuple[Package, ...]:
        """Returns a package for each model, with that model chosen; if this package has a chosen
        model, only that one."""
        return tuple(self.select(name) for name in ([self.chosen] if self.chosen else self.modules))

    def _models(self) -> str:
        return ", ".join(self.modules) or "none"

    @property
    def path(self) -> Path:
        return self.archive.path

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the paths of all files, sorted, without ``./``."""
        return tuple(self.archive.entries)

    def size(self, name: str) -> int:
        """Returns the size of file ``name`` in bytes. Raises CrtExportError if there is none."""
        if name not in self.archive.entries:
            raise self._error("the package has no such file", name)
        return self.archive.entries[name].size

    def read(self, name: str) -> bytes:
        """Returns all bytes of file ``name``. Raises CrtExportError if there is none."""
        return b"".join(self.archive.chunks(name))

    def extract(self, folder: Path, *, besides: str | None = None) -> None:
        """Writes all files below ``folder``, except those in the package's folder ``besides``;
        nothing is ever written outside of it. Raises what :meth:`.Archive.extract` raises."""
        self.archive.extract(folder, besides)

    @property
    def modules(self) -> dict[str, ModuleEntry]:
        """Returns the models, by name."""
        return self.metadata.modules

    @property
    def section(self) -> CrtexportSection | None:
        """Returns crtexport's own section; None in packages of other exporters."""
        return self.metadata.crtexport

    @property
    def own_section(self) -> CrtexportSection:
        """Returns the same. Raises CrtExportError for a package of another exporter."""
        if self.section is None:
            raise CrtExportError("crtexport didn't write this package", location=str(self.path))
        return self.section

    @property
    def module(self) -> str:
        """Returns the name of the chosen or only model. Raises CrtExportError when none is chosen
        of several, and where there is none."""
        names = [self.chosen] if self.chosen else list(self.modules)
        if len(names) != 1:
            raise CrtExportError(
                f"this works on one model; the package has {self._models()}",
                location=str(self.path), hint="choose one with --model" if names else None,
            )
        return names[0]

    @property
    def module_section(self) -> ModuleSection | None:
        """Returns crtexport's facts about the one model, if it wrote them."""
        return self.section.modules.get(self.module) if self.section else None

    @property
    def described(self) -> ModuleSection:
        """Returns the same. Raises CrtExportError for a package of another exporter."""
        if self.module_section is None:
            raise CrtExportError(
                "the package's metadata lacks the shapes and C names of its tensors",
                location=str(self.path), hint="packages that crtexport wrote have them",
            )
        return self.module_section

    @property
    def sources(self) -> dict[str, str]:
        """Returns C and C++ sources of code, by path below ``codegen/host/src``."""
        without_code = set(map(layout.stand_in, self.modules)) if self.section else set()
        return {
            name: self._text(layout.source(name))
            for name in self._below(layout.SOURCE_DIR)
            if name.endswith(layout.SOURCE_SUFFIXES) and name not in without_code
        }

    @property
    def objects(self) -> dict[str, FileRange]:
        """Returns objects, by path below ``codegen/host/lib``, as ranges of the package."""
        return {
            name: self.archive.range(layout.library(name))
            for name in self._below(layout.OBJECT_DIR)
            if name.endswith(layout.OBJECT_SUFFIX)
        }

    @property
    def header(self) -> str | None:
        """Returns the text of the C interface's header, None without one."""
        # TVM lower-cases the name of this file, though not the symbols that it declares.
        name = layout.header(self.module.lower())
        return self._text(name) if name in self.names else None

    @property
    def graph_text(self) -> str | None:
        """Returns the network as text, in the exporter's own language."""
        for name in (layout.graph(self.module), "src/relay.txt", "relay.txt"):
            if name in self.names:
                return self._text(name)
        return None

    @property
    def runtime_headers(self) -> dict[str, bytes]:
        """Returns headers that the generated code includes, by path below ``runtime/include``."""
        return {
            name: self.read(layout.runtime_header(name))
            for name in self._below(layout.RUNTIME_INCLUDE_DIR)
        }

    @property
    def inputs(self) -> tuple[PackageTensor, ...]:
        """Returns the inputs, in the order of ``run`` where the exporter records it."""
        return self._tensors("inputs")

    @property
    def outputs(self) -> tuple[PackageTensor, ...]:
        """Returns the outputs, in the order of ``run`` where the exporter records it."""
        return self._tensors("outputs")

    @property
    def board_data(self) -> Json | None:
        """Returns the board that the package is for, resolved; None in packages of other exporters.
        """
        return self._json(self.section.board.file) if self.section else None

    @property
    def plan_data(self) -> Json | None:
        """Returns the memory plan; None where the exporter didn't store one."""
        section = self.module_section
        return self._json(section.plan) if section and section.plan else None

    @property
    def network_data(self) -> Json | None:
        """Returns the summary of the network; None where the exporter didn't store one."""
        section = self.module_section
        return self._json(section.network) if section and section.network else None

    def interface(self, tensor: PackageTensor) -> Interface:
        """Returns an input or output with its C name and type. Raises CrtExportError where the
        metadata lacks them, or contradicts them."""
        if tensor.shape is None or tensor.field is None:
            raise self._error("the metadata lacks shape or C name of this tensor", tensor.name)
        try:
            type_ = TensorType(DType(tensor.dtype), tensor.shape)
        except ValueError as error:
            raise self._error(f"there is no element type {tensor.dtype!r}", tensor.name) from error
        if type_.nbytes != tensor.nbytes:
            raise self._error(
                f"the tensor's shape takes {type_.nbytes} bytes, the package says {tensor.nbytes}",
                tensor.name,
            )
        return Interface(tensor.name, tensor.field, type_)

    def _tensors(self, which: str) -> tuple[PackageTensor, ...]:
        section = self.module_section
        if section is not None:
            own = section.inputs if which == "inputs" else section.outputs
            return tuple(
                PackageTensor(t.name, t.dtype, t.bytes, t.shape, t.field, t.quantization)
                for t in own
            )
        for entry in self.modules[self.module].memory.functions.main:
            sizes = entry.inputs if which == "inputs" else entry.outputs
            if sizes:
                return tuple(PackageTensor(n, t.dtype, t.size) for n, t in sizes.items())
        return ()

    def _below(self, folder: str) -> list[str]:
        return [
            str(PurePosixPath(name).relative_to(folder))
            for name in self.names
            if name.startswith(folder + "/")
        ]

    def _text(self, name: str) -> str:
        try:
            return self.read(name).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._error(f"this isn't UTF-8 text ({error})", name) from error

    def _json(self, name: str) -> Json:
        entry = self.archive.entries.get(name)
        if entry is not None and entry.size > _JSON_LIMIT:
            raise self._error("the file is too large", name)
        try:
            data = json.loads(self._text(name))
        except (ValueError, RecursionError) as error:
            raise self._error(f"this isn't JSON ({error})", name) from error
        if not isinstance(data, dict):
            raise self._error("this isn't a JSON object", name)
        return data

    def _error(self, problem: str, *where: str) -> CrtExportError:
        return CrtExportError(problem, location=(str(self.path), *where))


def open_package(path: Path, *, verify: bool = True) -> Package:
    """Opens the package ``path``.

    ``verify`` compares every file with the hash that the metadata states, where it states any.
    Raises CrtExportError for files that are no package, aren't safe to unpack, or don't match their
    metadata.
    """
    archive = open_archive(path)
    if layout.METADATA not in archive.entries:
        raise CrtExportError(
            f"the archive has no {layout.METADATA}", location=str(path),
            hint="a package is the tar file that an export wrote",
        )
    if archive.entries[layout.METADATA].size > _JSON_LIMIT:
        raise CrtExportError(
            "the metadata is too large", location=(str(path), layout.METADATA)
        )
    content = b"".join(archive.chunks(layout.METADATA))
    try:
        metadata, raw = parse(content, layout.METADATA)
    except CrtExportError as error:
        raise error.within(str(path)) from error
    package = Package(archive, metadata, raw)
    if verify and metadata.crtexport is not None:
        _verify(package, metadata.crtexport)
    return package


def _verify(package: Package, section: CrtexportSection) -> None:
    stated, present = set(section.members), set(package.names) - {layout.METADATA}
    for name in sorted(stated ^ present):
        problem = (
            "the metadata names this file, but the archive doesn't have it" if name in stated
            else "the archive has this file, but the metadata doesn't name it"
        )
        raise CrtExportError(problem, location=(str(package.path), name))
    for name in sorted(stated):
        digest = hashlib.sha256()
        for piece in package.archive.chunks(name):
            digest.update(piece)
        if digest.hexdigest() != section.members[name].sha256:
            raise CrtExportError(
                "the file isn't the one that was exported: its SHA-256 differs from the metadata's",
                location=(str(package.path), name), hint="export the model again",
            )

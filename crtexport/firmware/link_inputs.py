"""Merges the module files of several models of a package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crtexport.artifact.byte_sources import Blob, blob_chunks, blob_size
from crtexport.firmware.elf_abi import ElfAbi
from crtexport.firmware.external import ExternalFiles, external_files
from crtexport.ir.modules import ExternalModule
from crtexport.support.errors import CrtExportError


def joined_files(
    models: Mapping[str, Sequence[ExternalModule]], ours: ElfAbi | None
) -> ExternalFiles:
    """Returns the files of the modules of all ``models``, by the models' names; a file that several
    have is there once. ``ours`` is the ABI of objects of the board's own code.

    Raises CrtExportError for problems of a module (:func:`.external.external_files`), for two files
    of one name that differ, and for a function that different files define.
    """
    joined = ExternalFiles()
    owners: dict[str, str] = {}
    functions: dict[str, tuple[str, ExternalModule]] = {}
    for model, modules in models.items():
        own = external_files(modules, ours)
        for name in (*own.sources, *own.objects):
            other = owners.setdefault(name, model)
            if other != model and not _same(name, own, joined):
                raise CrtExportError(
                    f"models {other!r} and {model!r} have different files of this name",
                    location=("modules", name), hint="rename one of the files",
                )
        joined.sources |= own.sources
        joined.objects |= own.objects
        joined.facts |= own.facts
        for module in modules:
            # Functions of device programs aren't symbols that the linker sees.
            for function in module.functions if module.kind != "device-image" else ():
                whose, first = functions.setdefault(function.symbol, (model, module))
                if _names(first) != _names(module):
                    raise CrtExportError(
                        f"models {whose!r} (module {first.name!r}) and {model!r} (module "
                        f"{module.name!r}) both define this function, in different files",
                        location=("modules", function.symbol),
                        hint="rename it in one of them, or let both use the same files",
                    )
    return joined


def _names(module: ExternalModule) -> list[str]:
    return sorted(path.name for path in module.files)


def _same(name: str, files: ExternalFiles, other: ExternalFiles) -> bool:
    if name in files.sources:
        return files.sources[name] == other.sources.get(name)
    return name in other.objects and _same_bytes(files.objects[name], other.objects[name])


def _same_bytes(blob: Blob, other: Blob) -> bool:
    if blob_size(blob) != blob_size(other):
        return False
    pieces = zip(blob_chunks(blob), blob_chunks(other), strict=True)
    return all(piece == same for piece, same in pieces)

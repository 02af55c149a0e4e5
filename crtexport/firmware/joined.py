"""The files that several models of a package bring along, together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crtexport.artifact.blobs import Blob, blob_chunks, blob_size
from crtexport.errors import CrtExportError
from crtexport.firmware.elf_abi import ElfAbi
from crtexport.firmware.external import ExternalFiles, external_files
from crtexport.ir.modules import ExternalModule


def joined_files(
    models: Mapping[str, Sequence[ExternalModule]], ours: ElfAbi | None
) -> ExternalFiles:
    """The files of the modules of all ``models``, by the models' names; a file that several have
    is there once. ``ours`` is what objects of the board's own code say.

    Raises CrtExportError for what is wrong with a module (:func:`.external.external_files`), for
    two files of one name that differ, and for a function that different files define.
    """
    found = ExternalFiles()
    owners: dict[str, str] = {}
    functions: dict[str, tuple[str, ExternalModule]] = {}
    for model, modules in models.items():
        own = external_files(modules, ours)
        for name in (*own.sources, *own.objects):
            other = owners.setdefault(name, model)
            if other != model and not _same(name, own, found):
                raise CrtExportError(
                    f"models {other!r} and {model!r} have different files of this name",
                    location=("modules", name), hint="rename one of the files",
                )
        found.sources |= own.sources
        found.objects |= own.objects
        found.facts |= own.facts
        for module in modules:
            # What programs of devices call their functions is no symbol.
            for function in module.functions if module.kind != "device-image" else ():
                whose, first = functions.setdefault(function.symbol, (model, module))
                if _names(first) != _names(module):
                    raise CrtExportError(
                        f"models {whose!r} (module {first.name!r}) and {model!r} (module "
                        f"{module.name!r}) both define this function, in different files",
                        location=("modules", function.symbol),
                        hint="rename it in one of them, or let both use the same files",
                    )
    return found


def _names(module: ExternalModule) -> list[str]:
    return sorted(path.name for path in module.files)


def _same(name: str, one: ExternalFiles, other: ExternalFiles) -> bool:
    if name in one.sources:
        return one.sources[name] == other.sources.get(name)
    return name in other.objects and _same_bytes(one.objects[name], other.objects[name])


def _same_bytes(one: Blob, other: Blob) -> bool:
    if blob_size(one) != blob_size(other):
        return False
    pieces = zip(blob_chunks(one), blob_chunks(other), strict=True)
    return all(piece == same for piece, same in pieces)

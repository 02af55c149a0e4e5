"""Third-party libraries that a package's sources are built with, at the paths that the user names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from crtexport.mlf.metadata import LibraryEntry
from crtexport.support.errors import CrtExportError, ToolMissingError


class Located(Struct, frozen=True):
    """A library on this computer: its folders of headers, and either C files or an archive."""

    library: LibraryEntry
    folder: Path
    include: tuple[Path, ...]
    sources: tuple[Path, ...]
    archive: Path | None


def locate(
    libraries: Sequence[LibraryEntry], *, archives: bool = True
) -> tuple[Located, ...]:
    """Returns each library at the path in its environment variable; ``archives``: a compiled
    library may be used instead of C files.

    Raises ToolMissingError if the variable isn't set, and CrtExportError for a folder that isn't
    the library, or whose path can't be written in a Makefile.
    """
    return tuple(_locate(library, archives) for library in libraries)


def _locate(library: LibraryEntry, archives: bool) -> Located:
    variable = f"{library.variable}_PATH"
    named = os.environ.get(variable)
    if not named:
        raise ToolMissingError(
            f"the package is built with {library.name} {library.version}, which is not part of it",
            location=variable,
            hint=f"get it from {library.url}, and set {variable} to its folder",
        )
    folder = Path(named).absolute()
    include = tuple(folder / name for name in library.include)
    archive = os.environ.get(f"{library.variable}_LIBRARY") if archives else None
    sources: tuple[Path, ...] = ()
    if not archive:
        sources = tuple(sorted({f for pattern in library.sources for f in folder.glob(pattern)}))
    if not all(map(Path.is_dir, include)) or not (archive or sources):
        raise CrtExportError(
            f"this is not the folder of {library.name}: "
            f"it has no {', '.join(library.include)} or no sources",
            location=(variable, named),
        )
    located = Located(
        library, folder, include, sources, Path(archive).absolute() if archive else None
    )
    for path in (folder, *([located.archive] if located.archive else [])):
        if not re.fullmatch(r"[A-Za-z0-9_./+@~,-]+", str(path)):
            raise CrtExportError(
                "make can't read this path; use one without spaces and special characters",
                location=(variable, str(path)),
            )
    if located.archive is not None and not located.archive.is_file():
        raise CrtExportError("there is no such archive",
                             location=(f"{library.variable}_LIBRARY", str(archive)))
    return located

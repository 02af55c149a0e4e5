"""Unpacks a package for a build system: headers, sources and objects in three folders."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from crtexport.mlf import layout
from crtexport.mlf.reader import Package
from crtexport.support.errors import CrtExportError
from crtexport.support.outputs.folders import Wanted, lay_out

INCLUDE, SOURCE, LIBRARY = "include", "src", "lib"

_FOLDERS = (
    (layout.INCLUDE_DIR, INCLUDE), (layout.RUNTIME_INCLUDE_DIR, INCLUDE),
    (layout.SOURCE_DIR, SOURCE), (layout.OBJECT_DIR, LIBRARY),
)


def unpack_for_build(package: Package, folder: Path, *, force: bool = False) -> tuple[Path, ...]:
    """Writes ``include/``, ``src/`` and ``lib/`` below ``folder``; returns the files, sorted.

    All of them are written or none. Files that would not change keep their time, so that nothing is
    compiled anew for them; files of an earlier package that this one doesn't have are removed,
    unless they were changed. Raises CrtExportError when a file can't be written, for files in the
    way that are not ours (``force`` replaces them), and for names with a meaning to build systems.
    """
    files = {
        f"{own}/{name.removeprefix(f'{theirs}/')}": partial(package.archive.chunks, name)
        for theirs, own in _FOLDERS
        for name in package.names if name.startswith(f"{theirs}/")
    }
    for name in files:
        layout.check_relative(name)
    try:
        return lay_out(
            folder, Wanted("unpack", files, folders=(INCLUDE, SOURCE, LIBRARY)), force=force
        )
    except OSError as error:
        raise CrtExportError(
            f"the package can't be unpacked ({error.strerror or error})", location=str(folder)
        ) from error

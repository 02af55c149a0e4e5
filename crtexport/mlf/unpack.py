"""Lays a package out for a build system: headers, sources and objects in three folders."""

from __future__ import annotations

from pathlib import Path

from crtexport.errors import CrtExportError
from crtexport.mlf import layout
from crtexport.mlf.reader import Package

INCLUDE, SOURCE, LIBRARY = "include", "src", "lib"

_FOLDERS = (
    (layout.INCLUDE_DIR, INCLUDE), (layout.RUNTIME_INCLUDE_DIR, INCLUDE),
    (layout.SOURCE_DIR, SOURCE), (layout.OBJECT_DIR, LIBRARY),
)


def unpack_for_build(package: Package, folder: Path) -> tuple[Path, ...]:
    """Write ``include/``, ``src/`` and ``lib/`` below ``folder``; returns the files, sorted.

    Files that would not change keep their time, so that nothing is compiled anew for them; files
    of an earlier package that this one doesn't have are removed from the three folders. Raises
    CrtExportError when a file can't be written.
    """
    wanted = {
        folder / own / name.removeprefix(f"{theirs}/"): name
        for theirs, own in _FOLDERS
        for name in package.names if name.startswith(f"{theirs}/")
    }
    try:
        for own in (INCLUDE, SOURCE, LIBRARY):
            (folder / own).mkdir(parents=True, exist_ok=True)
            for old in sorted((folder / own).rglob("*")):
                if old.is_symlink() or (old.is_file() and old not in wanted):
                    old.unlink()
        for path, name in wanted.items():
            if not _same(path, package, name):
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as stream:
                    stream.writelines(package.archive.chunks(name))
    except OSError as error:
        raise CrtExportError(
            f"the package can't be unpacked ({error.strerror or error})", location=str(folder)
        ) from error
    return tuple(sorted(wanted))


def _same(path: Path, package: Package, name: str) -> bool:
    """Whether ``path`` holds the package's file ``name`` already."""
    if not path.is_file() or path.stat().st_size != package.size(name):
        return False
    with path.open("rb") as stream:
        return all(stream.read(len(piece)) == piece for piece in package.archive.chunks(name))

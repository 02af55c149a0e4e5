"""Opens untrusted tar files."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from crtexport.artifact.byte_sources import FileRange
from crtexport.support.errors import CrtExportError
from crtexport.support.files import open_regular

_COMPRESSED = {
    b"\x1f\x8b": ("gzip", "gunzip"),
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ": ("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
    b"PK\x03\x04": ("zip", "unzip"),
}
_CHUNK = 1 << 20


class ArchiveEntry(Struct, frozen=True):
    """A file of the archive: the range of its bytes."""

    name: str
    offset: int
    size: int


class Archive(Struct, frozen=True):
    """The files of a tar, by path without the leading ``./``, sorted."""

    path: Path
    entries: dict[str, ArchiveEntry]

    def range(self, name: str) -> FileRange:
        """Returns the range of the bytes of file ``name``. Raises CrtExportError when there is no
        such file."""
        entry = self.entries.get(name)
        if entry is None:
            raise CrtExportError("the package has no such file", location=(str(self.path), name))
        return FileRange(self.path, entry.offset, entry.size)

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yields the bytes of file ``name`` in pieces.

        Raises CrtExportError when there is no such file or the archive became shorter.
        """
        yield from self.range(name).chunks()

    def extract(self, folder: Path, besides: str | None = None) -> None:
        """Writes all files below ``folder``, which is made if need be, except those in the
        archive's folder ``besides``.

        No file is replaced, and no symbolic link inside ``folder`` followed. Raises CrtExportError
        for a link, and for an existing file with other bytes.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name in self.entries:
                if besides is not None and name.startswith(besides + "/"):
                    continue
                target = folder / name
                _make_real_folders(folder, target.parent)
                try:
                    with target.open("xb") as stream:
                        stream.writelines(self.chunks(name))
                except FileExistsError:
                    self._refuse_other(target, name)
        except OSError as error:
            raise CrtExportError(
                f"the package can't be unpacked ({error.strerror or error})", location=str(folder)
            ) from error


    def _refuse_other(self, path: Path, name: str) -> None:
        """Raises CrtExportError unless ``path`` is a file with the bytes of ``name``."""
        size = self.range(name).size
        if not path.is_symlink() and path.is_file() and path.stat().st_size == size:
            with path.open("rb") as stream:
                if all(stream.read(len(piece)) == piece for piece in self.chunks(name)):
                    return
        raise CrtExportError("another file is there already", location=str(path))


def _make_real_folders(root: Path, folder: Path) -> None:
    at = root
    for part in folder.relative_to(root).parts:
        at /= part
        if at.is_symlink():
            raise CrtExportError(
                "a symbolic link stands where the package has a folder", location=str(at)
            )
        at.mkdir(exist_ok=True)


def open_archive(path: Path) -> Archive:
    """Indexes the uncompressed tar file ``path``.

    Raises CrtExportError for files that aren't uncompressed tars, for names that lead out of a
    folder, for links, devices and other special members, for two members of one name, and for
    members that reach beyond the end of the file.
    """
    try:
        with open_regular(path) as stream:
            _refuse_compressed(path, stream.read(8))
            stream.seek(0)
            size = os.fstat(stream.fileno()).st_size
            return Archive(path, _index(path, stream, size))
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> CrtExportError:
    return CrtExportError(
        f"the package can't be read ({error.strerror or error})", location=str(path)
    )


def _refuse_compressed(path: Path, start: bytes) -> None:
    for magic, (kind, tool) in _COMPRESSED.items():
        if start.startswith(magic):
            raise CrtExportError(
                f"the package is compressed ({kind}); a package is an uncompressed tar file",
                location=str(path), hint=f"unpack it with {tool} first",
            )


def _index(path: Path, stream: BinaryIO, size: int) -> dict[str, ArchiveEntry]:
    entries: dict[str, ArchiveEntry] = {}
    folders: set[str] = set()
    try:
        with tarfile.open(fileobj=stream, mode="r:", errorlevel=2) as tar:
            for info in tar:
                name = _safe_name(path, info.name)
                _check_kind(path, info)
                if info.isdir():
                    folders.add(name)
                    continue
                if info.size > size - info.offset_data:
                    raise CrtExportError(
                        f"the file claims {info.size} bytes, more than the archive has left",
                        location=(str(path), info.name),
                    )
                if name in entries:
                    raise CrtExportError(
                        "the archive has two files of this name", location=(str(path), info.name)
                    )
                entries[name] = ArchiveEntry(name, info.offset_data, info.size)
            # tarfile takes garbage after the first member for the end of the archive.
            _check_end(path, stream, tar.offset, size)
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise CrtExportError(
            f"this is no readable tar file ({error})", location=str(path),
            hint="a package is the uncompressed tar file that an export wrote",
        ) from error
    for name in entries:
        parents = {name[:at] for at, ch in enumerate(name) if ch == "/"}
        if name in folders or parents & entries.keys():
            raise CrtExportError(
                "the archive has a file and a folder of the same name", location=(str(path), name)
            )
    return dict(sorted(entries.items()))


def _check_end(path: Path, stream: BinaryIO, offset: int, size: int) -> None:
    stream.seek(min(offset, size))
    while piece := stream.read(_CHUNK):
        if piece.strip(b"\0"):
            raise CrtExportError(
                "the archive is damaged: bytes that are no member follow its last one",
                location=str(path),
            )


def _safe_name(path: Path, name: str) -> str:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\\" in name or (parts and ":" in parts[0]):
        raise CrtExportError(
            "the archive has a member whose name leads out of its folder",
            location=(str(path), name), hint="don't unpack this archive",
        )
    if not name.isprintable() or (not parts and name not in (".", "./")):
        raise CrtExportError(
            "the archive has a member whose name no file can have", location=(str(path), name)
        )
    return "/".join(parts)


def _check_kind(path: Path, info: tarfile.TarInfo) -> None:
    if info.isdir() or (info.isreg() and not info.issparse()):
        return
    kind = (
        "a symbolic link" if info.issym()
        else "a hard link" if info.islnk()
        else "a device" if info.isdev()
        else "a special file"
    )
    raise CrtExportError(
        f"the archive has {kind}; a package holds files and folders only",
        location=(str(path), info.name),
    )

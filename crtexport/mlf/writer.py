"""Writes a package: the same bytes for the same contents, or no file at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tarfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from crtexport.artifact.blobs import WINDOW, Blob, blob_chunks, blob_size
from crtexport.atomic import replacing
from crtexport.errors import CrtExportError
from crtexport.mlf import layout
from crtexport.mlf.contents import PackageContents, check, member_files
from crtexport.mlf.describe import describe
from crtexport.mlf.metadata import Member

_LATEST = 0o77777777777  # what an octal mtime of eleven digits holds; year 2242


Progress = Callable[[int, int], None]
"""Told how many bytes are written, and of how many."""


def write_package(
    path: Path, contents: PackageContents, progress: Progress | None = None
) -> None:
    """Write ``contents`` to the tar file ``path``, replacing it in one step.

    Each file is read once, while it is written, and is never in memory as a whole. The date in the
    archive is ``SOURCE_DATE_EPOCH``, or 1970 without it. Raises CrtExportError for contents that
    make no usable package and for a path that can't be written; whatever was at ``path`` before is
    still there then.
    """
    epoch = source_date_epoch()
    facts = check(contents)
    try:
        files = member_files(contents)
        sizes = {name: blob_size(blob) for name, blob in files.items()}
        # The metadata has the hashes of all files: of those behind it in the archive too.
        members = {
            name: _member(blob) for name, blob in files.items() if name > layout.METADATA
        }
    except OSError as error:
        raise _failed(error, path) from error

    def metadata() -> bytes:
        return describe(contents, facts, members, epoch).dump()

    _write_atomically(path, _Tar(files, sizes, members, metadata, epoch, progress))


def source_date_epoch() -> int:
    """Seconds since 1970 from the environment variable ``SOURCE_DATE_EPOCH``, 0 without it."""
    text = os.environ.get("SOURCE_DATE_EPOCH", "") or "0"
    if not (text.isascii() and text.isdigit()) or int(text) > _LATEST:
        raise CrtExportError(
            f"SOURCE_DATE_EPOCH is {text!r}, not a number of seconds from 0 to {_LATEST}",
            hint="set it to seconds since 1970-01-01, or leave it out",
        )
    return int(text)


def _member(blob: Blob) -> Member:
    digest = hashlib.sha256()
    for piece in blob_chunks(blob):
        digest.update(piece)
    return Member(sha256=digest.hexdigest(), bytes=blob_size(blob))


def _write_atomically(path: Path, tar: _Tar) -> None:
    try:
        if path.exists() and not path.is_file():
            raise CrtExportError("the output is no regular file", location=str(path))
        with replacing(path) as stream:
            tar.write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        _sync_folder(path.parent)
    except OSError as error:
        raise _failed(error, path) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems can't, and the file is complete
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _failed(error: OSError, path: Path) -> CrtExportError:
    hint = None
    if isinstance(error, FileNotFoundError) and not path.parent.is_dir():
        hint = f"create the folder {path.parent} first"
    return CrtExportError(
        f"the package can't be written ({error.strerror or error})", location=str(path), hint=hint
    )


class _Tar:
    """The archive while it is written; ``members`` gets what the metadata says of its files."""

    def __init__(
        self, files: Mapping[str, Blob], sizes: Mapping[str, int], members: dict[str, Member],
        metadata: Callable[[], bytes], epoch: int, progress: Progress | None,
    ) -> None:
        self._files, self._sizes, self._members = files, sizes, members
        self._metadata, self._epoch = metadata, epoch
        self._progress, self._done, self._all = progress, 0, sum(sizes.values())

    def write(self, stream: BinaryIO) -> None:
        """All of it, sorted by name."""
        folders = layout.folders(list(self._files)) | {layout.SOURCE_DIR}
        # PAX headers appear only for what USTAR can't say: names over 100 bytes, members over 8 GiB
        with tarfile.TarFile(
            fileobj=stream, mode="w", format=tarfile.PAX_FORMAT, copybufsize=WINDOW
        ) as tar:
            tar.addfile(_entry(".", self._epoch, folder=True))
            for name in sorted({*self._files, *folders, layout.METADATA}):
                entry = _entry(f"./{name}", self._epoch, folder=name in folders)
                if name in folders:
                    tar.addfile(entry)
                elif name == layout.METADATA:
                    content = self._metadata()
                    self._add(tar, entry, content, len(content))
                else:
                    size = self._sizes[name]
                    digest = self._add(tar, entry, self._files[name], size)
                    self._members.setdefault(name, Member(sha256=digest, bytes=size))

    def _add(self, tar: tarfile.TarFile, entry: tarfile.TarInfo, blob: Blob, size: int) -> str:
        """Adds a file; returns its SHA-256."""
        entry.size = size
        with ThreadPoolExecutor(1) as hashing:  # while the last piece is written
            source = _Source(blob_chunks(blob), self._tell, hashing)
            tar.addfile(entry, source)  # type: ignore[arg-type]
            if source.read(1):
                raise CrtExportError("the file grew while it was written", location=entry.name)
            return source.sha256()

    def _tell(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(min(self._done, self._all), self._all)


class _Source:
    """Pieces of bytes as what tarfile reads from, hashed on the way."""

    def __init__(
        self, chunks: Iterator[bytes], tell: Callable[[int], None], hashing: ThreadPoolExecutor
    ) -> None:
        self._chunks, self._tell, self._hashing = chunks, tell, hashing
        self._rest = memoryview(b"")
        self._digest = hashlib.sha256()
        self._hashed: Future[None] | None = None

    def sha256(self) -> str:
        """Of all that was read, in hexadecimal digits."""
        if self._hashed is not None:
            self._hashed.result()
        return self._digest.hexdigest()

    def _hash(self, piece: bytes) -> None:
        """One piece after the other: at most one waits."""
        if self._hashed is not None:
            self._hashed.result()
        self._hashed = self._hashing.submit(self._digest.update, piece)

    def read(self, size: int) -> bytes | memoryview:
        """At most ``size`` bytes, fewer only at the end."""
        parts: list[memoryview] = []
        wanted = size
        while wanted:
            if not self._rest:
                piece = next((chunk for chunk in self._chunks if chunk), b"")
                if not piece:
                    break
                self._hash(piece)
                self._tell(len(piece))
                self._rest = memoryview(piece)
            parts.append(self._rest[:wanted])
            self._rest = self._rest[wanted:]
            wanted -= len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _entry(name: str, epoch: int, *, folder: bool) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type = tarfile.DIRTYPE if folder else tarfile.REGTYPE
    entry.mode = 0o755 if folder else 0o644
    entry.mtime = epoch
    entry.uname = entry.gname = "root"
    return entry

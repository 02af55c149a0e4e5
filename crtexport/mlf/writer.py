"""Writes a package: the same bytes for the same contents, or no file at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tarfile
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from crtexport.artifact.byte_sources import Blob, blob_chunks, blob_size
from crtexport.mlf import layout
from crtexport.mlf.contents import PackageContents, check, member_files
from crtexport.mlf.describe import describe
from crtexport.mlf.marks import remember
from crtexport.mlf.metadata import Member
from crtexport.support.errors import CrtExportError
from crtexport.support.outputs.single import replacing

_LATEST = 0o77777777777  # what an octal mtime of eleven digits holds; year 2242
_WORTH = 1 << 16
"""Bytes from which on hashing in another thread saves time."""

Progress = Callable[[int, int], None]
"""Called with the bytes written so far, and with their total."""


def write_package(
    path: Path, contents: PackageContents, progress: Progress | None = None
) -> None:
    """Writes ``contents`` to the tar file ``path``, replacing it in one step.

    Each file is read once, while it is written, and is never in memory as a whole. The date in the
    archive is ``SOURCE_DATE_EPOCH``, or 1970 without it. Raises CrtExportError for contents that
    make no usable package and for a path that can't be written; an earlier file at ``path`` then
    stays.
    """
    epoch = source_date_epoch()
    facts = check(contents)
    try:
        files = member_files(contents)
        sizes = {name: blob_size(blob) for name, blob in files.items()}
        # The metadata contains the hashes of all files, also of those after it in the archive.
        members = {
            name: _member(blob) for name, blob in files.items() if name > layout.METADATA
        }
    except OSError as error:
        raise _failed(error, path) from error

    written: list[bytes] = []

    def metadata() -> bytes:
        written.append(describe(contents, facts, members, epoch).dump())
        return written[0]

    _write_atomically(path, _Tar(files, sizes, members, metadata, epoch, progress))
    remember(written[0])


def source_date_epoch() -> int:
    """Returns seconds since 1970 from the environment variable ``SOURCE_DATE_EPOCH``, 0 without it.
    """
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
    """The archive while it is written; ``members`` receives the metadata of its files."""

    def __init__(
        self, files: Mapping[str, Blob], sizes: Mapping[str, int], members: dict[str, Member],
        metadata: Callable[[], bytes], epoch: int, progress: Progress | None,
    ) -> None:
        self._files, self._sizes, self._members = files, sizes, members
        self._metadata, self._epoch = metadata, epoch
        self._progress, self._done, self._all = progress, 0, sum(sizes.values())

    def write(self, stream: BinaryIO) -> None:
        """Writes all files, sorted by name."""
        folders = layout.folders(list(self._files)) | {layout.SOURCE_DIR}
        # PAX headers appear only where USTAR has no room: names over 100 bytes, files over 8 GiB
        with tarfile.TarFile(
            fileobj=stream, mode="w", format=tarfile.PAX_FORMAT
        ) as tar, ThreadPoolExecutor(1) as hashing:
            tar.addfile(_entry(".", self._epoch, folder=True))
            for name in sorted({*self._files, *folders, layout.METADATA}):
                entry = _entry(f"./{name}", self._epoch, folder=name in folders)
                if name in folders:
                    tar.addfile(entry)
                elif name == layout.METADATA:
                    content = self._metadata()
                    self._add(tar, entry, content, len(content), hashing)
                else:
                    size = self._sizes[name]
                    digest = self._add(tar, entry, self._files[name], size, hashing)
                    self._members.setdefault(name, Member(sha256=digest, bytes=size))

    def _add(
        self, tar: tarfile.TarFile, entry: tarfile.TarInfo, blob: Blob, size: int,
        hashing: ThreadPoolExecutor,
    ) -> str:
        """Adds a file; returns its SHA-256. Its pieces go straight to the archive: tarfile would
        read from a file object and so copy every byte."""
        entry.size = size
        stream, missing = tar.fileobj, size
        # addfile() of Python 3.13 takes no entry without a file object.
        header = entry.tobuf(tar.format, tar.encoding, tar.errors)
        stream.write(header)
        digest = _Digest(hashing)
        for piece in blob_chunks(blob):
            missing -= len(piece)
            if missing < 0:
                raise CrtExportError("the file grew while it was written", location=entry.name)
            digest.add(piece)
            stream.write(piece)
            self._tell(len(piece))
        if missing:
            raise CrtExportError("the file shrank while it was written", location=entry.name)
        filling = -size % tarfile.BLOCKSIZE
        stream.write(bytes(filling))
        tar.offset += len(header) + size + filling
        return digest.hexadecimal()

    def _tell(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(min(self._done, self._all), self._all)


class _Digest:
    """The SHA-256 of pieces; ``hashing``, a thread, digests large ones while they are written."""

    def __init__(self, hashing: ThreadPoolExecutor) -> None:
        self._hashing, self._digest = hashing, hashlib.sha256()
        self._hashed: Future[None] | None = None

    def add(self, piece: bytes) -> None:
        """Adds the next piece; at most one waits."""
        self._wait()
        if len(piece) < _WORTH:
            self._digest.update(piece)
        else:
            self._hashed = self._hashing.submit(self._digest.update, piece)

    def hexadecimal(self) -> str:
        """Returns the digest of all pieces."""
        self._wait()
        return self._digest.hexdigest()

    def _wait(self) -> None:
        if self._hashed is not None:
            self._hashed.result()
            self._hashed = None


def _entry(name: str, epoch: int, *, folder: bool) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type = tarfile.DIRTYPE if folder else tarfile.REGTYPE
    entry.mode = 0o755 if folder else 0o644
    entry.mtime = epoch
    entry.uname = entry.gname = "root"
    return entry

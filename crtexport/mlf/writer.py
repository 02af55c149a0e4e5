"""Writes a package: the same bytes for the same contents, or no file at all."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import secrets
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from crtexport.errors import CrtExportError
from crtexport.mlf import layout
from crtexport.mlf.contents import (
    Blob,
    PackageContents,
    blob_chunks,
    blob_size,
    check,
    member_files,
)
from crtexport.mlf.describe import describe
from crtexport.mlf.metadata import Member

_LATEST = 0o77777777777  # what an octal mtime of eleven digits holds; year 2242


def write_package(path: Path, contents: PackageContents) -> None:
    """Write ``contents`` to the tar file ``path``, replacing it in one step.

    The date in the archive is ``SOURCE_DATE_EPOCH``, or 1970 without it. Raises CrtExportError for
    contents that make no usable package and for a path that can't be written; whatever was at
    ``path`` before is still there then.
    """
    epoch = source_date_epoch()
    facts = check(contents)
    try:
        files = member_files(contents)
        members = {name: _member(blob) for name, blob in files.items()}
        files[layout.METADATA] = describe(contents, facts, members, epoch).dump()
    except OSError as error:
        raise _failed(error, path) from error
    _write_atomically(path, files, epoch)


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


def _write_atomically(path: Path, files: Mapping[str, Blob], epoch: int) -> None:
    # The name is of no consequence: the file is renamed or removed before this function ends.
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        try:
            if path.exists() and not path.is_file():
                raise CrtExportError("the output is no regular file", location=str(path))
            # Not tempfile: its files are private to the user, a package is as readable as any.
            descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            with os.fdopen(descriptor, "wb") as stream:
                _write_tar(stream, files, epoch)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
            _sync_folder(path.parent)
        except OSError as error:
            raise _failed(error, path) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


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


def _write_tar(stream: BinaryIO, files: Mapping[str, Blob], epoch: int) -> None:
    names = list(files)
    folders = layout.folders(names) | {layout.SOURCE_DIR}
    # PAX headers appear only for what USTAR can't say: names over 100 bytes, members over 8 GiB.
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(_entry(".", epoch, folder=True))
        for name in sorted({*names, *folders}):
            entry = _entry(f"./{name}", epoch, folder=name in folders)
            if name in folders:
                tar.addfile(entry)
                continue
            blob = files[name]
            entry.size = blob_size(blob)
            if isinstance(blob, bytes):
                tar.addfile(entry, io.BytesIO(blob))
            else:
                with blob.open("rb") as content:
                    tar.addfile(entry, content)


def _entry(name: str, epoch: int, *, folder: bool) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type = tarfile.DIRTYPE if folder else tarfile.REGTYPE
    entry.mode = 0o755 if folder else 0o644
    entry.mtime = epoch
    entry.uname = entry.gname = "root"
    return entry

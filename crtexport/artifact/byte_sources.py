"""The content of package members: bytes, a range of another file, or bytes produced while they are
written, so that none has to be in memory as a whole."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from crtexport.support.errors import CrtExportError

WINDOW = 1 << 20
"""Bytes that are in memory at once."""


class FileRange(Struct, frozen=True):
    """``size`` bytes of the file ``path``, from ``offset`` on."""

    path: Path
    offset: int
    size: int

    def chunks(self) -> Iterator[bytes]:
        """Yields the bytes in pieces. Raises CrtExportError if the file is gone or has become
        shorter."""
        try:
            with self.path.open("rb") as stream:
                stream.seek(self.offset)
                left = self.size
                while left:
                    piece = stream.read(min(WINDOW, left))
                    if not piece:
                        raise CrtExportError(
                            f"the file ends {left} bytes too early", location=str(self.path)
                        )
                    left -= len(piece)
                    yield piece
        except OSError as error:
            raise CrtExportError(
                f"the file can't be read ({error.strerror or error})", location=str(self.path)
            ) from error

    def read(self) -> bytes:
        """Returns all bytes."""
        return b"".join(self.chunks())


class Streamed(Struct, frozen=True, eq=False):
    """``size`` bytes: those of ``head``, then what ``body`` yields anew with each call.

    ``head`` of an object has everything but the data of its constants.
    """

    head: bytes
    size: int
    body: Callable[[], Iterator[bytes]]

    def chunks(self) -> Iterator[bytes]:
        """Yields the bytes in pieces."""
        yield self.head
        yield from self.body()

    def read(self) -> bytes:
        """Returns all bytes."""
        return b"".join(self.chunks())


Blob = bytes | Path | FileRange | Streamed
"""A member's bytes, or their source."""


def blob_chunks(blob: Blob) -> Iterator[bytes]:
    """Yields the bytes of ``blob`` in pieces. Raises CrtExportError when a file became shorter."""
    if isinstance(blob, bytes):
        yield blob
    elif isinstance(blob, Path):
        yield from FileRange(blob, 0, blob.stat().st_size).chunks()
    else:
        yield from blob.chunks()


def blob_size(blob: Blob) -> int:
    """Returns the size of ``blob`` in bytes."""
    if isinstance(blob, Path):
        return blob.stat().st_size
    return len(blob) if isinstance(blob, bytes) else blob.size


def blob_bytes(blob: Blob) -> bytes:
    """Returns all bytes of ``blob``."""
    return blob if isinstance(blob, bytes) else b"".join(blob_chunks(blob))


@contextmanager
def opened(blob: Blob) -> Iterator[BinaryIO]:
    """Opens ``blob`` as a seekable file; of a Streamed one, only its head."""
    if isinstance(blob, bytes | Streamed):
        yield io.BytesIO(blob if isinstance(blob, bytes) else blob.head)
    elif isinstance(blob, Path):
        with blob.open("rb") as stream:
            yield stream
    else:
        with blob.path.open("rb") as stream, io.BufferedReader(_RangeFile(stream, blob)) as part:
            yield part


class _RangeFile(io.RawIOBase):
    """A range of a file as a file of its own."""

    def __init__(self, stream: BinaryIO, part: FileRange) -> None:
        self._stream, self._part, self._at = stream, part, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._part.size}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        wanted = min(len(buffer), max(self._part.size - self._at, 0))
        self._stream.seek(self._part.offset + self._at)
        piece = self._stream.read(wanted)
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

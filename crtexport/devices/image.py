"""Device images: an accelerator's program behind a header that describes it.

``templates/devices/crt_image.h`` has the layout and reads it on the device; compressed images are
inflated there when the device is opened. This module writes them, and reads them back for tools.
"""

from __future__ import annotations

import enum
import mmap
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import google_crc32c
import lz4.block
from msgspec import Struct
from msgspec.structs import replace

from crtexport.ir.modules import Compression
from crtexport.ir.types import ConstantRef
from crtexport.support.errors import CrtExportError
from crtexport.support.files import open_regular

_HEADER = struct.Struct("<4sHHIIIIII")
HEADER_SIZE = _HEADER.size
_MAGIC = b"CRTI"
_VERSION = 1
_CHUNK = 1 << 20
MAX_SIZE = (1 << 32) - 1 - 8192
"""Bytes of the largest program: header and alignment come on top of it, in 32 bits."""
MAX_COMPRESSED = 256 << 20
"""Bytes of the largest program that may be compressed: it is inflated into RAM."""

Bytes = bytes | memoryview | mmap.mmap


class Method(enum.Enum):
    """The compression of a stored program; the value is the number in the header."""

    STORED = 0
    LZ4 = 1
    ZLIB = 2


class ImageHeader(Struct, frozen=True):
    """Sizes in bytes, checksums CRC-32C of the program and of what follows the header."""

    method: Method
    original_size: int
    stored_size: int
    original_crc: int
    stored_crc: int
    align: int = 16

    @property
    def compressed(self) -> bool:
        """Returns whether the program must be inflated before it can be loaded."""
        return self.method is not Method.STORED

    @property
    def image_size(self) -> int:
        """Returns the bytes of the header and the stored program."""
        return HEADER_SIZE + self.stored_size

    def pack(self) -> bytes:
        """Returns the 32 bytes before the stored program."""
        head = _HEADER.pack(
            _MAGIC, _VERSION, self.method.value, self.original_size, self.stored_size,
            self.original_crc, self.stored_crc, self.align, 0,
        )[:-4]
        return head + struct.pack("<I", _crc(head))

    @staticmethod
    def unpack(data: Bytes, where: str = "") -> ImageHeader:
        """Returns the header at the beginning of ``data``. Raises CrtExportError for anything else.
        """
        head = bytes(data[:HEADER_SIZE])
        if len(head) < HEADER_SIZE or head[:4] != _MAGIC:
            raise CrtExportError("this is no device image", location=where)
        _, version, method, original, stored, original_crc, stored_crc, align, crc = (
            _HEADER.unpack(head)
        )
        if crc != _crc(head[:-4]):
            raise CrtExportError("the image's header is damaged", location=where)
        try:
            known = Method(method)
        except ValueError:
            known = None
        if version != _VERSION or known is None:
            raise CrtExportError(
                f"version {version} or method {method} of this image is unknown",
                location=where,
            )
        return ImageHeader(known, original, stored, original_crc, stored_crc, align)


@contextmanager
def mapped(path: Path) -> Iterator[memoryview]:
    """Returns the bytes of a file, mapped and not read. Raises CrtExportError where that fails."""
    try:
        with open_regular(path) as stream:
            if path.stat().st_size == 0:
                yield memoryview(b"")
                return
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as whole:
                view = memoryview(whole)
                try:
                    yield view
                finally:
                    view.release()
    except OSError as error:
        raise CrtExportError(
            f"the image can't be read: {error.strerror}", location=str(path)
        ) from error


class Behind(Struct, frozen=True):
    """A rule that makes a constant of ``head`` followed by ``source``."""

    head: bytes
    source: ConstantRef

    def chunks(self, nbytes: int) -> Iterator[bytes]:
        """Yields the first ``nbytes`` bytes, in pieces."""
        yield self.head[:nbytes]
        yield from replace(self.source, nbytes=max(nbytes - len(self.head), 0)).chunks()

    def part(self, start: int, nbytes: int) -> bytes:
        """``nbytes`` bytes from ``start`` on."""
        first = self.head[start : start + nbytes]
        behind = max(start - len(self.head), 0)
        return first + self.source.part(behind, nbytes - len(first))


class Stored(Struct, frozen=True):
    """An image as a constant: ``data`` is to lie at a multiple of ``header.align`` and of 16; the
    image begins ``offset`` bytes into it, so that a program that is used in place is aligned."""

    header: ImageHeader
    data: ConstantRef
    offset: int


def stored_image(path: Path, compression: Compression, align: int) -> Stored:
    """Returns the image of the program in the file ``path``, whose bytes are read when they are
    written.

    Only compressed programs are in memory, in compressed form. Raises CrtExportError for a file
    that can't be read, and for a program that no image, or no compressed one, can hold.
    """
    where = path.name
    with mapped(path) as program:
        size = len(program)
        if size == 0:
            raise CrtExportError("the program is empty", location=where)
        if compression != "none":
            image = _compressed(program, compression, align, where)
    if compression == "none":
        stored = ConstantRef(size, path=path)
        _check(size, align, where)
        crc = 0
        for piece in stored.chunks():
            crc = google_crc32c.extend(crc, piece)
        header = ImageHeader(Method.STORED, size, size, crc, crc, align)
    else:
        header = ImageHeader.unpack(image, where)
        held = image[HEADER_SIZE:]
        stored = ConstantRef(len(held), data=held)
    offset = -HEADER_SIZE % max(align, 16) if header.method is Method.STORED else 0
    head = bytes(offset) + header.pack()
    data = ConstantRef(len(head) + stored.nbytes, made=Behind(head, stored))
    return Stored(header, data, offset)


def _compressed(program: memoryview, compression: Compression, align: int, where: str) -> bytes:
    if len(program) > MAX_COMPRESSED:
        raise CrtExportError(
            f"a program of {len(program):,} bytes is too large to be inflated into RAM; "
            f"{MAX_COMPRESSED:,} is the most",
            location=where, hint='use it in place: "compression": "none"',
        )
    if compression == "smallest":
        return smallest(program, align=align, where=where)
    return encode(program, Method[compression.upper()], align=align, where=where)


def _check(size: int, align: int, where: str) -> None:
    if size > MAX_SIZE:
        raise CrtExportError(
            f"a program of {size} bytes is too large for an image, which takes {MAX_SIZE}",
            location=where,
        )
    if align < 1 or align > 4096 or align & (align - 1):
        raise CrtExportError(
            f"{align} is no alignment: it must be a power of two up to 4096",
            location=where,
        )


def encode(program: Bytes, method: Method, *, align: int = 16, where: str = "") -> bytes:
    """Returns a device image of ``program``.

    ``align`` is the alignment of the program's address that the device needs, a power of two up to
    4096; ``where`` is for errors. Raises CrtExportError for programs that no image can hold.
    """
    _check(len(program), align, where)
    stored = _compress(program, method)
    header = ImageHeader(
        method, len(program), len(stored), _crc(program), _crc(stored), align
    )
    return header.pack() + bytes(stored)


def smallest(program: Bytes, *, align: int = 16, where: str = "") -> bytes:
    """Returns the smallest image; stored where compression gains nothing."""
    images = [encode(program, method, align=align, where=where) for method in Method]
    return min(images, key=len)


def decode(image: Bytes, where: str = "") -> bytes:
    """Returns the program in an image. Raises CrtExportError for one that is damaged or cut off."""
    header = ImageHeader.unpack(image, where)
    stored = memoryview(image)[HEADER_SIZE : HEADER_SIZE + header.stored_size]
    if len(stored) != header.stored_size or _crc(stored) != header.stored_crc:
        raise CrtExportError("the image is damaged or cut off", location=where)
    try:
        program = _decompress(stored, header)
    except (zlib.error, lz4.block.LZ4BlockError) as error:
        raise CrtExportError(f"the image is damaged: {error}", location=where) from error
    if len(program) != header.original_size or _crc(program) != header.original_crc:
        raise CrtExportError("the image holds another program than it says",
                             location=where)
    return program


def _compress(program: Bytes, method: Method) -> Bytes:
    match method:
        case Method.STORED:
            return program
        case Method.LZ4:
            packed: bytes = lz4.block.compress(
                program, mode="high_compression", compression=12, store_size=False
            )
            return packed
        case Method.ZLIB:
            packer = zlib.compressobj(9)
            view = memoryview(program)
            pieces = [
                packer.compress(view[at : at + _CHUNK]) for at in range(0, len(view), _CHUNK)
            ]
            return b"".join([*pieces, packer.flush()])


def _decompress(stored: memoryview, header: ImageHeader) -> bytes:
    match header.method:
        case Method.STORED:
            return bytes(stored)
        case Method.LZ4:
            unpacked: bytes = lz4.block.decompress(
                stored, uncompressed_size=header.original_size
            )
            return unpacked
        case Method.ZLIB:
            # One byte more than there should be tells a program that is too long.
            return zlib.decompressobj().decompress(stored, header.original_size + 1)


def _crc(data: Bytes) -> int:
    crc = 0
    view = memoryview(data)
    for at in range(0, len(view), _CHUNK):
        crc = google_crc32c.extend(crc, bytes(view[at : at + _CHUNK]))
    return int(crc)

"""LLVM's containers of device images: ``OffloadBinary``, which ``llvm-objdump --offloading`` lists,
and the compressed bundle (CCOB) that ``clang-offload-bundler`` takes apart.

Layouts: ``llvm/Object/OffloadBinary.h`` and clang's OffloadBundler documentation, version 2 of the
compressed format, which LLVM 17 and newer read. All numbers are little-endian.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from crtexport.ir.types import ConstantRef
from crtexport.support.errors import CrtExportError

_MAGIC = b"\x10\xff\x10\xad"
_HEADER = struct.Struct("<4sIQQQ")  # magic, version, size, entry offset, entry size
_ENTRY = struct.Struct("<HHIQQQQ")  # image and offload kind, flags, strings, image
_STRING = struct.Struct("<QQ")
_IMAGE_OBJECT = 1

_BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED = struct.Struct("<4sHHIIQ")  # magic, version, method, sizes, hash
_COMPRESSED_VERSION = 2
_ZLIB = 0
_LIMIT = 1 << 32
HOST_ENTRY = "host-x86_64-unknown-linux-gnu"
"""The entry of the host, which the bundler requires; ours has no bytes."""


class Container(Struct, frozen=True):
    """``size`` bytes that ``chunks`` yields in pieces, anew with each call; images are read
    meanwhile, and never held as a whole."""

    size: int
    chunks: Callable[[], Iterator[bytes]]

    def read(self) -> bytes:
        """Returns all bytes."""
        return b"".join(self.chunks())


class OffloadEntry(Struct, frozen=True):
    """A device's image: ``triple`` and ``arch`` are its target, ``strings`` further properties,
    such as the names of the device and the program."""

    image: ConstantRef
    triple: str
    arch: str
    strings: Mapping[str, str] = field(default_factory=dict)

    def all_strings(self) -> dict[str, str]:
        """Keys in order, as the container lists them."""
        merged = {**self.strings, "triple": self.triple, "arch": self.arch}
        for text in (*merged, *merged.values()):
            if "\0" in text:
                raise CrtExportError("a NUL can't be in a device's name", location=repr(text))
        return dict(sorted(merged.items()))


def offload_binaries(entries: Iterable[OffloadEntry]) -> Container:
    """Returns one ``OffloadBinary`` per entry, one after the other.

    Raises CrtExportError for a name with a NUL in it.
    """
    listed = [(entry.image, *_around(entry)) for entry in entries]

    def chunks() -> Iterator[bytes]:
        for image, head, tail in listed:
            yield head
            yield from image.chunks()
            yield tail

    return Container(sum(len(h) + image.nbytes + len(t) for image, h, t in listed), chunks)


def _around(entry: OffloadEntry) -> tuple[bytes, bytes]:
    """Returns the header of an entry and the padding after its image."""
    strings = entry.all_strings()
    strings_at = _HEADER.size + _ENTRY.size
    table_at = strings_at + _STRING.size * len(strings)
    table, records = b"", b""
    for key, value in strings.items():
        key_at = table_at + len(table)
        table += key.encode("utf-8", "backslashreplace") + b"\0"
        value_at = table_at + len(table)
        table += value.encode("utf-8", "backslashreplace") + b"\0"
        records += _STRING.pack(key_at, value_at)
    image_at = _round(table_at + len(table))
    size = _round(image_at + entry.image.nbytes)
    head = _HEADER.pack(_MAGIC, 1, size, _HEADER.size, _ENTRY.size)
    head += _ENTRY.pack(
        _IMAGE_OBJECT, 0, 0, strings_at, len(strings), image_at, entry.image.nbytes
    )
    head += records + table
    return head.ljust(image_at, b"\0"), bytes(size - image_at - entry.image.nbytes)


def _round(size: int) -> int:
    return -(-size // 8) * 8


def bundle(images: Sequence[tuple[str, ConstantRef]]) -> Container:
    """Returns a plain bundle of images by target (``openmp-thumbv7em-none-none-eabi-cortex-m4``), a
    host without bytes first."""
    entries = [(HOST_ENTRY, ConstantRef(0, data=b"")), *images]
    # As the tool itself writes them: LLVM 19 finds no others, newer ones take both.
    ids = [f"{name.rstrip('-')}-".encode() for name, _ in entries]
    at = len(_BUNDLE_MAGIC) + 8 + sum(24 + len(name) for name in ids)
    head = _BUNDLE_MAGIC + struct.pack("<Q", len(entries))
    for name, (_, image) in zip(ids, entries, strict=True):
        head += struct.pack("<QQQ", at, image.nbytes, len(name)) + name
        at += image.nbytes

    def chunks() -> Iterator[bytes]:
        yield head
        for _, image in entries:
            yield from image.chunks()

    return Container(at, chunks)


def compressed_bundle(images: Sequence[tuple[str, ConstantRef]]) -> Container:
    """Returns the same bundle, compressed by zlib behind a header with both sizes and a hash.

    The images are read twice: sizes and hash come first in the file. Raises CrtExportError beyond
    the 4 GiB that the header has room for.
    """
    plain = bundle(images)
    if plain.size >= _LIMIT:
        raise CrtExportError(
            f"images of {plain.size} bytes are too large for a compressed bundle",
            hint="images below 4 GiB fit; the plain container takes more",
        )
    digest = hashlib.md5(usedforsecurity=False)
    for piece in plain.chunks():
        digest.update(piece)
    size = _COMPRESSED.size + sum(map(len, _deflated(plain)))
    head = _COMPRESSED.pack(
        b"CCOB", _COMPRESSED_VERSION, _ZLIB, size, plain.size,
        int.from_bytes(digest.digest()[:8], "little"),
    )

    def chunks() -> Iterator[bytes]:
        yield head
        yield from _deflated(plain)

    return Container(size, chunks)


def _deflated(plain: Container) -> Iterator[bytes]:
    packer = zlib.compressobj(9)
    for piece in plain.chunks():
        yield packer.compress(piece)
    yield packer.flush()

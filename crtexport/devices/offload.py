"""LLVM's containers of device images: ``OffloadBinary``, which ``llvm-objdump --offloading`` lists,
and the compressed bundle (CCOB) that ``clang-offload-bundler`` takes apart.

Layouts: ``llvm/Object/OffloadBinary.h`` and clang's OffloadBundler documentation, version 2 of the
compressed format, which LLVM 17 and newer read. All numbers are little-endian.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from crtexport.devices.image import Bytes
from crtexport.errors import CrtExportError

_MAGIC = b"\x10\xff\x10\xad"
_HEADER = struct.Struct("<4sIQQQ")  # magic, version, size, entry offset, entry size
_ENTRY = struct.Struct("<HHIQQQQ")  # image and offload kind, flags, strings, image
_STRING = struct.Struct("<QQ")
_IMAGE_OBJECT = 1
_CHUNK = 1 << 20

_BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED = struct.Struct("<4sHHIIQ")  # magic, version, method, sizes, hash
_COMPRESSED_VERSION = 2
_ZLIB = 0
_LIMIT = 1 << 32
HOST_ENTRY = "host-x86_64-unknown-linux-gnu"
"""The bundler wants a host among the targets; ours has no bytes."""


@dataclass(frozen=True)
class OffloadEntry:
    """A device's image: ``triple`` and ``arch`` say for what, ``strings`` whatever else there is
    to say, such as the device's name and the program's."""

    image: Bytes
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


def offload_binaries(entries: Iterable[OffloadEntry]) -> Iterator[Bytes]:
    """The bytes of one container per entry, one after the other, in pieces."""
    for entry in entries:
        yield from _binary(entry)


def write_offload(stream: BinaryIO, entries: Iterable[OffloadEntry]) -> None:
    """Writes what :func:`offload_binaries` gives; images are never copied whole."""
    for piece in offload_binaries(entries):
        view = memoryview(piece)
        for at in range(0, len(view), _CHUNK):
            stream.write(view[at : at + _CHUNK])


def _binary(entry: OffloadEntry) -> Iterator[Bytes]:
    strings = entry.all_strings()
    strings_at = _HEADER.size + _ENTRY.size
    table_at = strings_at + _STRING.size * len(strings)
    table, records = b"", b""
    for key, value in strings.items():
        key_at = table_at + len(table)
        table += key.encode() + b"\0"
        value_at = table_at + len(table)
        table += value.encode() + b"\0"
        records += _STRING.pack(key_at, value_at)
    image_at = _round(table_at + len(table))
    size = _round(image_at + len(entry.image))
    yield _HEADER.pack(_MAGIC, 1, size, _HEADER.size, _ENTRY.size)
    yield _ENTRY.pack(
        _IMAGE_OBJECT, 0, 0, strings_at, len(strings), image_at, len(entry.image)
    )
    yield records + table + bytes(image_at - table_at - len(table))
    yield entry.image
    yield bytes(size - image_at - len(entry.image))


def _round(size: int) -> int:
    return -(-size // 8) * 8


def bundle(images: Sequence[tuple[str, Bytes]]) -> bytes:
    """A plain bundle of images by target (``openmp-thumbv7em-none-none-eabi-cortex-m4``), a host
    without bytes first."""
    whole = [(HOST_ENTRY, b""), *images]
    # As the tool itself writes them: LLVM 19 finds no others, newer ones take both.
    ids = [f"{name.rstrip('-')}-".encode() for name, _ in whole]
    at = len(_BUNDLE_MAGIC) + 8 + sum(24 + len(name) for name in ids)
    head = _BUNDLE_MAGIC + struct.pack("<Q", len(whole))
    for name, (_, image) in zip(ids, whole, strict=True):
        head += struct.pack("<QQQ", at, len(image), len(name)) + name
        at += len(image)
    return b"".join([head, *(bytes(image) for _, image in whole)])


def compressed_bundle(images: Sequence[tuple[str, Bytes]]) -> bytes:
    """The same, compressed by zlib behind a header with both sizes and a hash.

    Raises CrtExportError beyond the 4 GiB that the header has room for.
    """
    plain = bundle(images)
    packed = zlib.compress(plain, 9)
    if len(plain) >= _LIMIT:
        raise CrtExportError(
            f"images of {len(plain)} bytes are too large for a compressed bundle",
            hint="images below 4 GiB fit; the plain container takes more",
        )
    digest = int.from_bytes(hashlib.md5(plain, usedforsecurity=False).digest()[:8], "little")
    return _COMPRESSED.pack(
        b"CCOB", _COMPRESSED_VERSION, _ZLIB, _COMPRESSED.size + len(packed), len(plain), digest
    ) + packed

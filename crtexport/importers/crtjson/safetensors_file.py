"""Tensors of a .safetensors file as ranges of bytes, and writing such a file piece by piece.

The safetensors library checks a file that is read, but neither tells a tensor's offset in the file
nor writes more than fits into memory; this module does both. The format is the header's size (8
bytes, little-endian), a JSON header, and the bytes.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct
from safetensors import SafetensorError, safe_open

from crtexport.ir.types import ConstantRef, DType, TensorType
from crtexport.support.errors import CrtExportError

_NAMES = {
    DType.BOOL: "BOOL",
    DType.INT8: "I8",
    DType.UINT8: "U8",
    DType.INT16: "I16",
    DType.UINT16: "U16",
    DType.INT32: "I32",
    DType.UINT32: "U32",
    DType.INT64: "I64",
    DType.FLOAT16: "F16",
    DType.FLOAT32: "F32",
    DType.FLOAT64: "F64",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
RESERVED = "__metadata__"
"""The only name that a tensor can't have."""
_DIGEST = "crtexport-sha256"
"""The metadata key of the SHA-256 of the file with zeros in its place, which tells files written
here from those that others wrote or changed."""
_LONGEST_HEADER = 100_000_000  # of any file that safetensors reads


class TensorRange(Struct, frozen=True):
    """One tensor of a file; ``dtype`` is None for a type that no network here has."""

    dtype: DType | None
    shape: tuple[int, ...]
    constant: ConstantRef


def read_entries(path: Path) -> dict[str, TensorRange]:
    """Returns every tensor of the file by name. Raises CrtExportError when it is damaged."""
    try:
        with safe_open(path, framework="numpy"), path.open("rb") as stream:
            (size,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(size))
    except (SafetensorError, OSError, struct.error, ValueError) as error:
        raise CrtExportError(f"not a readable .safetensors file: {error}") from error
    start = 8 + size
    return {
        name: TensorRange(
            dtype=_DTYPES.get(entry["dtype"]),
            shape=tuple(entry["shape"]),
            constant=ConstantRef(
                nbytes=entry["data_offsets"][1] - entry["data_offsets"][0],
                path=path,
                offset=start + entry["data_offsets"][0],
            ),
        )
        for name, entry in header.items()
        if name != RESERVED
    }


def write_entries(stream: BinaryIO, tensors: Iterable[tuple[str, TensorType, ConstantRef]]) -> None:
    """Writes a whole file, holding one chunk of a constant at a time. Names must be unique."""
    # Wide elements first, so that all are aligned; the order is otherwise the given one.
    ordered = sorted(tensors, key=lambda tensor: -tensor[1].dtype.itemsize)
    unknown = "0" * (2 * hashlib.sha256().digest_size)
    header: dict[str, object] = {RESERVED: {_DIGEST: unknown}}
    end = 0
    for name, type_, constant in ordered:
        header[name] = {
            "dtype": _NAMES[type_.dtype],
            "shape": list(type_.shape),
            "data_offsets": [end, end + constant.nbytes],
        }
        end += constant.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    chunks = (chunk for _, _, constant in ordered for chunk in constant.chunks())
    for piece in itertools.chain([struct.pack("<Q", len(text)) + text], chunks):
        digest.update(piece)
        stream.write(piece)
    stream.seek(8 + text.index(unknown.encode()))
    stream.write(digest.hexdigest().encode())


def is_unchanged(path: Path) -> bool:
    """Returns whether :func:`write_entries` wrote the file and it is unchanged since. Raises
    OSError if it can't be read."""
    with path.open("rb") as stream:
        head = stream.read(8)
        size = int.from_bytes(head, "little")
        text = stream.read(size) if size <= _LONGEST_HEADER else b""
        try:
            told: bytes = json.loads(text)[RESERVED][_DIGEST].encode()
        except (ValueError, LookupError, TypeError, AttributeError):
            return False
        digest = hashlib.sha256(head + text.replace(told, b"0" * len(told), 1))
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest().encode() == told

"""Writes ONNX files field by field: tests need no package for it, and can write nonsense."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

CODES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7,
    "bool": 9, "float16": 10, "float64": 11, "uint32": 12,
}


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, content: bytes | str) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(data)) + data


def tensor(name: str, array: Array, *, raw: bool = True) -> bytes:
    head = b"".join(number(1, size) for size in array.shape)
    head += number(2, CODES[array.dtype.name]) + block(8, name)
    if raw:
        return head + block(9, array.tobytes())
    if array.dtype == np.float32:
        return head + block(4, array.tobytes())
    field = 7 if array.dtype == np.int64 else 5
    return head + block(field, b"".join(varint(int(v)) for v in array.reshape(-1)))


def external(name: str, shape: Sequence[int], entries: Mapping[str, str]) -> bytes:
    """A float tensor whose elements are in another file."""
    head = b"".join(number(1, size) for size in shape) + number(2, 1) + block(8, name)
    pairs = b"".join(block(13, block(1, k) + block(2, v)) for k, v in entries.items())
    return head + pairs + number(14, 1)


def attribute(name: str, value: Any) -> bytes:
    head = block(1, name)
    if isinstance(value, bool | int):
        return head + number(3, value) + number(20, 2)
    if isinstance(value, float):
        return head + b"\x15" + struct.pack("<f", value) + number(20, 1)
    if isinstance(value, str):
        return head + block(4, value) + number(20, 3)
    if isinstance(value, np.ndarray):
        return head + block(5, tensor("", value)) + number(20, 4)
    if isinstance(value, bytes):  # a graph
        return head + block(6, value) + number(20, 5)
    if value and all(isinstance(item, str) for item in value):
        return head + b"".join(block(9, item) for item in value) + number(20, 8)
    if all(isinstance(item, int) for item in value):
        return head + block(8, b"".join(map(varint, value))) + number(20, 7)
    return head + block(7, struct.pack(f"<{len(value)}f", *value)) + number(20, 6)


def node(
    operator: str, inputs: Sequence[str], outputs: Sequence[str], *, domain: str = "",
    name: str = "", references: Mapping[str, str] | None = None, **attributes: Any,
) -> bytes:
    parts = [block(1, i) for i in inputs] + [block(2, o) for o in outputs]
    parts += [block(3, name), block(4, operator), block(7, domain)]
    parts += [block(5, attribute(key, value)) for key, value in attributes.items()]
    parts += [block(5, block(1, k) + block(21, v)) for k, v in (references or {}).items()]
    return b"".join(parts)


def value(name: str, shape: Sequence[int | str | None] | None, dtype: str = "float32") -> bytes:
    dims = b""
    for size in shape or ():
        if isinstance(size, int):
            dims += block(1, number(1, size))
        else:
            dims += block(1, b"" if size is None else block(2, size))
    info = number(1, CODES[dtype]) + (b"" if shape is None else block(2, dims))
    return block(1, name) + block(2, block(1, info))


def graph(
    nodes: Sequence[bytes], inputs: Sequence[bytes], outputs: Sequence[str],
    initializers: Mapping[str, Array] | None = None, more: Sequence[bytes] = (),
) -> bytes:
    """``more`` are initializers as bytes."""
    return b"".join((
        *(block(1, n) for n in nodes), block(2, "main"),
        *(block(5, tensor(k, v)) for k, v in (initializers or {}).items()),
        *(block(5, m) for m in more), *(block(11, i) for i in inputs),
        *(block(12, block(1, o)) for o in outputs),
    ))


def opset(version: int, domain: str = "") -> bytes:
    return block(1, domain) + number(2, version)


def function(
    name: str, inputs: Sequence[str], outputs: Sequence[str], nodes: Sequence[bytes], *,
    domain: str = "mine", version: int = 17,
) -> bytes:
    return b"".join((
        block(1, name), *(block(4, i) for i in inputs), *(block(5, o) for o in outputs),
        *(block(7, n) for n in nodes), block(9, opset(version)), block(10, domain),
    ))


def model(
    content: bytes, *, version: int = 17, ir_version: int = 9, functions: Sequence[bytes] = (),
    domains: Sequence[str] = (), domain_version: int = 1,
) -> bytes:
    return b"".join((
        number(1, ir_version), block(2, "test"), block(7, content), block(8, opset(version)),
        *(block(8, opset(domain_version, domain)) for domain in domains),
        *(block(25, f) for f in functions),
    ))

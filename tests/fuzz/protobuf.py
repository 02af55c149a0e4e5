"""Damages protobuf files at places in their tree of messages: numbers, names, whole messages, and
lengths that lie. Messages around a place stay sound, so that what is read is the damage."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.importers.onnx.writer import varint

_VARINT, _LENGTH = 0, 2
_SIZES = {1: 8, 5: 4}
_DEEPEST = 12
_NAMES = (
    "", "../x", "/etc/hostname", "\0", "location", "length", "If", "Loop", "Scan", "Reshape",
    "Conv", "Gather", "Resize", "NonMaxSuppression", "Nothing", "com.microsoft", "x" * 300,
)


@dataclass
class Field:
    """``value`` is a number, the bytes of a fixed number or of a string, or a message; ``lie`` is
    what the length is said to be more than it is."""

    number: int
    kind: int
    value: int | bytes | list[Field]
    lie: int = 0


def parsed(data: bytes, depth: int = 0) -> list[Field] | None:
    """Returns the fields of a message, or None if the bytes are none. What might be one is taken as
    one."""
    fields, at = list[Field](), 0
    while at < len(data):
        tag, at = _number(data, at)
        if tag is None or tag >> 3 == 0:
            return None
        number, kind = tag >> 3, tag & 7
        size: int | None = _SIZES.get(kind)
        if kind == _VARINT:
            value, at = _number(data, at)
            if value is None:
                return None
            fields.append(Field(number, kind, value))
            continue
        if kind == _LENGTH:
            size, at = _number(data, at)
        if size is None or size > len(data) - at:
            return None
        content, at = data[at : at + size], at + size
        inner = parsed(content, depth + 1) if kind == _LENGTH and depth < _DEEPEST else None
        fields.append(Field(number, kind, inner or content))
    return fields


def _number(data: bytes, at: int) -> tuple[int | None, int]:
    value = 0
    for place in range(at, min(at + 10, len(data))):
        value |= (data[place] & 0x7F) << 7 * (place - at)
        if data[place] < 0x80:
            return value, place + 1
    return None, at


def written(fields: Sequence[Field]) -> bytes:
    """Returns the bytes of a message."""
    parts = []
    for field in fields:
        parts.append(varint(field.number << 3 | field.kind))
        if isinstance(field.value, int):
            parts.append(varint(field.value))
            continue
        content = written(field.value) if isinstance(field.value, list) else field.value
        if field.kind == _LENGTH:
            parts.append(varint(len(content) + field.lie))
        parts.append(content)
    return b"".join(parts)


def damaged_protobuf(
    rng: random.Random, content: bytes, count: int, numbers: Sequence[int]
) -> bytes:
    """Returns a file of which ``count`` places are others, some of them one of ``numbers``."""
    tree = parsed(content)
    if not tree:
        return content
    for _ in range(count):
        found = list(_places(tree))
        if found:
            _change(rng, *rng.choice(found), found, numbers)
    return written(tree)


def _places(fields: list[Field]) -> list[tuple[list[Field], int]]:
    found = []
    for place, field in enumerate(fields):
        found.append((fields, place))
        if isinstance(field.value, list):
            found += _places(field.value)
    return found


def _change(
    rng: random.Random, fields: list[Field], place: int, known: list[tuple[list[Field], int]],
    numbers: Sequence[int],
) -> None:
    field, (others, other) = fields[place], rng.choice(known)
    kind = rng.randrange(10)
    if kind <= 4 and isinstance(field.value, int):
        field.value = rng.choice((*numbers, field.value + 1, max(field.value - 1, 0)))
    elif kind <= 3 and isinstance(field.value, bytes):
        strings = [f[i].value for f, i in known if isinstance(f[i].value, bytes)]
        name = rng.choice(_NAMES).encode()
        field.value = rng.choice((rng.choice(strings), rng.choice(strings), name))
    elif kind == 4 and isinstance(field.value, bytes):
        field.value = b"".join(varint(rng.choice(numbers)) for _ in range(rng.randrange(5)))
    elif kind == 5:
        del fields[place]
    elif kind == 6:
        fields.insert(place, copy.deepcopy(field))
    elif kind == 7:
        fields[place] = copy.deepcopy(others[other])
    elif kind == 8:
        field.number = rng.choice((others[other].number, rng.randrange(1, 30)))
    else:
        field.lie = rng.choice((-1, 1, 2, 100, 1 << 20, 1 << 31, (1 << 63) - 1))

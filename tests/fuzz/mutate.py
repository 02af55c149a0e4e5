"""Damages files: bytes of any file, places in the tree of a JSON or ONNX file."""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Sequence
from typing import Any

from tests.fuzz.corpus import Seed
from tests.fuzz.protobuf import damaged_protobuf

_NUMBERS = (
    0, 1, 2, 3, 7, 8, 16, 127, 128, 255, 256, 1000, 32767, 32768, 65535, 65536, 1 << 20,
    (1 << 31) - 1, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1, -1, -2, -128, -(1 << 31),
    -(1 << 63),
)
_FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e-38, 1e-9, 0.5, 3e38, float("inf"), float("nan"))
_VALUES: tuple[Any, ...] = (
    None, True, False, "", "x", "../x", "/etc/hostname", "\ud800", "\0", '*/"', "int8", "float32",
    "int4", "bool", [], {}, [[]], [1], [1, 1], [0, 0, 0, 0], [2, 1], [1 << 40], [-1], [1e400],
    10**30, 1e300, 0.1, *_NUMBERS, *_FLOATS,
)
_DEEP = 3000


def mutant(seeds: Sequence[Seed], number: int) -> Seed:
    """The mutant of this number; the same for the same ``seeds``."""
    rng = random.Random(number)  # noqa: S311  (no secret)
    seed = seeds[rng.randrange(len(seeds))]
    # A number on its own seldom breaks two things at once.
    count = rng.choice((1, 1, 1, 1, 2, 2, 3, 6))
    if seed.beside and rng.random() < 0.2:
        name = rng.choice(sorted(seed.beside))
        damaged = damaged_bytes(rng, Seed(name, seed.beside[name]), seeds, count)
        return Seed(seed.name, seed.content, seed.dull, {**seed.beside, name: damaged})
    if seed.is_onnx and rng.random() < 0.8:
        content = damaged_protobuf(rng, seed.content, count, _NUMBERS)
        return Seed(seed.name, content, (), seed.beside)
    if seed.is_json and rng.random() < 0.8:
        return Seed(seed.name, damaged_json(rng, seed.content, count), (), seed.beside)
    return Seed(seed.name, damaged_bytes(rng, seed, seeds, count), (), seed.beside)


def damaged_bytes(rng: random.Random, seed: Seed, seeds: Sequence[Seed], count: int) -> bytes:
    """A file of which bytes are others; some come from other ``seeds``."""
    data = bytearray(seed.content)
    for _ in range(count):
        _damage(rng, data, _place(rng, seed, len(data)), seeds)
    return bytes(data)


def _place(rng: random.Random, seed: Seed, size: int) -> int:
    """A place in the file, seldom in the middle of a large constant."""
    for _ in range(20):
        place = rng.randrange(max(size, 1))
        if not any(start <= place < end for start, end in seed.dull) or rng.random() < 0.02:
            break
    return place


def _damage(rng: random.Random, data: bytearray, at: int, seeds: Sequence[Seed]) -> None:
    length = rng.choice((1, 1, 2, 4, 4, 8, 16, rng.randrange(1, 200)))
    kind = rng.randrange(12)
    if kind == 0 and data:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1 and data:
        data[at] = rng.randrange(256)
    elif kind in (2, 3, 4):
        _put(rng, data, at & ~3, "<i", "<I")
    elif kind == 5:
        _put(rng, data, at & ~1, "<h", "<H")
    elif kind == 6:
        _put(rng, data, at & ~7, "<q", "<Q")
    elif kind == 7:
        place = at & ~3
        data[place : place + 4] = struct.pack("<f", rng.choice(_FLOATS))
    elif kind == 8:
        place, source = at & ~3, rng.randrange(max(len(data), 1)) & ~3
        data[place : place + length] = data[source : source + length]
    elif kind == 9:
        del data[at : at + length]
    elif kind == 10:
        other = seeds[rng.randrange(len(seeds))].content
        start = rng.randrange(len(other)) & ~3
        data[at & ~3 : (at & ~3) + length] = other[start : start + length]
    elif rng.random() < 0.3:
        del data[at:]
    else:
        _add(rng, data, at & ~3)


def _put(rng: random.Random, data: bytearray, at: int, signed: str, unsigned: str) -> None:
    size = struct.calcsize(signed)
    value = rng.choice(_NUMBERS) & ((1 << 8 * size) - 1)
    data[at : at + size] = struct.pack(unsigned, value)


def _add(rng: random.Random, data: bytearray, at: int) -> None:
    """A small change of a number: offsets and sizes that almost fit."""
    if at + 4 <= len(data):
        (value,) = struct.unpack_from("<I", data, at)
        change = rng.choice((-4, -2, -1, 1, 2, 4, 8, 64))
        struct.pack_into("<I", data, at, (value + change) & 0xFFFFFFFF)


def change_tree(rng: random.Random, tree: Any, count: int) -> None:
    """Changes ``count`` places in a tree of lists and dictionaries."""
    for _ in range(count):
        found = places(tree)
        if not found:
            return
        parent, key = found[rng.randrange(len(found))]
        _change(rng, parent, key, found)


def damaged_json(rng: random.Random, content: bytes, count: int) -> bytes:
    """A JSON file of which places in its tree are others."""
    document = json.loads(content)
    change_tree(rng, document, count)
    if rng.random() < 0.01:
        opened = rng.choice(("[", '{"a":')) * _DEEP
        return json.dumps(document).replace("1", opened, 1).encode()
    return json.dumps(document).encode()


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Every container with every key or position in it."""
    found: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        container = waiting.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            found.append((container, key))
            if isinstance(container[key], dict | list):
                waiting.append(container[key])
    return found


def _change(
    rng: random.Random, parent: Any, key: Any, known: list[tuple[Any, Any]]
) -> None:
    kind = rng.randrange(8)
    if kind <= 2:
        parent[key] = copy.deepcopy(rng.choice(_VALUES))
    elif kind == 3:
        del parent[key]
    elif kind == 4:
        other, name = known[rng.randrange(len(known))]
        parent[key] = copy.deepcopy(other[name])
    elif kind == 5 and isinstance(parent, list):
        parent.insert(key, copy.deepcopy(parent[key]))
    elif kind == 6 and isinstance(parent[key], int | float):
        parent[key] += rng.choice((-1, 1, 2, 100, 0.5))
    elif isinstance(parent, dict):
        parent[rng.choice(("extra", "axis", "data", "variable", "quantization"))] = rng.choice(
            _VALUES
        )
    else:
        parent[key] = [parent[key]]

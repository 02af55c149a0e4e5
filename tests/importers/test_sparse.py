"""Sparse constants are read as the whole ones that the reference runtime makes of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
import tflite
from hypothesis import given
from hypothesis import strategies as st

from crtexport.importers import load
from crtexport.support.errors import CrtExportError
from tests.differential.network import interpret
from tests.schedules.layers import search
from tests.tflite_builder import ModelBuilder, run_reference

Array = np.ndarray[Any, Any]
Level = int | tuple[list[int], list[int]]
"""Of a dense level the coordinates; else segments and indices."""


@dataclass
class Sparse:
    shape: tuple[int, ...]
    order: list[int]
    blocks: list[int]
    levels: list[Level] = field(default_factory=list)
    values: Array = field(default_factory=lambda: np.zeros(0))
    vector: str = "Int32Vector"
    union: int = 0


def encoded(
    whole: Array, order: list[int], blocks: list[tuple[int, int]], dense: list[bool], vector: str
) -> Sparse:
    """``blocks`` of axes, each with its size; ``dense``: whether a level is."""
    split: list[int] = []
    outer, inner = [], {}
    for axis, size in enumerate(whole.shape):
        outer.append(len(split))
        step = dict(blocks).get(axis)
        if step is not None:
            inner[axis] = len(split) + 1
        split += [size] if step is None else [size // step, step]
    axes = [*outer, *(inner[axis] for axis, _ in blocks)]
    tree = whole.reshape(split).transpose([axes[dim] for dim in order])
    found = Sparse(whole.shape, order, [axis for axis, _ in blocks], vector=vector)
    paths: list[tuple[int, ...]] = [()]
    for every, size in zip(dense, tree.shape, strict=True):
        if every:
            paths = [(*path, i) for path in paths for i in range(size)]
            found.levels.append(size)
            continue
        listed = [[i for i in range(size) if tree[(*path, i)].any()] for path in paths]
        segments = [0, *itertools.accumulate(map(len, listed))]
        found.levels.append((segments, [i for some in listed for i in some]))
        paths = [(*path, i) for path, some in zip(paths, listed, strict=True) for i in some]
    found.values = np.array([tree[path] for path in paths], whole.dtype)
    return found


def _vector(b: flatbuffers.Builder, kind: str, values: list[int]) -> int:
    dtype = {"Int32Vector": "<i4", "Uint16Vector": "<u2", "Uint8Vector": "<u1"}[kind]
    listed = b.CreateNumpyVector(np.array(values, dtype))
    getattr(tflite, f"{kind}Start")(b)
    getattr(tflite, f"{kind}AddValues")(b, listed)
    return int(getattr(tflite, f"{kind}End")(b))


def _parameters(b: flatbuffers.Builder, sparse: Sparse) -> int:
    kind, levels = sparse.union or getattr(tflite.SparseIndexVector, sparse.vector), []
    for level in sparse.levels:
        parts = () if isinstance(level, int) else [_vector(b, sparse.vector, p) for p in level]
        tflite.DimensionMetadataStart(b)
        if isinstance(level, int):
            tflite.DimensionMetadataAddDenseSize(b, level)
        else:
            tflite.DimensionMetadataAddFormat(b, 1)
            for name, part in zip(("Segments", "Indices"), parts, strict=True):
                getattr(tflite, f"DimensionMetadataAddArray{name}Type")(b, kind)
                getattr(tflite, f"DimensionMetadataAddArray{name}")(b, part)
        levels.append(tflite.DimensionMetadataEnd(b))
    b.StartVector(4, len(levels), 4)
    for level in reversed(levels):
        b.PrependUOffsetTRelative(level)
    found = b.EndVector()
    order, blocks = (
        b.CreateNumpyVector(np.array(each, "<i4")) for each in (sparse.order, sparse.blocks)
    )
    tflite.SparsityParametersStart(b)
    tflite.SparsityParametersAddTraversalOrder(b, order)
    if sparse.blocks:
        tflite.SparsityParametersAddBlockMap(b, blocks)
    tflite.SparsityParametersAddDimMetadata(b, found)
    return int(tflite.SparsityParametersEnd(b))


def network(sparse: Sparse, dtype: str = "") -> bytes:
    """A sum of an input and the constant, whose tensor is the file's first."""
    m = ModelBuilder()
    kind = dtype or sparse.values.dtype.name
    m.tensor("w", (1,), kind, data=[0])
    m._tensors[0] = replace(m._tensors[0], shape=sparse.shape, data=sparse.values.tobytes())
    whole = m.tensor("whole", sparse.shape, kind)
    m.op("DENSIFY", [0], [whole])
    x, y = (m.tensor(name, sparse.shape) for name in "xy")
    if kind != "float32":
        real = m.tensor("real", sparse.shape)
        m.op("DEQUANTIZE", [whole], [real])
        whole = real
    m.op("ADD", [x, whole], [y])
    usual, offsets = (tflite.TensorStart, tflite.TensorAddHasRank), list[int]()

    def start(b: flatbuffers.Builder) -> None:
        offsets.append(0 if offsets else _parameters(b, sparse))
        usual[0](b)

    def rank(b: flatbuffers.Builder, has: bool) -> None:
        usual[1](b, has)
        if len(offsets) == 1:
            tflite.TensorAddSparsity(b, offsets[0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tflite, "TensorStart", start)
        patch.setattr(tflite, "TensorAddHasRank", rank)
        return m.build([x], [y])


@search(25)
@given(data=st.data())
def test_each_format_gives_what_the_reference_does(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(1, 4))
    blocks = [
        (axis, data.draw(st.integers(2, 3))) for axis in range(rank) if data.draw(st.booleans())
    ]
    shape = [data.draw(st.integers(1, 4)) * dict(blocks).get(axis, 1) for axis in range(rank)]
    # Blocks in the order of their axes: with another one the reference writes elsewhere.
    order = [*data.draw(st.permutations(range(rank))), *range(rank, rank + len(blocks))]
    dense = [data.draw(st.booleans()) for _ in range(rank)] + [True] * len(blocks)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    whole = rng.normal(size=shape) * (rng.random(shape) < data.draw(st.sampled_from([0.2, 0.7])))
    whole.flat[0] = 1.5  # a constant without bytes is none
    dtype = data.draw(st.sampled_from(["float32", "float16"]))
    vector = data.draw(st.sampled_from(["Int32Vector", "Uint16Vector", "Uint8Vector"]))
    content = network(encoded(whole.astype(dtype), order, blocks, dense, vector))
    path = tmp_path_factory.mktemp("sparse") / "m.tflite"
    path.write_bytes(content)
    x = rng.normal(size=shape).astype(np.float32)
    found = interpret(load(path), [x])[0]
    np.testing.assert_array_equal(found, run_reference(content, x)[0])
    np.testing.assert_array_equal(found, x + whole.astype(dtype).astype(np.float32))


def usual() -> Sparse:
    """3 x 4, of which 5 elements are listed, row by row."""
    whole = np.zeros((3, 4), np.float32)
    whole.flat[[0, 3, 5, 6, 10]] = range(1, 6)
    return encoded(whole, [0, 1], [], [True, False], "Int32Vector")


SEGMENTS, INDICES = ([0, 2, 4, 5], [0, 3, 1, 2, 2])
DAMAGE: dict[str, tuple[dict[str, Any], str]] = {
    "order": ({"order": [1, 0, 2]}, "are no order of 2 dimensions"),
    "dense": ({"levels": [5, (SEGMENTS, INDICES)]}, "a level has 5 coordinates, not 3"),
    "segments": ({"levels": [3, ([0, 2, 1, 5], INDICES)]}, "coordinates of a level don't fit"),
    "indices": ({"levels": [3, (SEGMENTS, [4, *INDICES[1:]])]}, "of a level don't fit"),
    "twice": (
        {"levels": [3, ([0, 13, 13, 13], [0] * 13)], "values": np.ones(13, np.float32)},
        "more elements are listed than there are",
    ),
    "union": ({"union": 9}, "a level has no coordinates"),
    "values": ({"values": np.ones(4, np.float32)}, "4 values for 5 elements"),
    "blocks": (
        {"order": [0, 1, 2], "blocks": [1], "levels": [3, (SEGMENTS, INDICES), 3]},
        "blocks of 3 don't fill 4",
    ),
    "size": ({"shape": (1 << 14, 1 << 14)}, "is too large"),
}


@pytest.mark.parametrize(("change", "message"), DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_format_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    assert usual().levels == [3, (SEGMENTS, INDICES)]
    path = tmp_path / "m.tflite"
    path.write_bytes(network(replace(usual(), **change)))
    with pytest.raises(CrtExportError, match=message):
        load(path)


def test_sparse_fields_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(network(usual(), "int4"))
    with pytest.raises(CrtExportError, match="sparse int4 tensors are not supported"):
        load(path)

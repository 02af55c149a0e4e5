"""Operators of .tflite files that move elements: what is read, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crtexport.importers import load
from crtexport.ir.graph import Graph
from crtexport.ir.ops import Gather, Op, Slice, Split, Transpose
from crtexport.support.errors import CrtExportError
from tests.tflite_builder import ModelBuilder


def read(
    folder: Path, code: str, shape: tuple[int, ...], given: list[Any], out: tuple[int, ...],
    *, data_at: int = 0, outputs: int = 1, **options: Any,
) -> Graph:
    """A network of one operator whose other inputs are int32 constants."""
    m = ModelBuilder()
    x = m.tensor("x", shape)
    others = [
        m.tensor(f"c{i}", np.shape(values), "int32", data=values)
        for i, values in enumerate(given)
    ]
    results = [m.tensor(f"y{i}", out) for i in range(outputs)]
    m.op(code, [*others[:data_at], x, *others[data_at:]], results, **options)
    path = folder / "model.tflite"
    path.write_bytes(m.build([x], results))
    return load(path)


Reading = Callable[[Path], Graph]

GOOD: list[tuple[Reading, Op]] = [
    (
        lambda f: read(f, "SLICE", (4, 3), [[1, 0], [-1, 2]], (3, 2)),
        Slice((1, 0), (3, 2), (1, 1), (3, 2)),
    ),
    (
        lambda f: read(
            f, "STRIDED_SLICE", (4, 3), [[-1, 0], [-9, 9], [-2, 1]], (2, 3), end_mask=1
        ),
        Slice((3, 0), (2, 3), (-2, 1), (2, 3)),
    ),
    (
        lambda f: read(
            f, "STRIDED_SLICE", (4, 3), [[0, 0, 1], [0, 0, 2], [1, 1, 1]], (1, 4),
            ellipsis_mask=2, new_axis_mask=1, shrink_axis_mask=4,
        ),
        Slice((0, 1), (4, 1), (1, 1), (1, 4)),
    ),
    (
        lambda f: read(f, "STRIDED_SLICE", (5,), [[1], [2], [1]], (2,), offset=True),
        Slice((1,), (2,), (1,), (2,)),
    ),
    (
        lambda f: read(f, "REVERSE_V2", (4, 3), [[-1]], (4, 3)),
        Slice((0, 2), (4, 3), (1, -1), (4, 3)),
    ),
    (
        lambda f: read(f, "REVERSE_V2", (4, 3, 5), [[0, -1]], (4, 3, 5)),
        Slice((3, 0, 4), (4, 3, 5), (-1, 1, -1), (4, 3, 5)),
    ),
    (
        lambda f: read(f, "SPLIT", (4, 6), [-1], (4, 3), data_at=1, outputs=2, num_splits=2),
        Split(1, (3, 3)),
    ),
    (lambda f: read(f, "TRANSPOSE", (4, 6), [[-1, 0]], (6, 4)), Transpose((1, 0))),
    (lambda f: read(f, "TRANSPOSE", (), [[]], ()), Transpose(())),
    (
        lambda f: read(f, "GATHER", (2, 3), [[[0], [1]]], (2, 1), axis=-1, batch_dims=-1),
        Gather(1, 1),
    ),
]


@pytest.mark.parametrize(("reading", "op"), GOOD)
def test_attributes(reading: Reading, op: Op, tmp_path: Path) -> None:
    (node,) = reading(tmp_path).nodes
    assert node.op == op


BAD: list[tuple[Reading, str]] = [
    (lambda f: read(f, "SLICE", (4, 3), [[1], [2]], (2,)), "1 numbers for"),
    (lambda f: read(f, "SLICE", (4,), [[1], [9]], (9,)), "elements 1 to 9 of 4"),
    (lambda f: read(f, "STRIDED_SLICE", (4,), [[0], [1], [0]], (1,)), "a stride of 0"),
    (lambda f: read(f, "STRIDED_SLICE", (4,), [[0, 0], [1, 1], [1, 1]], (1,)), "2 ranges for 1"),
    (lambda f: read(f, "STRIDED_SLICE", (4,), [[0], [1, 1], [1]], (1,)), "differ in number"),
    (
        lambda f: read(f, "STRIDED_SLICE", (4,), [[5], [6], [1]], (), shrink_axis_mask=1),
        "element 5 of 4",
    ),
    (lambda f: read(f, "SPLIT", (3,), [0], (1,), data_at=1, outputs=2), "2 equal parts"),
    (lambda f: read(f, "SPLIT", (4,), [[0, 0]], (2,), data_at=1, outputs=2), "one number"),
    (lambda f: read(f, "SPLIT_V", (4,), [[1, 2], 0], (1,), outputs=2, version=1), "no parts"),
    (lambda f: read(f, "UNPACK", (4,), [], (), outputs=3, axis=0, num=3), "expected 4 outputs"),
    (lambda f: read(f, "UNPACK", (4,), [], (), outputs=4, axis=1, num=4), "axis 1"),
    (lambda f: read(f, "TRANSPOSE", (4, 2), [[0, 2]], (4, 2)), "axis 2"),
    (lambda f: read(f, "MIRROR_PAD", (4,), [[1, 1]], (6,)), "must be pairs"),
    (lambda f: read(f, "PADV2", (4,), [[[1, 1]]], (6,)), r"input 2 \(value\) is missing"),
    (lambda f: read(f, "TILE", (4,), [[-1]], (4,)), "can't be repeated"),
    (lambda f: read(f, "RESIZE_BILINEAR", (1, 2, 2, 1), [[2]], (1, 2, 2, 1)), "rows and columns"),
    (lambda f: read(f, "SPACE_TO_DEPTH", (1, 2, 2, 1), [], (1, 1, 1, 4)), "blocks of 0"),
]


@pytest.mark.parametrize(("reading", "problem"), BAD)
def test_what_makes_no_sense_is_refused(reading: Reading, problem: str, tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match=problem):
        reading(tmp_path)

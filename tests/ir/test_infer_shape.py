"""Output types of operators that move elements or resize images."""

from __future__ import annotations

import pytest

from crtexport.ir.infer import infer
from crtexport.ir.ops import (
    BatchToSpaceNd,
    BroadcastTo,
    DepthToSpace,
    DynamicUpdateSlice,
    Gather,
    GatherNd,
    MirrorPad,
    Op,
    Pack,
    PadV2,
    ResizeBilinear,
    ResizeNearestNeighbor,
    Slice,
    SpaceToBatchNd,
    SpaceToDepth,
    Split,
    Tile,
    Transpose,
    Unpack,
)
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError

Types = tuple[TensorType, ...]
Shapes = list[tuple[int, ...]]


def real(*shape: int) -> TensorType:
    return TensorType(DType.FLOAT32, shape)


def index(*shape: int) -> TensorType:
    return TensorType(DType.INT32, shape)


GOOD: list[tuple[Op, Types, Shapes]] = [
    (PadV2(((1, 0), (0, 2))), (real(2, 3), real(1)), [(3, 5)]),
    (MirrorPad(((1, 1), (0, 2))), (real(2, 3),), [(4, 5)]),
    (MirrorPad(((2, 2),), symmetric=True), (real(2),), [(6,)]),
    (Pack(1), (real(2, 3), real(2, 3)), [(2, 2, 3)]),
    (Pack(0), (real(),), [(1,)]),
    (Split(1, (1, 2)), (real(2, 3),), [(2, 1), (2, 2)]),
    (Unpack(0), (real(2, 3),), [(3,), (3,)]),
    (Slice((1, 2), (2, 2), (1, -2), (4,)), (real(3, 4),), [(4,)]),
    (Slice((), (), (), (1, 1)), (real(),), [(1, 1)]),
    (Transpose((2, 0, 1)), (real(2, 3, 4),), [(4, 2, 3)]),
    (BroadcastTo((2, 4, 3)), (real(4, 1),), [(2, 4, 3)]),
    (Tile((2, 0)), (real(2, 3),), [(4, 0)]),
    (SpaceToDepth(2), (real(1, 4, 6, 3),), [(1, 2, 3, 12)]),
    (DepthToSpace(2), (real(1, 2, 3, 12),), [(1, 4, 6, 3)]),
    (SpaceToBatchNd((2, 3), ((1, 1), (0, 1))), (real(2, 4, 5, 7),), [(12, 3, 2, 7)]),
    (BatchToSpaceNd((2, 3), ((1, 1), (0, 1))), (real(12, 3, 2, 7),), [(2, 4, 5, 7)]),
    (Gather(1), (real(2, 3, 4), index(5, 6)), [(2, 5, 6, 4)]),
    (Gather(1, 1), (real(2, 3, 4), index(2, 6)), [(2, 6, 4)]),
    (GatherNd(), (real(2, 3, 4), index(5, 2)), [(5, 4)]),
    (DynamicUpdateSlice(), (real(2, 3), real(1, 3), index(2)), [(2, 3)]),
    (ResizeBilinear((5, 7)), (real(1, 2, 3, 4),), [(1, 5, 7, 4)]),
    (ResizeNearestNeighbor((1, 2)), (real(1, 2, 3, 4),), [(1, 1, 2, 4)]),
]


@pytest.mark.parametrize(("op", "types", "expected"), GOOD)
def test_shapes(op: Op, types: Types, expected: Shapes) -> None:
    results = infer(op, types, declared=(DType.FLOAT32,) * len(expected))
    assert [result.shape for result in results] == expected
    assert {result.dtype for result in results} == {DType.FLOAT32}


BAD: list[tuple[Op, Types, str]] = [
    (PadV2(((1, 0),)), (real(2), real(2)), "no single element"),
    (MirrorPad(((2, 0),)), (real(2),), "paddings of 2 for 2 elements"),
    (MirrorPad(((3, 0),), symmetric=True), (real(2),), "paddings of 3"),
    (Pack(0), (real(2), real(3)), "the inputs differ"),
    (Pack(3), (real(2),), "a new axis 3"),
    (Split(0, (1, 2)), (real(2),), "no parts of the 2"),
    (Split(0, (-1, 3)), (real(2),), "no parts"),
    (Split(1, (1,)), (real(1),), "axis 1"),
    (Unpack(0), (real(3, 2),), "expected 3 outputs, found 2"),
    (Unpack(2), (real(3, 2),), "axis 2"),
    (Slice((1,), (2,), (1,), (2,)), (real(2),), "elements 1 to 2 of 2"),
    (Slice((1,), (3,), (-1,), (3,)), (real(2),), "elements 1 to -1"),
    (Slice((0,), (1,), (0,), (1,)), (real(2),), "strides"),
    (Slice((0,), (2,), (1,), (3,)), (real(2),), "can't become"),
    (Slice((0, 0), (2,), (1,), (2,)), (real(2),), "2 begins"),
    (Transpose((0, 0)), (real(2, 3),), "no order of the axes"),
    (Transpose((0,)), (real(2, 3),), "no order of the axes"),
    (BroadcastTo((3,)), (real(2),), "can't be repeated"),
    (BroadcastTo((3,)), (real(1, 3),), "can't be repeated"),
    (Tile((2,)), (real(2, 3),), "can't be repeated"),
    (Tile((-1,)), (real(2),), "can't be repeated"),
    (SpaceToDepth(2), (real(1, 3, 2, 1),), "no whole blocks"),
    (SpaceToDepth(0), (real(1, 3, 2, 1),), "no whole blocks"),
    (DepthToSpace(2), (real(1, 3, 2, 3),), "no blocks"),
    (DepthToSpace(2), (real(3, 2, 4),), "4 dimensions"),
    (SpaceToBatchNd((2,), ((0, 0),)), (real(1, 3, 1),), "no whole blocks of 2"),
    (SpaceToBatchNd((0,), ((0, 0),)), (real(1, 3, 1),), "blocks"),
    (SpaceToBatchNd((1, 1), ((0, 0),)), (real(1, 3, 1),), "blocks"),
    (BatchToSpaceNd((2,), ((0, 0),)), (real(3, 3, 1),), "no 2 batches"),
    (BatchToSpaceNd((2,), ((4, 3),)), (real(2, 3, 1),), "can't be cut off"),
    (Gather(2), (real(2, 3), index(1)), "axis 2"),
    (Gather(0, 1), (real(2, 3), index(2)), "batch dimensions"),
    (Gather(1, 1), (real(2, 3), index(3)), "differ in their batch dimensions"),
    (Gather(), (real(2, 3), real(3)), "indices must be integers"),
    (Gather(), (real(0, 3), index(1)), "nothing to take"),
    (GatherNd(), (real(2, 3), index(4, 3)), "must give positions"),
    (GatherNd(), (real(2, 0), index(4, 2)), "nothing to take"),
    (DynamicUpdateSlice(), (real(2, 3), real(3, 3), index(2)), "is no part of"),
    (DynamicUpdateSlice(), (real(2, 3), real(3), index(2)), "is no part of"),
    (DynamicUpdateSlice(), (real(2, 3), real(1, 3), index(3)), "is no position in"),
    (DynamicUpdateSlice(), (real(2, 3), real(1, 3), real(2)), "indices must be integers"),
    (ResizeBilinear((0, 2)), (real(1, 2, 3, 4),), "at least 1"),
    (ResizeBilinear((2, 2), True, True), (real(1, 2, 3, 4),), "exclude each other"),
    (ResizeNearestNeighbor((2, 2)), (real(2, 3, 4),), "4 dimensions"),
]


@pytest.mark.parametrize(("op", "types", "problem"), BAD)
def test_what_does_not_fit_is_said(op: Op, types: Types, problem: str) -> None:
    with pytest.raises(CrtExportError, match=problem):
        infer(op, types, declared=(DType.FLOAT32,) * 2)

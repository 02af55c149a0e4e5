"""TensorFlow Lite's encoding of operators that move elements, and those that resize images."""

from __future__ import annotations

from collections.abc import Mapping

import tflite

from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node
from crtexport.simulation.tflite_form import Former, TfliteForm, by_operator, integers
from crtexport.support.errors import CrtExportError

VERSIONS = {"BROADCAST_TO": 2, "DYNAMIC_UPDATE_SLICE": 1, "SPLIT_V": 2}
"""Versions of operators that don't depend on the element type."""


def _slice(graph: Graph, node: Node) -> TfliteForm:
    op = node.op
    if not isinstance(op, ops.Slice):
        raise TypeError(op)
    if op.shape == op.size and set(op.stride) <= {1}:
        return TfliteForm("SLICE", "SliceOptions", steering=(integers(op.begin), integers(op.size)))
    entries = _entries(op.size, op.shape)
    if entries is None:
        raise CrtExportError(
            f"TensorFlow Lite has no slice of {list(op.size)} that becomes {list(op.shape)}, so"
            " its runtimes can't serve as a reference",
            location=(graph.source, str(node)),
            hint="use a Reshape of its own",
        )
    ranges = iter(zip(op.begin, op.size, op.stride, strict=True))
    rows: list[tuple[int, int, int]] = []
    masks = {"EndMask": 0, "ShrinkAxisMask": 0, "NewAxisMask": 0}
    for entry, kind in enumerate(entries):
        if kind == "new":
            rows.append((0, 0, 1))
            masks["NewAxisMask"] |= 1 << entry
            continue
        begin, size, stride = next(ranges)
        if kind == "dropped":
            stride = 1  # runtimes read wrong cells with any other one
        end = begin + size * stride
        rows.append((begin, end, stride))
        # An end of -1 would mean the last cell.
        masks["EndMask"] |= (end < 0) << entry
        masks["ShrinkAxisMask"] |= (kind == "dropped") << entry
    columns = zip(*rows, strict=True)
    return TfliteForm(
        "STRIDED_SLICE", "StridedSliceOptions", masks, tuple(integers(c) for c in columns)
    )


def _entries(size: tuple[int, ...], shape: tuple[int, ...]) -> list[str] | None:
    """Returns which axes stay, are dropped or are new between ``size`` and ``shape``; None if
    others change."""
    if not size and not shape:
        return []
    found: list[str] | None = None
    if size and shape and size[0] == shape[0]:
        found = _entries(size[1:], shape[1:])
        if found is not None:
            return ["kept", *found]
    if size and size[0] == 1:
        found = _entries(size[1:], shape)
        if found is not None:
            return ["dropped", *found]
    if shape and shape[0] == 1:
        found = _entries(size, shape[1:])
        if found is not None:
            return ["new", *found]
    return None


def _unpack(_graph: Graph, node: Node) -> TfliteForm:
    op = node.op
    if not isinstance(op, ops.Unpack):
        raise TypeError(op)
    return TfliteForm("UNPACK", "UnpackOptions", {"Axis": op.axis, "Num": len(node.outputs)})


def _pack(_graph: Graph, node: Node) -> TfliteForm:
    op = node.op
    if not isinstance(op, ops.Pack):
        raise TypeError(op)
    return TfliteForm("PACK", "PackOptions", {"Axis": op.axis, "ValuesCount": len(node.inputs)})


def _resize(code: str) -> Former:
    return by_operator(lambda op: TfliteForm(
        code, "ResizeBilinearOptions" if code == "RESIZE_BILINEAR"
        else "ResizeNearestNeighborOptions",
        {"AlignCorners": op.align_corners, "HalfPixelCenters": op.half_pixel_centers},
        (integers(op.size),),
    ))


def _mirror_pad(op: ops.MirrorPad) -> TfliteForm:
    mode = tflite.MirrorPadMode.SYMMETRIC if op.symmetric else tflite.MirrorPadMode.REFLECT
    return TfliteForm(
        "MIRROR_PAD", "MirrorPadOptions", {"Mode": mode},
        (integers(op.paddings).reshape(-1, 2),),
    )


def _transpose(op: ops.Transpose) -> TfliteForm:
    if not op.permutation:  # runtimes crash or never return on scalars
        return TfliteForm("RESHAPE", "ReshapeOptions", {"NewShape": integers(())})
    return TfliteForm("TRANSPOSE", "TransposeOptions", steering=(integers(op.permutation),))


FORMERS: Mapping[type[ops.Op], Former] = {
    ops.Slice: _slice,
    ops.Pack: _pack,
    ops.Unpack: _unpack,
    ops.PadV2: by_operator(lambda op: TfliteForm(
        "PADV2", "PadV2Options", between=(integers(op.paddings).reshape(-1, 2),)
    )),
    ops.MirrorPad: by_operator(_mirror_pad),
    ops.Split: by_operator(lambda op: TfliteForm(
        "SPLIT_V", "SplitVOptions", {"NumSplits": len(op.sizes)},
        (integers(op.sizes), integers(op.axis)),
    )),
    ops.Transpose: by_operator(_transpose),
    ops.BroadcastTo: by_operator(lambda op: TfliteForm(
        "BROADCAST_TO", "BroadcastToOptions", steering=(integers(op.shape),)
    )),
    ops.Tile: by_operator(lambda op: TfliteForm(
        "TILE", "TileOptions", steering=(integers(op.multiples),)
    )),
    ops.SpaceToDepth: by_operator(lambda op: TfliteForm(
        "SPACE_TO_DEPTH", "SpaceToDepthOptions", {"BlockSize": op.block_size}
    )),
    ops.DepthToSpace: by_operator(lambda op: TfliteForm(
        "DEPTH_TO_SPACE", "DepthToSpaceOptions", {"BlockSize": op.block_size}
    )),
    ops.SpaceToBatchNd: by_operator(lambda op: TfliteForm(
        "SPACE_TO_BATCH_ND", "SpaceToBatchNDOptions",
        steering=(integers(op.block), integers(op.paddings).reshape(-1, 2)),
    )),
    ops.BatchToSpaceNd: by_operator(lambda op: TfliteForm(
        "BATCH_TO_SPACE_ND", "BatchToSpaceNDOptions",
        steering=(integers(op.block), integers(op.crops).reshape(-1, 2)),
    )),
    ops.Gather: by_operator(lambda op: TfliteForm(
        "GATHER", "GatherOptions", {"Axis": op.axis, "BatchDims": op.batch_dims}
    )),
    ops.GatherNd: by_operator(lambda _: TfliteForm("GATHER_ND", "GatherNdOptions")),
    ops.DynamicUpdateSlice: by_operator(lambda _: TfliteForm(
        "DYNAMIC_UPDATE_SLICE", "DynamicUpdateSliceOptions"
    )),
    ops.ResizeBilinear: _resize("RESIZE_BILINEAR"),
    ops.ResizeNearestNeighbor: _resize("RESIZE_NEAREST_NEIGHBOR"),
}
"""The writers of this family, by operator."""

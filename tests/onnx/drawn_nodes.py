"""Draws single nodes of ONNX: shapes whose sizes mostly differ, some of them 1, and attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.importers.onnx.writer import block, graph, node, value
from tests.onnx.draws import Array, Draw, DrawnNode, ints

VERSION = 21
"""Of the operators."""


def _strided(d: Draw, axes: int, kernel: tuple[int, ...]) -> dict[str, Any]:
    """Attributes of windows; pads are smaller than the kernel."""
    found: dict[str, Any] = {"strides": [d.between(1, 3) for _ in range(axes)]}
    if d.maybe():
        found["dilations"] = [d.between(1, 2) for _ in range(axes)]
    where = d.between(0, 3)
    if where == 0:
        found["auto_pad"] = d.one("SAME_UPPER", "SAME_LOWER", "VALID")
        found.pop("dilations", None)
    elif where > 1:
        found["pads"] = [d.between(0, (kernel * 2)[i] - 1) for i in range(2 * axes)]
    return found


def conv(d: Draw) -> DrawnNode:
    axes, group = d.one(1, 2, 2, 2), d.one(1, 1, 2, 3)
    own, made = d.between(1, 3), d.between(1, 3)
    kernel = tuple(d.between(1, 3) for _ in range(axes))
    x = d.floats((d.one(1, 1, 2), own * group, *d.shape(axes, 6, 9)))
    weights = d.floats((made * group, own, *kernel))
    bias = [d.floats((made * group,))] if d.maybe() else []
    return DrawnNode("Conv", [x, weights, *bias], {
        **_strided(d, axes, kernel), "group": group, "kernel_shape": list(kernel),
    })


def conv_transpose(d: Draw) -> DrawnNode:
    axes, group = d.one(1, 2, 2), d.one(1, 1, 2)
    own, made = d.between(1, 3), d.between(1, 3)
    kernel = tuple(d.between(1, 3) for _ in range(axes))
    x = d.floats((1, own * group, *d.shape(axes, 3, 6)))
    weights = d.floats((own * group, made, *kernel))
    attributes = _strided(d, axes, kernel)
    if "auto_pad" in attributes:  # windows that meet: else the runtime's shape isn't the standard's
        attributes["strides"] = [d.between(1, size) for size in kernel]
    if "pads" in attributes:
        attributes["pads"] = [d.between(0, 1) for _ in range(2 * axes)]
        if d.maybe():
            attributes["output_padding"] = [d.between(0, s - 1) for s in attributes["strides"]]
        elif d.maybe():
            # What it says takes the place of the pads.
            del attributes["pads"]
            spread = attributes.get("dilations", [1] * axes)
            attributes["output_shape"] = [
                max((size - 1) * stride + (taps - 1) * gap + 1 - d.between(0, 2), 1)
                for size, stride, taps, gap in zip(
                    x.shape[2:], attributes["strides"], kernel, spread, strict=True
                )
            ]
            attributes["auto_pad"] = d.one("NOTSET", "SAME_UPPER", "SAME_LOWER")
    return DrawnNode("ConvTranspose", [x, weights], {**attributes, "group": group})


def pool(d: Draw) -> DrawnNode:
    operator, axes = d.one("MaxPool", "AveragePool", "LpPool"), d.one(1, 2, 2, 2)
    kernel = tuple(d.between(1, 3) for _ in range(axes))
    attributes = {"kernel_shape": list(kernel), **_strided(d, axes, kernel)}
    if "auto_pad" in attributes:  # the runtime refuses windows that don't meet
        attributes["strides"] = [d.between(1, size) for size in kernel]
    elif d.maybe():
        attributes["ceil_mode"] = 1
    if operator == "AveragePool":
        attributes["count_include_pad"] = d.between(0, 1)
    if operator == "LpPool":
        attributes["p"] = d.between(1, 3)
    x = d.floats((d.one(1, 2), *d.shape(axes + 1, 5, 9)))
    return DrawnNode(operator, [x], attributes)


def resize_nearest(d: Draw) -> DrawnNode:
    return _resize(d, "nearest")


def resize_linear(d: Draw) -> DrawnNode:
    return _resize(d, "linear")


def resize_cubic(d: Draw) -> DrawnNode:
    return _resize(d, "cubic")


def _resize(d: Draw, mode: str) -> DrawnNode:
    rank = 4 if mode == "cubic" else d.between(3, 4)
    shape = (*d.shape(2, 1, 3), *d.shape(rank - 2, 2, 7))
    attributes = {
        "mode": mode, "coordinate_transformation_mode": d.one(
            "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric",
            "half_pixel_symmetric",
        ),
    }
    if mode == "nearest":
        attributes["nearest_mode"] = d.one("round_prefer_floor", "round_prefer_ceil", "floor",
                                           "ceil")
    elif mode == "cubic":
        attributes["exclude_outside"] = d.between(0, 1)
        attributes["cubic_coeff_a"] = d.one(-0.75, -0.5)
    inside = [d.one(1, d.between(1, 12)) for _ in shape[2:]] if d.maybe() else [1] * (rank - 2)
    if d.maybe():
        sizes = ints([*shape[:2], *inside])
        return DrawnNode("Resize", [d.floats(shape), None, None, sizes], attributes)
    # By the standard this depends on the fraction of a pixel that is cut off, elsewhere it doesn't.
    if attributes["coordinate_transformation_mode"] == "align_corners":
        attributes["coordinate_transformation_mode"] = "asymmetric"
    scales = np.array([1, 1, *(d.one(0.5, 0.6, 1.5, 2, 2.7) for _ in inside)], np.float32)
    return DrawnNode("Resize", [d.floats(shape), None, scales], attributes)


def pad(d: Draw) -> DrawnNode:
    shape = d.shape(d.between(1, 4), 3)
    mode = d.one("constant", "reflect", "edge", "wrap")
    axes = d.axes(len(shape)) if d.maybe() else list(range(len(shape)))
    pads = ints([d.between(-1 if mode == "constant" else 0, 2) for _ in range(2 * len(axes))])
    value = np.array(1.5, np.float32) if d.maybe() else None
    given = [ints(axes)] if axes != [*range(len(shape))] else []
    return DrawnNode("Pad", [d.floats(shape), pads, value, *given], {"mode": mode})


def slice_(d: Draw) -> DrawnNode:
    shape = d.shape(d.between(1, 4), 3)
    axes = d.axes(len(shape))
    starts, ends, steps = [], [], []
    for axis in axes:
        size, step = shape[axis], d.one(1, 1, 2, 3, -1, -2)
        low, high = sorted((d.between(0, size - 1), d.between(0, size - 1)))
        start, end = (low, high + 1) if step > 0 else (high, low - 1 if low else -size - 1)
        starts.append(start - size if d.maybe() else start)
        ends.append(end if step < 0 or d.maybe() else d.one(end, end + 100 * (end == size)))
        steps.append(step)
        if step < 0 and 0 <= end < size and d.maybe():
            ends[-1] -= size
    return DrawnNode("Slice", [d.floats(shape), *map(ints, (starts, ends, axes, steps))], {})


def gather(d: Draw) -> DrawnNode:
    shape = d.shape(d.between(1, 4))
    axis = d.axis(len(shape))
    places = d.integers(-shape[axis], shape[axis] - 1, d.shape(d.between(0, 2), 1, 4))
    computed = d.one((0,), (0, 1))
    return DrawnNode("Gather", [d.floats(shape), places], {"axis": axis}, computed)


def gather_elements(d: Draw) -> DrawnNode:
    shape = d.shape(d.between(1, 4))
    axis = d.axis(len(shape))
    of = [*shape]
    of[axis] = d.between(1, 6)
    places = d.integers(-shape[axis], shape[axis] - 1, tuple(of))
    return DrawnNode("GatherElements", [d.floats(shape), places], {"axis": axis}, (0, 1))


def gather_nd(d: Draw) -> DrawnNode:
    shape = d.shape(d.between(2, 4))
    batch = d.between(0, min(len(shape) - 1, 1))
    depth = d.between(1, len(shape) - batch)
    rows = (*shape[:batch], d.between(1, 4))
    places = np.stack(
        [d.integers(-size, size - 1, rows) for size in shape[batch : batch + depth]], -1
    )
    return DrawnNode("GatherND", [d.floats(shape), places], {"batch_dims": batch}, (0, 1))


def _numbers(d: Draw, dtype: Any, shape: tuple[int, ...]) -> Array:
    return d.floats(shape) if dtype is np.float32 else d.integers(-9, 9, shape, dtype)


def scatter_elements(d: Draw) -> DrawnNode:
    shape = d.shape(d.between(1, 3), 2, 6)
    axis, reduction = d.axis(len(shape)), d.one("none", "add", "mul", "max", "min")
    dtype = d.one(np.float32, np.float32, np.int32, np.int8)
    of = [*shape]
    of[axis] = d.between(1, shape[axis])
    order = np.argsort(d.rng.random(shape), axis)  # no place twice
    places = np.take(order, np.arange(of[axis]), axis).astype(np.int64)
    return DrawnNode(
        "ScatterElements", [_numbers(d, dtype, shape), places, _numbers(d, dtype, tuple(of))],
        {"axis": axis, "reduction": reduction}, d.one((0, 2), (0, 1, 2)),
    )


def scatter_nd(d: Draw) -> DrawnNode:
    shape = d.shape(d.between(2, 3), 2, 6)
    depth = d.between(1, len(shape))
    total = int(np.prod(shape[:depth]))
    rows = d.rng.permutation(total)[: d.between(1, min(total, 5))]
    places = np.stack(np.unravel_index(rows, shape[:depth]), -1).astype(np.int64)
    dtype = d.one(np.float32, np.float32, np.int32, np.int8)
    updates = _numbers(d, dtype, (len(rows), *shape[depth:]))
    return DrawnNode(
        "ScatterND", [_numbers(d, dtype, shape), places, updates],
        {"reduction": d.one("none", "add", "mul", "max", "min")}, d.one((0, 2), (0, 1, 2)),
    )


def reduce(d: Draw) -> DrawnNode:
    shape = d.shape(d.between(1, 4))
    operator = d.one(
        "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
        "ReduceSumSquare", "ReduceLogSumExp",
    )
    axes = d.one([], [ints(d.axes(len(shape)))])
    attributes = {"keepdims": d.between(0, 1), "noop_with_empty_axes": d.between(0, 1)}
    if not axes and attributes["noop_with_empty_axes"]:
        attributes["noop_with_empty_axes"] = 0
    return DrawnNode(operator, [d.floats(shape), *axes], attributes)


def arg(d: Draw) -> DrawnNode:
    shape = d.shape(d.between(1, 4))
    x = d.integers(-3, 3, shape, np.float32)  # some are equal
    return DrawnNode(d.one("ArgMax", "ArgMin"), [x], {
        "axis": d.axis(len(shape)), "keepdims": d.between(0, 1),
        "select_last_index": d.between(0, 1),
    })


def top_k(d: Draw) -> DrawnNode:
    shape = d.shape(d.between(1, 4))
    axis = d.axis(len(shape))
    count = ints([d.between(1, shape[axis])])
    x = d.integers(-3, 3, shape, np.float32)
    return DrawnNode("TopK", [x, count], {"axis": axis, "largest": d.between(0, 1)}, outputs=2)


def cumulative(d: Draw) -> DrawnNode:
    shape = d.shape(d.between(1, 4))
    return DrawnNode("CumSum", [d.floats(shape), np.array(d.axis(len(shape)), np.int64)], {
        "exclusive": d.between(0, 1), "reverse": d.between(0, 1),
    })


def softmax(d: Draw) -> DrawnNode:
    shape = d.shape(d.between(1, 4))
    return DrawnNode(
        d.one("Softmax", "LogSoftmax", "Hardmax"), [d.floats(shape)], {"axis": d.axis(len(shape))}
    )


def elementwise(d: Draw) -> DrawnNode:
    """Two operands, either of which may be repeated along axes, or lack the first ones."""
    shape = d.shape(d.between(1, 4))
    pair = []
    for _ in range(2):
        cut = [size if d.between(0, 2) else 1 for size in shape][d.between(0, len(shape)) // 2 :]
        pair.append(d.floats(tuple(cut)))
    operator = d.one("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "PRelu", "Greater", "Equal")
    if operator == "Pow":
        pair = [np.abs(pair[0]) + np.float32(0.1), pair[1]]
    if operator == "PRelu":  # the slope is what may be repeated
        pair[0] = d.floats(shape)
        return DrawnNode(operator, pair, {})
    return DrawnNode(operator, [*pair], {}, d.one((0,), (1,), (0, 1)))


def concat(d: Draw) -> DrawnNode:
    shape = [*d.shape(d.between(1, 4))]
    axis = d.axis(len(shape))
    parts: list[Array | None] = []
    for _ in range(d.between(1, 4)):
        shape[axis] = d.between(1, 4)
        parts.append(d.floats(tuple(shape)))
    return DrawnNode("Concat", parts, {"axis": axis}, d.one((0,), tuple(range(len(parts)))))


def split(d: Draw) -> DrawnNode:
    shape = d.shape(d.between(1, 4), 3)
    axis = d.axis(len(shape))
    if d.maybe():
        size = -(-shape[axis] // d.between(2, 3))
        count = -(-shape[axis] // size)  # the last part may be smaller
        return DrawnNode("Split", [d.floats(shape)], {"axis": axis, "num_outputs": count},
                         outputs=count)
    first = d.between(1, shape[axis] - 1)
    return DrawnNode("Split", [d.floats(shape), ints([first, shape[axis] - first])],
                     {"axis": axis}, outputs=2)


def transpose(d: Draw) -> DrawnNode:
    shape = d.shape(d.between(1, 5))
    perm = [int(a) for a in d.rng.permutation(len(shape))]
    return DrawnNode("Transpose", [d.floats(shape)], d.one({}, {"perm": perm}))


def matmul(d: Draw) -> DrawnNode:
    m, k, n = d.shape(3)
    lead = d.shape(d.between(0, 2), 1, 3)
    a, b = d.one(
        ((*lead, m, k), (k, n)), ((m, k), (*lead, k, n)), ((*lead, m, k), (*lead, k, n)),
        ((k,), (*lead, k, n)), ((*lead, m, k), (k,)), ((k,), (k,)),
    )
    return DrawnNode("MatMul", [d.floats(a), d.floats(b)], {}, d.one((0,), (1,), (0, 1)))


def gemm(d: Draw) -> DrawnNode:
    m, k, n = d.shape(3)
    if d.maybe():  # a column of as many numbers as there are units
        n = m
    a_turned, b_turned = d.maybe(), d.maybe()
    a = d.floats((k, m) if a_turned else (m, k))
    b = d.floats((n, k) if b_turned else (k, n))
    c = d.one([], [d.floats(d.one((), (n,), (1, n), (m, 1), (m, 1), (m, n)))])
    return DrawnNode("Gemm", [a, b, *c], {
        "transA": int(a_turned), "transB": int(b_turned), "alpha": d.one(1.0, 0.5),
        "beta": d.one(1.0, 2.5),
    }, d.one((0,), (1,), (0, 1)))


def layer_normalization(d: Draw) -> DrawnNode:
    shape = d.shape(d.between(2, 4))
    axis = d.axis(len(shape))
    kept = shape[axis:]
    return DrawnNode("LayerNormalization", [d.floats(shape), d.floats(kept), d.floats(kept)],
                     {"axis": axis, "epsilon": d.one(1e-5, 0.1)})


def group_normalization(d: Draw) -> DrawnNode:
    groups, own = d.between(1, 3), d.between(1, 3)
    channels = groups * own
    x = d.floats((d.one(1, 2), channels, *d.shape(2)))
    return DrawnNode("GroupNormalization", [x, d.floats((channels,)), d.floats((channels,))],
                     {"num_groups": groups, "epsilon": d.one(1e-5, 0.1)})


def instance_normalization(d: Draw) -> DrawnNode:
    x = d.floats((d.one(1, 2), *d.shape(d.between(2, 3))))
    channels = x.shape[1]
    return DrawnNode("InstanceNormalization", [x, d.floats((channels,)), d.floats((channels,))],
                     {"epsilon": d.one(1e-5, 0.1)})


def batch_normalization(d: Draw) -> DrawnNode:
    x = d.floats((1, *d.shape(d.between(1, 3))))
    channels = x.shape[1]
    positive = d.rng.uniform(0.5, 2, channels).astype(np.float32)
    of = [d.floats((channels,)) for _ in range(3)]
    return DrawnNode("BatchNormalization", [x, *of, positive], {"epsilon": d.one(1e-5, 0.1)})


def local_normalization(d: Draw) -> DrawnNode:
    return DrawnNode("LRN", [d.floats(d.shape(4))], {
        "size": d.one(1, 3, 5), "alpha": 0.3, "beta": 0.6, "bias": 1.5,
    })


def lp_normalization(d: Draw) -> DrawnNode:
    x = d.floats(d.shape(d.between(1, 4)))
    return DrawnNode("LpNormalization", [x], {"axis": d.axis(x.ndim), "p": d.between(1, 2)})


def tile(d: Draw) -> DrawnNode:
    shape = d.shape(d.between(1, 4))
    return DrawnNode("Tile", [d.floats(shape), d.integers(1, 3, (len(shape),))], {})


def expand(d: Draw) -> DrawnNode:
    whole = d.shape(d.between(1, 4))
    cut = tuple(s if d.maybe() else 1 for s in whole)[d.between(0, len(whole) - 1) :]
    wanted = [w if d.maybe() or c != w else 1 for w, c in zip(
        whole, (*(0,) * (len(whole) - len(cut)), *cut), strict=True
    )]
    return DrawnNode("Expand", [d.floats(cut), ints(wanted)], {})


def depth_to_space(d: Draw) -> DrawnNode:
    size, (depth, height, width) = d.between(2, 3), d.shape(3, 1, 4)
    if d.maybe():
        return DrawnNode("SpaceToDepth", [d.floats((1, depth, height * size, width * size))],
                         {"blocksize": size})
    return DrawnNode("DepthToSpace", [d.floats((1, depth * size * size, height, width))],
                     {"blocksize": size, "mode": d.one("DCR", "CRD")})


def where(d: Draw) -> DrawnNode:
    shape = d.shape(d.between(1, 4))
    of = [tuple(s if d.between(0, 2) else 1 for s in shape) for _ in range(3)]
    chosen = d.integers(0, 1, of[0], np.bool_)
    return DrawnNode("Where", [chosen, d.floats(of[1]), d.floats(of[2])], {},
                     d.one((0,), (0, 1), (0, 1, 2)))


def one_hot(d: Draw) -> DrawnNode:
    depth = d.between(2, 5)
    x = d.integers(-depth, depth - 1, d.shape(d.between(1, 3)))
    values = np.array([0.5, 2.5], np.float32)
    return DrawnNode("OneHot", [x, ints(depth), values], {"axis": d.axis(x.ndim + 1)})


def trilu(d: Draw) -> DrawnNode:
    shape = d.shape(d.between(2, 3), 2, 6)
    return DrawnNode("Trilu", [d.floats(shape), ints(d.between(-3, 3))], {"upper": d.between(0, 1)})


def clip(d: Draw) -> DrawnNode:
    low = np.array(-0.5, np.float32) if d.maybe() else None
    high = [np.array(0.7, np.float32)] if d.maybe() else []
    return DrawnNode("Clip", [d.floats(d.shape(d.between(1, 4))), low, *high], {})


def einsum(d: Draw) -> DrawnNode:
    a, b, c, e = d.shape(4, 2, 5)
    equation, shapes = d.one(
        ("ij,jk->ik", ((a, b), (b, c))), ("ij,kj->ki", ((a, b), (c, b))),
        ("bij,bkj->bik", ((e, a, b), (e, c, b))), ("bij,jk->bki", ((e, a, b), (b, c))),
        ("bhqd,bkhd->bhqk", ((2, a, b, c), (2, e, a, c))), ("i,j->ij", ((a,), (b,))),
        ("ijk->kj", ((a, b, c),)), ("...ij,...jk->...ik", ((e, a, b), (e, b, c))),
        ("...ij,jk", ((2, e, a, b), (b, c))), ("i...,j...->...ij", ((a, 1, e), (b, c, e))),
        ("ij,jk,kl->il", ((a, b), (b, c), (c, e))), ("...i->...", ((e, a, b),)),
    )
    return DrawnNode("Einsum", [d.floats(s) for s in shapes], {"equation": equation},
                     tuple(range(len(shapes))))


def grid_sample(d: Draw) -> DrawnNode:
    x = d.floats((1, *d.shape(3, 2, 6)))
    grid = d.rng.uniform(-1.2, 1.2, (1, *d.shape(2, 2, 5), 2)).astype(np.float32)
    return DrawnNode("GridSample", [x, grid], {
        "mode": d.one("linear", "nearest", "cubic"), "align_corners": d.between(0, 1),
        "padding_mode": d.one("zeros", "border", "reflection"),
    }, (0, 1))


def recurrent(d: Draw) -> DrawnNode:
    operator, gates = d.one(("LSTM", 4), ("GRU", 3), ("RNN", 1))
    direction = d.one("forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    steps, batch, depth, size = d.between(1, 4), d.one(1, 2), d.between(1, 4), d.between(1, 4)
    given: list[Array | None] = [
        d.floats((steps, batch, depth)), d.floats((ways, gates * size, depth)),
        d.floats((ways, gates * size, size)),
        d.floats((ways, 2 * gates * size)) if d.maybe() else None,
    ]
    computed: tuple[int, ...] = (0,)
    if d.maybe():
        given += [None, d.floats((ways, batch, size))]
        computed = d.one((0,), (0, 5))
        if operator == "LSTM":
            given.append(d.floats((ways, batch, size)))
            computed = d.one((0,), (0, 5, 6))
            if d.maybe():
                given.append(d.floats((ways, 3 * size)))
    attributes = {"hidden_size": size, "direction": direction}
    if operator == "GRU":
        attributes["linear_before_reset"] = d.between(0, 1)
    if d.between(0, 2) == 0:
        attributes["clip"] = 0.7
    return DrawnNode(operator, given, attributes, computed, 3 if operator == "LSTM" else 2)


def scan(d: Draw) -> DrawnNode:
    """Sums of what comes, from either end and along any axis, and a product of each step."""
    shape = d.shape(d.between(1, 3))
    axis, way, after = d.between(0, len(shape) - 1), d.between(0, 1), d.between(0, len(shape) - 1)
    one = [size for i, size in enumerate(shape) if i != axis]
    body = graph(
        [node("Add", ["s", "x"], ["t"]), node("Mul", ["t", "x"], ["o"])],
        [value("s", one), value("x", one)], [],
    ) + block(12, value("t", one)) + block(12, value("o", one))
    return DrawnNode("Scan", [d.floats(tuple(one)), d.floats(shape)], {
        "body": body, "num_scan_inputs": 1, "scan_input_axes": [axis],
        "scan_input_directions": [way], "scan_output_axes": [after],
        "scan_output_directions": [d.between(0, 1)],
    }, d.one((1,), (0, 1)), outputs=2)


DRAWS: tuple[Callable[[Draw], DrawnNode], ...] = (
    conv, conv_transpose, pool, resize_nearest, resize_linear, resize_cubic, pad, slice_, gather,
    gather_elements, gather_nd, scatter_elements, scatter_nd, reduce, arg, top_k, cumulative,
    softmax, elementwise, concat, split, transpose, matmul, gemm, layer_normalization,
    group_normalization, instance_normalization, batch_normalization, local_normalization,
    lp_normalization, tile, expand, depth_to_space, where, one_hot, trilu, clip, einsum,
    grid_sample, recurrent, scan,
)

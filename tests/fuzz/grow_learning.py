"""Nodes of classical machine learning, and images read at computed places."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crtexport.ir import ops
from crtexport.ir.ops import Op
from crtexport.ir.types import TensorType
from tests.fuzz.growing import F32, Growing, full


def trees(g: Growing) -> None:
    x = g.pick((F32,), full, rank=2)
    width, count, leaves = g.type(x).shape[1], g.draw.integer(1, 6), g.draw.integer(1, 5)
    rng = g.draw.numpy()

    def child(after: int) -> int:
        inner = after + 1 < count and g.draw.chance(60)
        return g.draw.integer(after + 1, count - 1) if inner else ~g.draw.integer(0, leaves - 1)

    features = rng.integers(-width if g.draw.chance(40) else 0, width, count)
    children = np.array([(child(node), child(node)) for node in range(count)], np.int16)
    roots = np.array([child(-1) for _ in range(g.draw.integer(1, 3))], np.int16)
    g.add(
        ops.TreeEnsemble(), x, g.constant(features.astype(np.int16)),
        g.constant((rng.integers(-9, 10, count) / 4).astype(np.float32)), g.constant(children),
        g.constant(roots),
        g.constant((rng.integers(-9, 10, (leaves, g.draw.integer(1, 3))) / 4).astype(np.float32)),
    )


def squared_distance(g: Growing) -> None:
    x = g.pick((F32,), full, rank=2)
    width = g.type(x).shape[1]
    centers = g.find(lambda t: t.dtype is F32 and len(t.shape) == 2 and t.shape[1] == width)
    if centers is None or g.draw.chance(60):
        centers = g.fresh(TensorType(F32, (g.draw.size(5), width)))
    g.add(ops.SquaredDistance(), x, centers)


def pairwise_coupling(g: Growing) -> None:
    rows, classes = g.draw.size(4), g.draw.integer(2, 5)
    wins = g.draw.numpy().integers(1, 16, (rows, classes, classes)) / 16
    wins[:, *np.diag_indices(classes)] = 0
    g.add(ops.PairwiseCoupling(), g.constant(wins.astype(np.float32)))


def sample(g: Growing) -> None:
    x = g.pick((F32,), lambda t: full(t) and len(t.shape) >= 3)
    shape = g.type(x).shape
    places = g.fresh(TensorType(F32, (shape[0], g.draw.size(5), len(shape) - 2)))
    g.add(
        ops.Sample(g.draw.choice(tuple(ops.Interpolation)), g.draw.choice(tuple(ops.Outside))),
        x, places,
    )


PRODUCERS: dict[type[Op], Callable[[Growing], None]] = {
    ops.TreeEnsemble: trees, ops.SquaredDistance: squared_distance,
    ops.PairwiseCoupling: pairwise_coupling,
    ops.Sample: sample,
}

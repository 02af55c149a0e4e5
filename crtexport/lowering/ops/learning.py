"""TreeEnsemble and SquaredDistance."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.ir.ops import SquaredDistance, TreeEnsemble
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    add,
    and_,
    cast,
    clamp,
    const,
    f32,
    flat_index,
    le,
    load,
    lt,
    min_,
    mul,
    ne,
    or_,
    select,
    sub,
)
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.registry import Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import same_types

Array = npt.NDArray[Any]


class _Forest(Struct, frozen=True):
    """The constants of a TreeEnsemble, as int64 and float32."""

    features: Array
    thresholds: Array
    children: Array
    roots: Array

    @classmethod
    def of(cls, context: Context) -> _Forest:
        features, children, roots = (
            context.values(i).astype(np.int64) for i in (1, 3, 4)
        )
        return cls(features, context.values(2), children, roots)

    @property
    def nodes(self) -> int:
        return len(self.features)

    def depth(self) -> int:
        """Returns the largest number of comparisons on a path; children come after their node."""
        depths = np.zeros(self.nodes, np.int64)
        for node in range(self.nodes - 1, -1, -1):
            inner = [child for child in self.children[node] if child >= 0]
            depths[node] = 1 + max((depths[child] for child in inner), default=0)
        return int(max((depths[root] for root in self.roots if root >= 0), default=0))


def forest_is_sound(context: Context) -> str | None:
    """The tables of trees must be constants; children come after their nodes, and all numbers are
    of features, nodes and leaves that there are."""
    for position in range(1, 6):
        if context.graph.constant(context.graph.required(context.node, position)) is None:
            return f"input {position} is computed"
    forest = _Forest.of(context)
    width, leaves = context.input(0).shape[1], context.input(5).shape[0]
    places = np.where(forest.features < 0, ~forest.features, forest.features)
    if places.max() >= width:
        return f"feature {places.max()} of {width}"
    for table in (forest.children, forest.roots):
        if table.max() >= forest.nodes or (~table).max() >= leaves:
            return "a node or a leaf that isn't there"
    parents = np.arange(forest.nodes)[:, None]
    if ((forest.children >= 0) & (forest.children <= parents)).any():
        return "a child before its node"
    return None


def float_features(context: Context) -> str | None:
    """The features must be float32."""
    found = context.input(0).dtype
    return None if found is DType.FLOAT32 else f"found {found.value}"


@lowers(TreeEnsemble, float_features, forest_is_sound)
def trees(context: Context) -> Lowered:
    """Walks down tables, as many steps as the deepest tree has; a leaf stays where it is.

    Children are numbered on: leaf n is number ``nodes + n``.
    """
    lowering = Lowering("trees", context)
    b, forest = lowering.b, _Forest.of(context)
    (rows, width), (leaves, targets) = context.input(0).shape, context.input(5).shape
    source = lowering.input(0, "input")
    missing = bool((forest.features < 0).any())
    kind = Scalar.U8 if width <= (128 if missing else 256) else Scalar.U16
    marked = np.where(forest.features < 0, ~forest.features + _mark(kind), forest.features)
    features = lowering.derived(
        "features", kind, marked.astype(np.uint8 if kind is Scalar.U8 else np.uint16)
    )
    thresholds = lowering.input(2, "thresholds")
    children = _numbers(lowering, "children", forest, forest.children, leaves)
    roots = _numbers(lowering, "roots", forest, forest.roots, leaves)
    values, output = lowering.input(5, "leaves"), lowering.output()
    with b.loop("row", rows) as row:
        with b.loop("k", targets) as k:
            b.store(output, flat_index([row, k], (rows, targets)), f32(0.0))
        with b.loop("tree", len(forest.roots)) as tree:
            at = b.local("node", cast(load(roots, tree), Scalar.U32))
            inner = lt(at, const(forest.nodes, Scalar.U32))
            with b.loop("step", forest.depth()), b.if_(inner):
                inside = b.let("here", cast(
                    min_(at, const(forest.nodes - 1, Scalar.U32)), Scalar.INDEX
                ))
                number = b.let("number", cast(load(features, inside), Scalar.INDEX))
                x = b.let("x", load(source, add(
                    mul(row, const(width)), _place(number, kind, width, missing=missing)
                )))
                left = le(x, load(thresholds, inside))
                if missing:
                    given = le(const(_mark(kind)), number)
                    left = or_(left, and_(given, ne(x, x)))
                side = select(left, const(0), const(1))
                child = load(children, add(mul(inside, const(2)), side))
                b.assign(at, cast(child, Scalar.U32))
            beyond = sub(cast(at, Scalar.INDEX), const(forest.nodes))
            leaf = b.let("leaf", clamp(beyond, 0, leaves - 1))
            with b.loop("k", targets) as k:
                place = flat_index([row, k], (rows, targets))
                value = load(values, flat_index([leaf, k], (leaves, targets)))
                b.store(output, place, add(load(output, place), value))
    return lowering.finish()


def _mark(kind: Scalar) -> int:
    """The bit of nodes where NaN goes left."""
    return 1 << (8 * kind.itemsize - 1)


def _place(number: Expr, kind: Scalar, width: int, *, missing: bool) -> Expr:
    place = and_(number, const(_mark(kind) - 1)) if missing else number
    return min_(place, const(width - 1))


def _numbers(
    lowering: Lowering, name: str, forest: _Forest, table: Array, leaves: int
) -> Buffer:
    """A table of nodes and leaves in one row of numbers."""
    numbers = np.where(table < 0, forest.nodes + ~table, table)
    if forest.nodes + leaves <= 1 << 16:
        return lowering.derived(name, Scalar.U16, numbers.astype(np.uint16))
    return lowering.derived(name, Scalar.I32, numbers.astype(np.int32))


@lowers(SquaredDistance, same_types(DType.FLOAT32))
def squared_distance(context: Context) -> Lowered:
    """Sums of squared differences."""
    lowering = Lowering("squared_distance", context)
    b = lowering.b
    (rows, width), (centers, _) = context.input(0).shape, context.input(1).shape
    source, others = lowering.input(0, "input"), lowering.input(1, "centers")
    output = lowering.output()
    with b.loop("row", rows) as row, b.loop("j", centers) as j:
        total = b.local("total", f32(0.0))
        with b.loop("i", width) as i:
            a = load(source, flat_index([row, i], (rows, width)))
            z = load(others, flat_index([j, i], (centers, width)))
            difference = b.let("difference", sub(a, z))
            b.assign(total, add(total, mul(difference, difference)))
        b.store(output, flat_index([row, j], (rows, centers)), total)
    return lowering.finish()

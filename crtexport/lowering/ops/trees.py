"""TreeEnsemble: as tables that are walked down, or as nested comparisons."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.ir.ops import TreeEnsemble
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    add,
    and_,
    cast,
    const,
    f32,
    flat_index,
    i32,
    le,
    load,
    lt,
    max_,
    min_,
    mul,
    ne,
    or_,
    select,
    sub,
)
from crtexport.kir.language import Buffer, Expr, Scalar, Var
from crtexport.lowering.registry import Context, Lowered, Lowering, lowers

Array = npt.NDArray[Any]


class Forest(Struct, frozen=True):
    """The constants of a TreeEnsemble, as int64 and float32; leaf n is the child ~n."""

    features: Array
    thresholds: Array
    children: Array
    roots: Array

    @classmethod
    def of(cls, context: Context) -> Forest:
        features, children, roots = (
            context.values(i).astype(np.int64) for i in (1, 3, 4)
        )
        return cls(features, context.values(2), children, roots)

    @property
    def nodes(self) -> int:
        return len(self.features)

    def depth(self) -> int:
        """Returns the largest number of comparisons on a path; children come after their node."""
        return self._at_roots(max, max)

    def comparisons(self) -> int:
        """Returns the number of comparisons where nodes with several parents are there for each."""
        return self._at_roots(sum, sum)

    def _at_roots(
        self, of_children: Callable[[list[int]], int], of_roots: Callable[[list[int]], int]
    ) -> int:
        found = [0] * self.nodes
        children, roots = self.children.tolist(), self.roots.tolist()
        for node in range(self.nodes - 1, -1, -1):
            below = [found[child] if child >= 0 else 0 for child in children[node]]
            found[node] = 1 + of_children(below)
        return of_roots([found[root] if root >= 0 else 0 for root in roots])


def forest_is_sound(context: Context) -> str | None:
    """The tables of trees must be constants; children come after their nodes, and all numbers are
    of features, nodes and leaves that there are."""
    for position in range(1, 6):
        if context.graph.constant(context.graph.required(context.node, position)) is None:
            return f"input {position} is computed"
    forest = Forest.of(context)
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
def tables(context: Context) -> Lowered:
    """Walks down tables, as many steps as the deepest tree has; a leaf stays where it is."""
    return _TreeTables(Lowering("trees", context)).lower()


def comparisons(context: Context) -> Lowered:
    """Compares features with constants in nested branches, each of which ends in a leaf."""
    return _Comparisons(Lowering("compared_trees", context)).lower()


class _Trees(ABC):
    """Sums of leaves, tree by tree."""

    def __init__(self, lowering: Lowering) -> None:
        self.lowering, self.b, self.forest = lowering, lowering.b, Forest.of(lowering.context)
        self.rows, self.width = lowering.context.input(0).shape
        self.leaves, self.targets = lowering.context.input(5).shape
        self.source = lowering.input(0, "input")
        self.missing = bool((self.forest.features < 0).any())

    @abstractmethod
    def prepare(self) -> None:
        """Declares tables."""

    @abstractmethod
    def trees(self, row: Expr) -> Iterator[Expr]:
        """Yields the leaves of the row's trees, one after the other."""

    def lower(self) -> Lowered:
        b, shape = self.b, (self.rows, self.targets)
        self.prepare()
        value, output = self.floats(5, "leaves"), self.lowering.output()
        with b.loop("row", self.rows) as row:
            with b.loop("k", self.targets) as k:
                b.store(output, flat_index([row, k], shape), f32(0.0))
            for leaf in self.trees(row):
                with b.loop("k", self.targets) as k:
                    place = flat_index([row, k], shape)
                    part = value(flat_index([leaf, k], (self.leaves, self.targets)))
                    b.store(output, place, add(load(output, place), part))
        return self.lowering.finish()

    def goes_left(self, place: Expr, threshold: Expr, nan_goes_left: Expr | None) -> Expr:
        """Returns an i1: whether a feature is at most ``threshold``, or NaN and ``nan_goes_left``
        (an i1; None: never) is set."""
        x = self.b.let("x", load(self.source, place))
        left = le(x, threshold)
        return left if nan_goes_left is None else or_(left, and_(nan_goes_left, ne(x, x)))

    def table(self, name: str, values: Array, note: str = "") -> Buffer:
        """Returns a table of numbers from 0 on, which have as few bytes as they need."""
        for kind, stored in ((Scalar.U8, np.uint8), (Scalar.U16, np.uint16)):
            if values.max() <= np.iinfo(stored).max:
                return self.lowering.derived(name, kind, values.astype(stored), note)
        return self.lowering.derived(name, Scalar.I32, values.astype(np.int32), note)

    def floats(self, position: int, name: str) -> Callable[[Expr], Expr]:
        """Returns what gives an element of a constant input. Where it is smaller, each of its
        values is there once, with their numbers beside them."""
        bits = self.lowering.context.values(position).view(np.uint32)
        distinct, numbers = np.unique(bits, return_inverse=True)
        missing = (1 << (len(distinct) - 1).bit_length()) - len(distinct)
        if 16 * missing < bits.size:  # among 2^n numbers one instruction keeps a number
            distinct = np.pad(distinct, (0, missing))
        size = 1 if len(distinct) <= 1 << 8 else 2 if len(distinct) <= 1 << 16 else 4
        if 4 * len(distinct) + size * bits.size >= 4 * bits.size:
            values = self.lowering.input(position, name)
            return lambda index: load(values, index)
        codes = self.table(f"{name}_numbers", numbers.reshape(bits.shape))
        values = self.lowering.derived(name, Scalar.F32, distinct.view(np.float32))
        return lambda index: load(values, _below(len(distinct), load(codes, index)))


def _below(size: int, number: Expr) -> Expr:
    """Returns a number of a table as an index below ``size``, which it is; bounds are proven
    without tables' contents."""
    number = cast(number, Scalar.U32)
    last = const(size - 1, Scalar.U32)
    return cast((min_ if size & (size - 1) else and_)(number, last), Scalar.INDEX)


class _TreeTables(_Trees):
    """Children are numbered on: leaf n is number ``nodes + n``."""

    def prepare(self) -> None:
        forest, nodes = self.forest, self.forest.nodes
        self.mark = 1 << (self.width - 1).bit_length()
        places = np.where(forest.features < 0, ~forest.features + self.mark, forest.features)
        self.features = self.table("features", places)
        self.threshold = self.floats(2, "thresholds")
        self.children = self.table("children", _numbered(forest.children, nodes))
        self.roots = self.table("roots", _numbered(forest.roots, nodes))

    def trees(self, row: Expr) -> Iterator[Expr]:
        b, nodes = self.b, self.forest.nodes
        with b.loop("tree", len(self.forest.roots)) as tree:
            at = b.local("node", cast(load(self.roots, tree), Scalar.I32))
            with b.loop("step", self.forest.depth()):
                here = b.let("here", cast(at, Scalar.U32))
                inner = lt(here, const(nodes, Scalar.U32))
                with b.if_(inner):
                    self._step(row, at, cast(here, Scalar.INDEX))
            beyond = max_(sub(at, i32(nodes)), i32(0))
            yield b.let("leaf", _below(self.leaves, beyond))

    def _step(self, row: Expr, at: Var, here: Expr) -> None:
        """Assigns a child of the inner node ``here`` to ``at``."""
        b, mark = self.b, const(self.mark, Scalar.U32)
        number = b.let("number", cast(load(self.features, here), Scalar.U32))
        given = le(mark, number) if self.missing else None
        place = and_(number, sub(mark, const(1, Scalar.U32))) if self.missing else number
        left = self.goes_left(
            add(mul(row, const(self.width)), _below(self.width, place)), self.threshold(here),
            given,
        )
        child = add(mul(here, const(2)), select(left, const(0), const(1)))
        b.assign(at, cast(load(self.children, child), Scalar.I32))


def _numbered(children: Array, nodes: int) -> Array:
    return np.where(children < 0, nodes + ~children, children)


class _Comparisons(_Trees):
    def prepare(self) -> None:
        pass

    def trees(self, row: Expr) -> Iterator[Expr]:
        for root in self.forest.roots.tolist():
            leaf = self.b.local("leaf", const(0, Scalar.U32))
            self._descend(root, row, leaf)
            yield self.b.let("at_leaf", _below(self.leaves, leaf))

    def _descend(self, child: int, row: Expr, leaf: Var) -> None:
        b, forest = self.b, self.forest
        if child < 0:
            b.assign(leaf, const(~child, Scalar.U32))
            return
        feature = int(forest.features[child])
        place = add(mul(row, const(self.width)), const(~feature if feature < 0 else feature))
        given = const(1, Scalar.I1) if feature < 0 else None
        left, right = forest.children[child].tolist()
        with b.if_(self.goes_left(place, f32(float(forest.thresholds[child])), given)):
            self._descend(left, row, leaf)
        with b.else_():
            self._descend(right, row, leaf)

"""Decision trees of ONNX files as the tables that the operator TreeEnsemble has."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.support.errors import CrtExportError

Array = npt.NDArray[Any]

MODES = (
    "BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ",
    "BRANCH_MEMBER",
)
"""Comparisons, in the order of their numbers in TreeEnsemble."""
LEAF = "LEAF"
_MOST = 1 << 20


class TreeBranch(Struct, frozen=True):
    """A node that compares a feature by ``mode`` with ``values`` (one, or several of which it may
    be a member); ``nan_is_true``: NaN goes the way of what holds."""

    feature: int
    mode: str
    values: tuple[float, ...]
    true: Hashable
    false: Hashable
    nan_is_true: bool = False


class TreeTables(Struct, frozen=True):
    """The constants of a TreeEnsemble, in the order of its inputs."""

    features: Array
    thresholds: Array
    children: Array
    roots: Array
    leaves: Array


def tables(
    roots: Iterable[Hashable], branches: Mapping[Any, TreeBranch], leaves: Mapping[Any, Array],
    width: int,
) -> TreeTables:
    """Returns the tables of the trees with the roots ``roots``. ``branches`` and ``leaves`` are by
    any keys that roots and branches refer to; equal leaves are stored once. Raises CrtExportError
    for references to missing branches, leaves or features, and for cycles."""
    made = _Tables(branches, leaves, width)
    return made.finish([made.tree(root) for root in roots])


class _Tables:
    def __init__(
        self, branches: Mapping[Any, TreeBranch], leaves: Mapping[Any, Array], width: int
    ) -> None:
        self.branches, self.leaves, self.width = branches, leaves, width
        self.features: list[int] = []
        self.thresholds: list[np.float32] = []
        self.children: list[list[int]] = []
        self.rows: dict[bytes, int] = {}

    def tree(self, root: Hashable) -> int:
        """Adds a tree, a node before its children; returns the number of its root."""
        holder = [0]
        stack: list[tuple[Hashable | TreeBranch, list[int], int]] = [(root, holder, 0)]
        while stack:
            name, place, side = stack.pop()
            branch = name if isinstance(name, TreeBranch) else self.branches.get(name)
            if branch is None:
                place[side] = ~self._leaf(name)
                continue
            if len(self.features) >= _MOST:
                raise CrtExportError(f"the trees go in circles, or have more than {_MOST} nodes")
            if not 0 <= branch.feature < self.width:
                raise CrtExportError(f"feature {branch.feature} of {self.width}")
            threshold, left, right, nan_left = _simple(branch)
            place[side] = len(self.features)
            self.features.append(~branch.feature if nan_left else branch.feature)
            self.thresholds.append(threshold)
            pair = [0, 0]
            self.children.append(pair)
            stack += [(right, pair, 1), (left, pair, 0)]
        return holder[0]

    def _leaf(self, name: Hashable) -> int:
        row = self.leaves.get(name)
        if row is None:
            raise CrtExportError(f"the trees have no node {name}")
        return self.rows.setdefault(row.astype(np.float32).tobytes(), len(self.rows))

    def finish(self, roots: list[int]) -> TreeTables:
        if not roots:
            raise CrtExportError("there are no trees")
        if not self.features:  # trees of one leaf
            self.features, self.thresholds = [0], [np.float32(0)]
            self.children = [[roots[0], roots[0]]]
        values = [np.frombuffer(row, np.float32) for row in self.rows]
        kind = np.int16 if max(len(values), len(self.features)) < 1 << 15 else np.int32
        return TreeTables(
            np.array(self.features, kind), np.array(self.thresholds, np.float32),
            np.array(self.children, kind), np.array(roots, kind), np.stack(values),
        )


def _simple(branch: TreeBranch) -> tuple[np.float32, Any, Any, bool]:
    """Returns a branch as a threshold, what is left for numbers up to it, what is right for others,
    and whether NaN goes left."""
    value = np.float32(branch.values[0]) if branch.values else np.float32(np.nan)
    below = np.nextafter(value, np.float32(-np.inf))
    true, false, nan = branch.true, branch.false, branch.nan_is_true
    match branch.mode:
        case "BRANCH_LEQ":
            return value, true, false, nan
        case "BRANCH_LT":
            return below, true, false, nan
        case "BRANCH_GTE":
            return below, false, true, not nan
        case "BRANCH_GT":
            return value, false, true, not nan
        case "BRANCH_EQ":
            # Up to the value, but not up to the number below it.
            inner = TreeBranch(branch.feature, "BRANCH_GT", (float(below),), true, false, nan)
            return value, inner, false, nan
        case "BRANCH_NEQ":
            inner = TreeBranch(branch.feature, "BRANCH_LEQ", (float(below),), true, false, nan)
            return value, inner, true, nan
        case "BRANCH_MEMBER" if branch.values:
            rest: Hashable = false
            for member in branch.values[1:]:
                rest = TreeBranch(branch.feature, "BRANCH_EQ", (member,), true, rest, nan)
            first = TreeBranch(branch.feature, "BRANCH_EQ", (float(value),), true, rest, nan)
            return _simple(first)
        case _:
            raise CrtExportError(f"the comparison {branch.mode!r} is not supported")

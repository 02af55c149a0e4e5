"""TreeEnsembleClassifier, TreeEnsembleRegressor and TreeEnsemble of ai.onnx.ml."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.importers.onnx.domains import LEARNING
from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.numbers import combined
from crtexport.importers.onnx.operators.scores import (
    binary_scores,
    class_labels,
    largest,
    matrix,
    picked,
    transformed,
)
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.trees import LEAF, MODES, TreeBranch, tables
from crtexport.importers.onnx.values import Value
from crtexport.ir.ops import Add, Concatenation, Greater, Maximum, Minimum, TreeEnsemble
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

Array = npt.NDArray[Any]
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_START = {"MIN": np.inf, "MAX": -np.inf}


def _floats(node: OnnxNode, name: str) -> Array:
    """Returns an attribute that is a list of floats, or a tensor under a longer name."""
    tensor = node.tensor(f"{name}_as_tensor")
    if tensor is not None:
        return node.array(tensor, name).astype(np.float64).reshape(-1)
    return np.array(node.reals(name, ()), np.float64)


def _same_length(**lists: Sequence[Any] | Array) -> None:
    lengths = {len(entries) for entries in lists.values()}
    if len(lengths) > 1:
        raise CrtExportError(f"lists of different lengths: {', '.join(lists)}")


def _branches(node: OnnxNode) -> tuple[dict[tuple[int, int], TreeBranch], list[tuple[int, int]]]:
    """Returns the inner nodes, and all nodes, by tree and number."""
    names = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    columns = [node.numbers(f"nodes_{name}", ()) for name in names]
    values, modes = _floats(node, "nodes_values"), node.texts("nodes_modes", ())
    tracks = node.numbers("nodes_missing_value_tracks_true", ()) or (0,) * len(modes)
    node.ignore("nodes_hitrates", "nodes_hitrates_as_tensor")
    _same_length(**dict(zip(names, columns, strict=True)), values=values, modes=modes,
                 missing=tracks)
    found, names_of = {}, []
    for tree, number, feature, true, false, value, mode, nan in zip(
        *columns, values, modes, tracks, strict=True
    ):
        names_of.append((tree, number))
        if mode != LEAF:
            found[tree, number] = TreeBranch(
                feature, mode, (float(value),), (tree, true), (tree, false), bool(nan)
            )
    return found, names_of


def _leaves(
    node: OnnxNode, prefix: str, all_nodes: Sequence[tuple[int, int]],
    branches: Mapping[tuple[int, int], TreeBranch], columns: Mapping[int, int], scale: float = 1.0,
    start: float = 0.0,
) -> dict[tuple[int, int], Array]:
    """Returns the numbers of the leaves; ``columns``: the place of each target. ``start``: the
    number of a target that a leaf doesn't mention."""
    trees, numbers = node.numbers(f"{prefix}_treeids", ()), node.numbers(f"{prefix}_nodeids", ())
    ids, weights = node.numbers(f"{prefix}_ids", ()), _floats(node, f"{prefix}_weights")
    _same_length(treeids=trees, nodeids=numbers, ids=ids, weights=weights)
    width = max(columns.values()) + 1
    leaves = {name: np.full(width, start) for name in all_nodes if name not in branches}
    for tree, number, target, weight in zip(trees, numbers, ids, weights, strict=True):
        row = leaves.get((tree, number))
        if row is not None:
            if target not in columns:
                raise CrtExportError(f"a leaf of target {target} of {len(columns)}")
            before = row[columns[target]]
            row[columns[target]] = weight * scale + (before if np.isfinite(before) else 0)
    return leaves


def _roots(
    branches: Mapping[tuple[int, int], TreeBranch], names: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Returns the root of each tree, the node that isn't a child. Raises CrtExportError unless
    there is exactly one."""
    children = {child for branch in branches.values() for child in (branch.true, branch.false)}
    roots = [name for name in names if name not in children]
    found = Counter(tree for tree, _ in roots)
    for tree in {tree for tree, _ in names}:
        if found[tree] != 1:
            raise CrtExportError(f"tree {tree} has {found[tree]} roots")
    return roots


def _ensemble(
    node: OnnxNode, roots: Sequence[Any], branches: Mapping[Any, TreeBranch],
    leaves: Mapping[Any, Array], reduction: str,
) -> Value:
    """Returns the sum, the smallest or the largest number of the trees, (rows, targets)."""
    x = matrix(node, node.input(0))
    groups = [[root] for root in roots] if reduction in ("MIN", "MAX") else [list(roots)]
    if not groups:
        raise CrtExportError("there are no trees")

    def best(group: Sequence[tuple[int, int]]) -> Value:
        found = tables(group, branches, leaves, x.shape[1])
        constants = [
            node.constant(array, DType(array.dtype.name)).tensor for array in (
                found.features, found.thresholds, found.children, found.roots, found.leaves
            )
        ]
        return node.emit(TreeEnsemble(), node.builder.arranged(x), *constants)

    return combined(node, Minimum() if reduction == "MIN" else Maximum(), map(best, groups))


def _shifted(node: OnnxNode, scores: Value, base: Array) -> Value:
    """Returns the scores plus the base values."""
    if not base.size or not base.any():
        return scores
    return node.elementwise(Add(), scores, node.constant(base.reshape(1, -1)))


def _aggregate(node: OnnxNode) -> str:
    how = node.text("aggregate_function", "SUM")
    if how not in _AGGREGATES:
        raise CrtExportError(f"the aggregate_function {how!r} is not supported")
    return how


@operator("TreeEnsembleRegressor", domain=LEARNING)
def regressor(node: OnnxNode) -> Value:
    how, targets = _aggregate(node), node.integer("n_targets", 1)
    branches, names = _branches(node)
    roots = _roots(branches, names)
    scale = 1 / len(roots) if how == "AVERAGE" and roots else 1.0
    columns = {target: target for target in range(targets)}
    leaves = _leaves(node, "target", names, branches, columns, scale, _START.get(how, 0.0))
    made = _shifted(node, _ensemble(node, roots, branches, leaves, how),
                    _floats(node, "base_values"))
    return transformed(node, made, node.text("post_transform", "NONE"))


@operator("TreeEnsembleClassifier", domain=LEARNING)
def classifier(node: OnnxNode) -> list[Value]:
    """Returns the classes and their scores. There is one score if all weights belong to one of two
    classes."""
    labels = class_labels(node, "classlabels_strings", "classlabels_int64s")
    branches, names = _branches(node)
    ids, base = set(node.numbers("class_ids", ())), _floats(node, "base_values")
    transform = node.text("post_transform", "NONE")
    one = len(labels) == 2 and len(ids) == 1
    columns = dict.fromkeys(ids, 0) if one else {i: i for i in range(len(labels))}
    leaves = _leaves(node, "class", names, branches, columns)
    scores = _ensemble(node, _roots(branches, names), branches, leaves, "SUM")
    if not one:
        scores = _shifted(node, scores, base)
        return [picked(node, largest(node, scores), labels), transformed(node, scores, transform)]
    scores = _shifted(node, scores, base[-1:])
    positive = bool((_floats(node, "class_weights") >= 0).all())
    decided = node.elementwise(Greater(), scores, node.like(0.5 if positive else 0.0, scores))
    label = picked(node, node.cast(decided, DType.INT64), labels)
    if ids == {1}:  # ONNX Runtime then returns scores of both classes; the first is 0
        other = node.constant(np.zeros(scores.shape))
        parts = [node.builder.arranged(part) for part in (other, scores)]
        return [label, transformed(node, node.emit(Concatenation(1), *parts), transform)]
    return [label, binary_scores(node, scores, transform, probability=positive)]


@operator("TreeEnsemble", domain=LEARNING)
def ensemble(node: OnnxNode) -> Value:
    """Trees and leaves by number; TreeEnsemble of version 5 on."""
    values, modes = _tensor(node, "nodes_splits"), _tensor(node, "nodes_modes").astype(np.int64)
    features = node.numbers("nodes_featureids")
    true, false = node.numbers("nodes_truenodeids"), node.numbers("nodes_falsenodeids")
    is_leaf = (node.numbers("nodes_trueleafs"), node.numbers("nodes_falseleafs"))
    tracks = node.numbers("nodes_missing_value_tracks_true", ()) or (0,) * len(features)
    node.tensor("nodes_hitrates")
    _same_length(splits=values, modes=modes, features=features, true=true, false=false,
                 missing=tracks, trueleafs=is_leaf[0], falseleafs=is_leaf[1])
    if ((modes < 0) | (modes >= len(MODES))).any():
        raise CrtExportError(f"comparisons {sorted(set(modes.tolist()))}")
    members = _members(node, modes)
    branches = {
        (False, i): TreeBranch(
            features[i], MODES[mode], members.get(i, (float(values[i]),)),
            (bool(is_leaf[0][i]), true[i]), (bool(is_leaf[1][i]), false[i]), bool(tracks[i]),
        ) for i, mode in enumerate(modes)
    }
    how = _AGGREGATES[_numbered(node, "aggregate_function", 1, len(_AGGREGATES))]
    roots = [(False, root) for root in node.numbers("tree_roots")]
    targets, weights = node.numbers("leaf_targetids"), _tensor(node, "leaf_weights")
    _same_length(targets=targets, weights=weights)
    count = node.integer("n_targets", 1)
    if not all(0 <= target < count for target in targets):
        raise CrtExportError(f"leaves of targets {sorted(set(targets))} of {count}")
    scale = 1 / len(roots) if how == "AVERAGE" and roots else 1.0
    leaves = {
        (True, i): np.eye(count)[target] * weight * scale
        for i, (target, weight) in enumerate(zip(targets, weights, strict=True))
    }
    transforms = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
    transform = transforms[_numbered(node, "post_transform", 0, len(transforms))]
    made = transformed(node, _ensemble(node, roots, branches, leaves, how), transform)
    return node.cast(made, node.dtype(node.input(0)))


def _numbered(node: OnnxNode, name: str, default: int, count: int) -> int:
    found = node.integer(name, default)
    if not 0 <= found < count:
        raise CrtExportError(f"{name} {found}")
    return found


def _tensor(node: OnnxNode, name: str) -> Array:
    value = node.tensor(name)
    if value is None:
        raise CrtExportError(f"the attribute {name} is missing")
    return node.array(value, name).astype(np.float64).reshape(-1)


def _members(node: OnnxNode, modes: Array) -> dict[int, tuple[float, ...]]:
    """Returns the sets of the nodes that look for members, which NaN separates."""
    tensor = node.tensor("membership_values")
    if tensor is None:
        return {}
    values = node.array(tensor, "membership_values").astype(np.float64).reshape(-1)
    places = np.flatnonzero(modes == MODES.index("BRANCH_MEMBER")).tolist()
    ends = np.flatnonzero(np.isnan(values)).tolist()
    starts = [0, *(end + 1 for end in ends)]
    return {
        place: tuple(values[start:end].tolist())
        for place, start, end in zip(places, starts, [*ends, len(values)], strict=False)
    }

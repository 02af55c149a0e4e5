"""SVMClassifier and SVMRegressor: support vectors of ai.onnx.ml."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.importers.onnx.domains import LEARNING
from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.learning import linear
from crtexport.importers.onnx.operators.scores import (
    binary_scores,
    class_labels,
    coefficients,
    largest,
    matrix,
    picked,
    transformed,
)
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value
from crtexport.ir.ops import (
    Add,
    Concatenation,
    Exp,
    Gather,
    Greater,
    Logistic,
    Maximum,
    Minimum,
    Mul,
    PairwiseCoupling,
    SquaredDistance,
    Sub,
    Tanh,
)
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

Array = npt.NDArray[Any]
_HIGHEST = 16
"""The highest degree of a polynomial kernel."""
_LEAST = 1e-7
"""The smallest probability with which one class wins against another."""


def _kernel(node: OnnxNode, x: Value, vectors: Array) -> Value:
    """Returns the kernel between rows and support vectors, (rows, vectors)."""
    gamma, offset, degree = (*node.reals("kernel_params", ()), 0.0, 0.0, 0.0)[:3]
    kind = node.text("kernel_type", "LINEAR")
    if kind == "RBF":
        squares = node.emit(
            SquaredDistance(), node.builder.arranged(x), node.constant(vectors).tensor
        )
        return node.unary(Exp(), node.elementwise(Mul(), squares, node.like(-gamma, squares)))
    if kind == "LINEAR":
        return linear(node, x, vectors, np.zeros(len(vectors)))
    inner = linear(node, x, vectors * np.float32(gamma), np.full(len(vectors), offset))
    if kind == "SIGMOID":
        return node.unary(Tanh(), inner)
    if kind != "POLY" or degree != int(degree) or not 1 <= degree <= _HIGHEST:
        raise CrtExportError(f"the kernel {kind!r} of degree {degree:g} is not supported")
    power = inner
    for _ in range(int(degree) - 1):
        power = node.elementwise(Mul(), power, inner)
    return power


@operator("SVMRegressor", domain=LEARNING)
def regressor(node: OnnxNode) -> Value:
    x, count = matrix(node, node.input(0)), node.integer("n_supports", 0)
    rho = np.array(node.reals("rho", (0.0,)))[:1]
    if count:
        vectors = coefficients(node, "support_vectors", x.shape[1])
        weights = coefficients(node, "coefficients", len(vectors))
        x = _kernel(node, x, vectors)
    else:
        if node.text("kernel_type", "LINEAR") != "LINEAR":
            raise CrtExportError("a kernel without support vectors")
        weights = coefficients(node, "coefficients", x.shape[1])
        node.ignore("kernel_params", "support_vectors")
    made = linear(node, x, weights, rho)
    if node.integer("one_class", 0):
        inside = node.cast(node.elementwise(Greater(), made, node.like(0, made)), DType.FLOAT32)
        twice = node.elementwise(Mul(), inside, node.like(2, inside))
        return node.elementwise(Sub(), twice, node.like(1, twice))
    return transformed(node, made, node.text("post_transform", "NONE"))


@operator("SVMClassifier", domain=LEARNING)
def classifier(node: OnnxNode) -> list[Value]:
    """Returns the classes and their scores. Each pair of classes has a decision, which is a vote
    for one of them."""
    x = matrix(node, node.input(0))
    labels = class_labels(node, "classlabels_strings", "classlabels_ints")
    transform, classes = node.text("post_transform", "NONE"), len(labels)
    sizes = node.numbers("vectors_per_class", ())
    rho = np.array(node.reals("rho", (0.0,)), np.float32)
    prob = (node.reals("prob_a", ()), node.reals("prob_b", ()))
    if not sizes:
        node.ignore("kernel_params", "support_vectors", "kernel_type")
        weights = coefficients(node, "coefficients", x.shape[1])
        if len(weights) != classes:
            raise CrtExportError(f"coefficients of {len(weights)} classes for {classes} labels")
        scores = linear(node, x, weights, np.resize(rho[:1], classes))
        return [picked(node, largest(node, scores), labels), transformed(node, scores, transform)]
    vectors = coefficients(node, "support_vectors", x.shape[1])
    if len(sizes) != classes or sum(sizes) != len(vectors):
        raise CrtExportError(f"{len(vectors)} support vectors of classes {list(sizes)}")
    given = coefficients(node, "coefficients", len(vectors))
    pairs = list(combinations(range(classes), 2))
    if len(given) != classes - 1 or len(rho) != len(pairs):
        raise CrtExportError(f"{len(given)} rows of coefficients, {len(rho)} rho, {classes} labels")
    decisions = linear(node, _kernel(node, x, vectors), _by_pairs(given, sizes, pairs), rho)
    if prob[0]:
        votes = _votes(node, decisions, classes, pairs)
        return [
            picked(node, largest(node, votes), labels),
            transformed(node, _probabilities(node, decisions, prob, pairs), transform),
        ]
    if classes == 2:
        decided = node.elementwise(Greater(), decisions, node.like(0, decisions))
        # The decision is for the first of two classes; ONNX Runtime has it as the second's score.
        place = node.elementwise(
            Sub(), node.constant(1, DType.INT64), node.cast(decided, DType.INT64)
        )
        scores = binary_scores(node, decisions, transform, probability=False)
        return [picked(node, place, labels), scores]
    votes = _votes(node, decisions, classes, pairs)
    return [picked(node, largest(node, votes), labels), transformed(node, decisions, transform)]


def _by_pairs(coefficients: Array, sizes: tuple[int, ...], pairs: list[tuple[int, int]]) -> Array:
    """Returns the coefficients of all vectors in each pair of classes, (pairs, vectors)."""
    ends = np.cumsum((0, *sizes))
    rows = np.zeros((len(pairs), coefficients.shape[1]), np.float32)
    for row, (i, j) in zip(rows, pairs, strict=True):
        first, second = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
        row[first], row[second] = coefficients[j - 1, first], coefficients[i, second]
    return rows


def _votes(
    node: OnnxNode, decisions: Value, classes: int, pairs: list[tuple[int, int]]
) -> Value:
    """Returns how many pairs each class wins, (rows, classes)."""
    won = node.cast(
        node.elementwise(Greater(), decisions, node.like(0, decisions)), DType.FLOAT32
    )
    weights, lost = np.zeros((classes, len(pairs)), np.float32), np.zeros(classes)
    for number, (i, j) in enumerate(pairs):
        weights[i, number], weights[j, number] = 1, -1
        lost[j] += 1
    return linear(node, won, weights, lost)


def _probabilities(
    node: OnnxNode, decisions: Value, prob: tuple[tuple[float, ...], tuple[float, ...]],
    pairs: list[tuple[int, int]],
) -> Value:
    """Returns probabilities, (rows, classes): in a pair the first class wins with 1 / (1 + exp(a ·
    decision + b)), which is limited as in libsvm."""
    if not len(prob[0]) == len(prob[1]) == len(pairs):
        raise CrtExportError(f"{len(prob[0])} and {len(prob[1])} factors of {len(pairs)} pairs")
    slopes, offsets = (node.constant(-np.array(p, np.float32)) for p in prob)
    scaled = node.elementwise(Add(), node.elementwise(Mul(), decisions, slopes), offsets)
    first = node.unary(Logistic(), scaled)
    for limit, op in ((_LEAST, Maximum()), (1 - _LEAST, Minimum())):
        first = node.elementwise(op, first, node.like(limit, first))
    second = node.elementwise(Sub(), node.like(1, first), first)
    rows, classes = first.shape[0], 1 + max(j for _, j in pairs)
    # Each class against itself: 0, behind what the classes of pairs have against each other.
    nothing = node.constant(np.zeros((rows, 1)))
    parts = [node.builder.arranged(part) for part in (first, second, nothing)]
    places = np.full((classes, classes), 2 * len(pairs))
    for number, (i, j) in enumerate(pairs):
        places[i, j], places[j, i] = number, len(pairs) + number
    wins = node.emit(
        Gather(1), node.emit(Concatenation(1), *parts).tensor,
        node.constant(places, DType.INT32).tensor,
    )
    return node.emit(PairwiseCoupling(), wins.tensor)

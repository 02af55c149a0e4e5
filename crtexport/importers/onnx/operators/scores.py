"""Labels and transforms of scores, which the classifiers of ai.onnx.ml share."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.values import Value, stored
from crtexport.ir.ops import (
    Abs,
    ArgMax,
    Concatenation,
    Div,
    Exp,
    Gather,
    Greater,
    Logistic,
    Mul,
    Neg,
    ReduceMax,
    Softmax,
    Sub,
    Sum,
)
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

_log = logging.getLogger(__name__)


def matrix(node: OnnxNode, x: Value) -> Value:
    """Returns features in float32, (rows, features); a vector is one row."""
    if len(x.shape) == 1:
        x = node.builder.reshaped(x, (1, *x.shape))
    if len(x.shape) != 2:
        raise CrtExportError(f"features must be a matrix, found {x.shape}")
    return node.cast(x, DType.FLOAT32)


def class_labels(node: OnnxNode, strings: str, integers: str) -> tuple[int, ...]:
    """Returns the labels of classes. Strings are replaced by their positions, with a note about it.
    """
    names, numbers = node.texts(strings, ()), node.numbers(integers, ())
    if names and not numbers:
        _log.warning(
            "labels are strings: the label of %r is their position in %s",
            node.info.name or node.info.operator, list(names),
        )
        return tuple(range(len(names)))
    if not numbers:
        raise CrtExportError(f"the attribute {integers} is missing")
    return numbers


def largest(node: OnnxNode, scores: Value) -> Value:
    """Returns the position of the largest score of each row, the first of equal ones."""
    (made,) = node.builder.emit(
        ArgMax(1), node.builder.arranged(scores), dtypes=(DType.INT64,)
    )
    return stored(made, node.type(made).shape)


def picked(node: OnnxNode, positions: Value, labels: tuple[int, ...]) -> Value:
    """Returns the labels at ``positions``, one for each row."""
    flat = node.builder.arranged(node.builder.reshaped(positions, (positions.elements,)))
    if labels == tuple(range(len(labels))):
        return stored(flat, node.type(flat).shape)
    return node.emit(Gather(0), node.constant(labels, DType.INT64).tensor, flat)


def transformed(node: OnnxNode, scores: Value, transform: str) -> Value:
    """Returns scores, (rows, targets), after a post_transform."""
    match transform:
        case "NONE":
            return scores
        case "LOGISTIC":
            return node.unary(Logistic(), scores)
        case "SOFTMAX":
            return node.emit(Softmax(), node.builder.arranged(scores))
        case "SOFTMAX_ZERO":
            return _softmax_zero(node, scores)
        case _:
            raise CrtExportError(f"the post_transform {transform!r} is not supported")


def _softmax_zero(node: OnnxNode, scores: Value) -> Value:
    """Returns the softmax of the scores that aren't 0, which stay 0."""
    there = node.elementwise(
        Greater(), node.unary(Abs(), scores), node.like(1e-7, scores)
    )
    most = node.reduce(ReduceMax, scores, (1,))
    powers = node.unary(Exp(), node.elementwise(Sub(), scores, most))
    powers = node.elementwise(Mul(), powers, node.cast(there, DType.FLOAT32))
    total = node.reduce(Sum, powers, (1,))
    return node.elementwise(Div(), powers, total)


def binary_scores(node: OnnxNode, score: Value, transform: str, *, probability: bool) -> Value:
    """Returns the scores of both classes, (rows, 2), computed from the second one's, ``score``, as
    ONNX Runtime does: 1 - p and p for a probability, -s and s for other scores. Of the transforms,
    only LOGISTIC changes them."""
    if transform == "LOGISTIC":
        other = node.unary(Logistic(), node.unary(Neg(), score))
        score = node.unary(Logistic(), score)
    elif probability:
        other = node.elementwise(Sub(), node.like(1, score), score)
    else:
        other = node.unary(Neg(), score)
    return node.emit(Concatenation(1), *(node.builder.arranged(part) for part in (other, score)))


def coefficients(node: OnnxNode, name: str, columns: int) -> npt.NDArray[Any]:
    """Returns an attribute as a matrix of so many columns."""
    values = np.array(node.reals(name), np.float32)
    if columns < 1 or values.size % columns:
        raise CrtExportError(f"{values.size} {name} for rows of {columns}")
    return values.reshape(-1, columns)

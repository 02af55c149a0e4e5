"""Losses, which networks for boards seldom have."""

from __future__ import annotations

from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value
from crtexport.ir.ops import (
    Div,
    Equal,
    Gather,
    GatherElements,
    LogSoftmax,
    Mean,
    Mul,
    Neg,
    Select,
    Sum,
)
from crtexport.support.errors import CrtExportError


def _loss(node: OnnxNode, scores: Value, labels: Value, weights: Value | None) -> Value:
    """Returns the loss of log probabilities (N, C, ...) against labels (N, ...), reduced as the
    node requests; labels equal to ``ignore_index`` don't count."""
    ignored = node.integer("ignore_index") if node.has("ignore_index") else None
    reduction = node.text("reduction", "mean")
    shape = (labels.shape[0], 1, *labels.shape[1:])
    places = node.builder.reshaped(labels, shape)
    kept = None
    if ignored is not None:
        kept = node.elementwise(Equal(), places, node.like(ignored, places))
        places = node.elementwise(Select(), kept, node.like(0, places), places)
    found = node.emit(
        GatherElements(1), node.builder.arranged(scores), node.builder.arranged(places)
    )
    loss = node.unary(Neg(), found)
    importance = None
    if weights is not None:
        importance = node.emit(
            Gather(0), node.builder.arranged(weights), node.builder.arranged(places)
        )
    elif kept is not None:
        importance = node.elementwise(
            Select(), kept, node.like(0, scores), node.like(1, scores)
        )
    if importance is not None and kept is not None:
        importance = node.elementwise(Select(), kept, node.like(0, scores), importance)
    if importance is not None:
        loss = node.elementwise(Mul(), loss, importance)
    loss = node.builder.reshaped(loss, labels.shape)
    everywhere = range(len(labels.shape))

    def sum_of(value: Value) -> Value:
        return node.reduce(Sum, value, everywhere, keep=False)

    if reduction == "none":
        return loss
    if reduction == "sum":
        return sum_of(loss)
    if reduction != "mean":
        raise CrtExportError(f"the reduction {reduction!r} is unknown")
    if importance is None:
        return node.reduce(Mean, loss, everywhere, keep=False)
    whole = sum_of(node.builder.reshaped(importance, labels.shape))
    return node.elementwise(Div(), sum_of(loss), whole)


@operator("NegativeLogLikelihoodLoss", inputs=(2, 3))
def log_likelihood(node: OnnxNode) -> Value:
    return _loss(node, node.input(0), node.input(1), node.optional(2))


@operator("SoftmaxCrossEntropyLoss", inputs=(2, 3))
def cross_entropy(node: OnnxNode) -> list[Value]:
    """Returns the loss, and the logarithms of the probabilities."""
    x = node.input(0)
    order = (0, *range(2, len(x.shape)), 1)
    logarithms = node.emit(LogSoftmax(), node.builder.arranged(x, order), order=order)
    return [_loss(node, logarithms, node.input(1), node.optional(2)), logarithms]

"""Normalizations by constant mean and variance, or by those of the data."""

from __future__ import annotations

from collections.abc import Sequence

from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.numbers import by_norm, combined
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value
from crtexport.ir.ops import (
    Abs,
    Add,
    Div,
    Mean,
    Mul,
    PadV2,
    Pow,
    Rsqrt,
    Slice,
    Sqrt,
    Square,
    Sub,
    Sum,
)
from crtexport.support.errors import CrtExportError


@operator("BatchNormalization", inputs=(5, 5), follows=True)
def batch_normalization(node: OnnxNode) -> Value:
    """Returns x times a factor plus an addend for each channel, both computed here from constant
    statistics."""
    node.ignore("momentum", "spatial")
    if node.integer("training_mode", 0) or (node.version < 7 and not node.integer("is_test", 0)):
        raise CrtExportError("training is not supported: export the model for inference")
    x, epsilon = node.input(0), node.real("epsilon", 1e-5)
    scale, bias, mean, variance = (_vector(node, i, x) for i in range(1, 5))
    deviation = node.unary(
        Sqrt(), node.elementwise(Add(), variance, node.like(epsilon, variance))
    )
    factor = node.elementwise(Div(), scale, deviation)
    addend = node.elementwise(Sub(), bias, node.elementwise(Mul(), mean, factor))
    scaled = node.elementwise(Mul(), x, factor)
    if node.builder.is_constant(addend) and not node.array(addend, "the addend").any():
        return scaled  # as before training
    return node.elementwise(Add(), scaled, addend)


def _vector(node: OnnxNode, index: int, x: Value) -> Value:
    """Returns an input with one element for each channel, in a shape that broadcasts."""
    value = node.input(index)
    channels = x.shape[1] if len(x.shape) > 1 else 1
    if value.elements not in (1, channels):
        raise CrtExportError(f"input {index} has {value.elements} elements for {channels} channels")
    return node.builder.reshaped(value, (value.elements, *(1,) * (len(x.shape) - 2)))


def normalized(
    node: OnnxNode, x: Value, axes: Sequence[int], epsilon: float, *, center: bool = True
) -> tuple[Value, Value, Value]:
    """Returns (x - mean) / sqrt(variance + ``epsilon``) over ``axes``, the mean, and 1 / sqrt(...).
    Without ``center`` the mean is taken as 0."""
    mean = node.reduce(Mean, x, axes)
    centered = node.elementwise(Sub(), x, mean) if center else x
    variance = node.reduce(Mean, node.unary(Square(), centered), axes)
    raised = node.elementwise(Add(), variance, node.like(epsilon, variance))
    inverse = node.unary(Rsqrt(), raised)
    return node.elementwise(Mul(), centered, inverse), mean, inverse


@operator("LayerNormalization", inputs=(2, 3))
def layer_normalization(node: OnnxNode) -> list[Value]:
    x, scale, bias = node.input(0), node.input(1), node.optional(2)
    node.ignore("stash_type")
    rank = len(x.shape)
    axis = node.axis(node.integer("axis", -1), rank)
    epsilon = node.real("epsilon", 1e-5)
    made, mean, inverse = normalized(node, x, range(axis, rank), epsilon)
    made = node.elementwise(Mul(), made, scale)
    if bias is not None:
        made = node.elementwise(Add(), made, bias)
    return [made, mean, inverse]


@operator("RMSNormalization", inputs=(2, 2))
def rms_normalization(node: OnnxNode) -> Value:
    x, scale = node.all()
    node.ignore("stash_type")
    rank = len(x.shape)
    axis = node.axis(node.integer("axis", -1), rank)
    epsilon = node.real("epsilon", 1e-5)
    made, _, _ = normalized(node, x, range(axis, rank), epsilon, center=False)
    return node.elementwise(Mul(), made, scale)


@operator("InstanceNormalization", inputs=(3, 3), follows=True)
def instance_normalization(node: OnnxNode) -> Value:
    x = node.input(0)
    epsilon = node.real("epsilon", 1e-5)
    made, _, _ = normalized(node, x, range(2, len(x.shape)), epsilon)
    scaled = node.elementwise(Mul(), made, _vector(node, 1, x))
    return node.elementwise(Add(), scaled, _vector(node, 2, x))


@operator("GroupNormalization", inputs=(3, 3), follows=True)
def group_normalization(node: OnnxNode) -> Value:
    """Returns groups of channels normalized. Before opset 21 scale and bias have an element for
    each group, from then on for each channel."""
    x, groups = node.input(0), node.integer("num_groups")
    node.ignore("stash_type")
    epsilon = node.real("epsilon", 1e-5)
    if groups < 1 or x.shape[1] % groups:
        raise CrtExportError(f"{groups} groups of {x.shape[1]} channels")
    split = node.builder.reshaped(x, (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    made, _, _ = normalized(node, split, range(2, len(split.shape)), epsilon)
    by_group = node.version < 21
    if not by_group:
        made = node.builder.reshaped(made, x.shape)
    ones = (1,) * (len(made.shape) - 2)
    scale, bias = (
        node.builder.reshaped(node.input(i), (node.input(i).elements, *ones)) for i in (1, 2)
    )
    made = node.elementwise(Add(), node.elementwise(Mul(), made, scale), bias)
    return node.builder.reshaped(made, x.shape)


@operator("MeanVarianceNormalization", follows=True)
def mean_variance(node: OnnxNode) -> Value:
    x = node.input(0)
    axes = node.axes(node.numbers("axes", (0, 2, 3)), len(x.shape))
    centered = node.elementwise(Sub(), x, node.reduce(Mean, x, axes))
    variance = node.reduce(Mean, node.unary(Square(), centered), axes)
    deviation = node.unary(Sqrt(), variance)
    return node.elementwise(
        Div(), centered, node.elementwise(Add(), deviation, node.like(1e-9, x))
    )


@operator("LpNormalization", follows=True)
def lp_normalization(node: OnnxNode) -> Value:
    """Returns an axis divided by its norm, 0 where that is 0."""
    x, p = node.input(0), node.integer("p", 2)
    axis = node.axis(node.integer("axis", -1), len(x.shape))
    if p not in (1, 2):
        raise CrtExportError(f"the norm {p} is not supported; 1 and 2 are")
    parts = node.unary(Abs() if p == 1 else Square(), x)
    norm = node.reduce(Sum, parts, (axis,))
    norm = norm if p == 1 else node.unary(Sqrt(), norm)
    return by_norm(node, x, norm)


@operator("LRN", follows=True)
def local_response(node: OnnxNode) -> Value:
    """Divides by a power of a sum of squares over neighbouring channels."""
    x, size = node.input(0), node.integer("size")
    alpha, beta = node.real("alpha", 1e-4), node.real("beta", 0.75)
    bias = node.real("bias", 1.0)
    if size < 1 or x.shape[1] < 1:
        raise CrtExportError(f"a size of {size} for {x.shape[1]} channels")
    tensor, order = node.builder.ordered(node.unary(Square(), x))
    place = order.index(1)
    shape = node.type(tensor).shape
    before, after = (size - 1) // 2, size // 2
    pads = tuple((before, after) if i == place else (0, 0) for i in range(len(shape)))
    padded = node.emit(PadV2(pads), tensor, node.like(0, x).tensor).tensor

    def neighbours(first: int) -> Value:
        begin = tuple(first if i == place else 0 for i in range(len(shape)))
        return node.emit(Slice(begin, shape, (1,) * len(shape), shape), padded, order=order)

    total = combined(node, Add(), map(neighbours, range(size)))
    mean = node.elementwise(Mul(), total, node.like(alpha / size, x))
    base = node.elementwise(Add(), mean, node.like(bias, x))
    return node.elementwise(Div(), x, node.elementwise(Pow(), base, node.like(beta, x)))

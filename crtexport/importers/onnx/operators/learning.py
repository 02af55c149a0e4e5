"""Operators of ai.onnx.ml except trees: scalers, linear models, encoders, as skl2onnx writes them.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.importers.onnx.domains import LEARNING
from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.matmul import fully_connected
from crtexport.importers.onnx.operators.numbers import by_norm
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
    Abs,
    ArgMax,
    Concatenation,
    Equal,
    Gather,
    Greater,
    Mul,
    NotEqual,
    ReduceMax,
    Select,
    Sqrt,
    Square,
    Sub,
    Sum,
)
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

Array = npt.NDArray[Any]
_log = logging.getLogger(__name__)


@operator("Scaler", domain=LEARNING)
def scaler(node: OnnxNode) -> Value:
    x = node.cast(node.input(0), DType.FLOAT32)
    offset, scale = node.reals("offset", ()), node.reals("scale", ())
    if any(offset):
        x = node.elementwise(Sub(), x, node.constant(offset))
    if any(factor != 1 for factor in scale):
        x = node.elementwise(Mul(), x, node.constant(scale))
    return x


@operator("Normalizer", domain=LEARNING)
def normalizer(node: OnnxNode) -> Value:
    """Returns rows divided by their norm; rows of norm 0 stay unchanged."""
    x = node.cast(node.input(0), DType.FLOAT32)
    last = (len(x.shape) - 1,)
    match node.text("norm", "MAX"):
        case "MAX":
            norm = node.reduce(ReduceMax, x, last)
        case "L1":
            norm = node.reduce(Sum, node.unary(Abs(), x), last)
        case "L2":
            norm = node.unary(Sqrt(), node.reduce(Sum, node.unary(Square(), x), last))
        case other:
            raise CrtExportError(f"the norm {other!r} is not supported")
    return by_norm(node, x, norm)


def linear(node: OnnxNode, x: Value, weights: Array, bias: Array) -> Value:
    """Returns x · weights transposed + bias, (rows, units)."""
    units = len(weights)
    if bias.size != units:
        bias = np.resize(bias, units) if bias.size == 1 else np.zeros(units)
    made = fully_connected(
        node, x, node.constant(weights.T), node.constant(bias.reshape(-1)).tensor
    )
    return node.builder.plain(made)


@operator("LinearRegressor", domain=LEARNING)
def linear_regressor(node: OnnxNode) -> Value:
    x = matrix(node, node.input(0))
    weights = coefficients(node, "coefficients", x.shape[1])
    if len(weights) != node.integer("targets", 1):
        raise CrtExportError(f"coefficients of {len(weights)} targets")
    made = linear(node, x, weights, np.array(node.reals("intercepts", (0.0,))))
    return transformed(node, made, node.text("post_transform", "NONE"))


@operator("LinearClassifier", domain=LEARNING)
def linear_classifier(node: OnnxNode) -> list[Value]:
    x = matrix(node, node.input(0))
    labels = class_labels(node, "classlabels_strings", "classlabels_ints")
    weights = coefficients(node, "coefficients", x.shape[1])
    transform = node.text("post_transform", "NONE")
    node.ignore("multi_class")
    scores = linear(node, x, weights, np.array(node.reals("intercepts", (0.0,))))
    if len(weights) == 1 and len(labels) == 2:
        decided = node.elementwise(Greater(), scores, node.like(0, scores))
        both = binary_scores(node, scores, transform, probability=True)
        return [picked(node, node.cast(decided, DType.INT64), labels), both]
    if len(weights) != len(labels):
        raise CrtExportError(f"coefficients of {len(weights)} classes for {len(labels)} labels")
    return [picked(node, largest(node, scores), labels), transformed(node, scores, transform)]


@operator("ArrayFeatureExtractor", domain=LEARNING, inputs=(2, 2))
def features(node: OnnxNode) -> Value:
    """Columns selected by index."""
    x, positions = node.all()
    if len(x.shape) == 1:
        x = node.builder.reshaped(x, (1, *x.shape))
    flat = node.builder.reshaped(positions, (positions.elements,))
    axis = len(x.shape) - 1
    return node.emit(Gather(axis), node.builder.arranged(x), node.builder.arranged(flat))


@operator("Binarizer", domain=LEARNING)
def binarizer(node: OnnxNode) -> Value:
    x = node.input(0)
    over = node.elementwise(Greater(), x, node.like(node.real("threshold", 0.0), x))
    return node.cast(over, node.dtype(x))


@operator("Imputer", domain=LEARNING)
def imputer(node: OnnxNode) -> Value:
    x = node.input(0)
    if node.dtype(x).is_float:
        values, missing = node.reals("imputed_value_floats", ()), node.real(
            "replaced_value_float", 0.0
        )
    else:
        values, missing = node.numbers("imputed_value_int64s", ()), node.integer(
            "replaced_value_int64", 0
        )
    if not values:
        raise CrtExportError("there are no imputed values")
    gone = node.elementwise(
        *((NotEqual(), x, x) if np.isnan(missing) else (Equal(), x, node.like(missing, x)))
    )
    return node.elementwise(Select(), gone, node.constant(values, node.dtype(x)), x)


@operator("FeatureVectorizer", domain=LEARNING, inputs=(1, None))
def feature_vector(node: OnnxNode) -> Value:
    """Returns all features side by side."""
    node.ignore("inputdimensions")
    parts = [node.builder.arranged(matrix(node, x)) for x in node.all()]
    return node.emit(Concatenation(1), *parts) if len(parts) > 1 else matrix(node, node.input(0))


@operator("LabelEncoder", domain=LEARNING)
def label_encoder(node: OnnxNode) -> Value:
    """Maps numbers to numbers: keys to their values, others to the default."""
    x = node.input(0)
    if node.has("keys_strings") or node.has("values_strings") or node.has("classes_strings"):
        raise CrtExportError("strings have no fixed size: only numbers are encoded")
    keys, values, default = _encoding(node)
    if len(keys) != len(values) or not len(keys):
        raise CrtExportError(f"{len(keys)} keys for {len(values)} values")
    column = node.builder.reshaped(x, (x.elements, 1))
    row = node.constant(keys, node.dtype(x))
    same = node.elementwise(Equal(), column, row)
    if np.isnan(keys.astype(np.float64)).any():
        nan = node.constant(np.isnan(keys.astype(np.float64))[None], DType.BOOL)
        both = node.elementwise(Select(), nan, node.elementwise(NotEqual(), column, column), same)
        same = both
    always = node.constant(np.ones((x.elements, 1)), DType.BOOL)
    table = node.emit(Concatenation(1), node.builder.arranged(same), always.tensor)
    (place,) = node.builder.emit(
        ArgMax(1), node.cast(table, DType.INT32).tensor, dtypes=(DType.INT64,)
    )
    kind = DType.FLOAT32 if values.dtype.kind == "f" else DType.INT64
    results = node.constant(np.append(values, default), kind)
    found = node.emit(Gather(0), results.tensor, place)
    return node.builder.reshaped(found, x.shape)


def _encoding(node: OnnxNode) -> tuple[Array, Array, float]:
    """Returns keys, values and the default value."""

    def listed(name: str) -> Array:
        tensor = node.tensor(f"{name}_tensor")
        if tensor is not None:
            return node.array(tensor, name).reshape(-1)
        if node.has(f"{name}_floats"):
            return np.array(node.reals(f"{name}_floats"), np.float32)
        return np.array(node.numbers(f"{name}_int64s", ()), np.int64)

    keys, values = listed("keys"), listed("values")
    node.ignore("default_string")
    tensor = node.tensor("default_tensor")
    if tensor is not None:
        return keys, values, node.array(tensor, "the default").reshape(-1)[0]
    whole, real = node.integer("default_int64", -1), node.real("default_float", -0.0)
    return keys, values, real if values.dtype.kind == "f" else whole


@operator("OneHotEncoder", domain=LEARNING)
def one_hot_encoder(node: OnnxNode) -> Value:
    x = node.input(0)
    if node.has("cats_strings"):
        raise CrtExportError("strings have no fixed size: only numbers are encoded")
    node.ignore("zeros")
    row = node.constant(node.numbers("cats_int64s"), node.dtype(x))
    column = node.builder.reshaped(x, (*x.shape, 1))
    return node.cast(node.elementwise(Equal(), column, row), DType.FLOAT32)


@operator("ZipMap", domain=LEARNING)
def zip_map(node: OnnxNode) -> Value:
    """Returns only the scores: a map from labels has no fixed size."""
    node.ignore("classlabels_strings", "classlabels_int64s")
    _log.warning(
        "ZipMap is left out: %r has the scores in the order of the labels, not a map from them",
        node.info.outputs[0],
    )
    return node.input(0)

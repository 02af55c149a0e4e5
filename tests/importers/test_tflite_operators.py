"""Every importable operator: the file runs in the reference runtime, and imports as it should."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crtexport.importers import load
from crtexport.importers.tflite.schema import constant_names
from crtexport.importers.tflite.tflite_ops import DECODERS
from crtexport.ir.graph import Graph
from crtexport.ir.ops import (
    Activation,
    Add,
    ArgMax,
    ArgMin,
    AveragePool2D,
    Concatenation,
    Conv2D,
    CumSum,
    DepthwiseConv2D,
    Dequantize,
    FullyConnected,
    Logistic,
    MaxPool2D,
    Mean,
    Mul,
    Op,
    Pad,
    Padding2D,
    Quantize,
    ReduceAll,
    ReduceAny,
    ReduceMax,
    ReduceMin,
    ReduceProd,
    Relu,
    Relu6,
    Reshape,
    Softmax,
    Sub,
    Sum,
    Tanh,
    TopK,
)
from crtexport.support.errors import CrtExportError
from tests.differential.cases import CASES as NETWORKS
from tests.differential.cases import PAIRS, SeededDraw
from tests.tflite_builder import ModelBuilder, run_reference

IMAGE = (1, 6, 5, 4)


@dataclass(frozen=True)
class Case:
    """A network of one operator, for "float32" or "int8", and what it must become."""

    name: str
    build: Callable[[ModelBuilder, str], tuple[list[int], int]]
    op: Op
    dtypes: tuple[str, ...] = ("float32", "int8")


def value(model: ModelBuilder, name: str, shape: tuple[int, ...], dtype: str) -> int:
    return model.tensor(name, shape, dtype, scale=None if dtype == "float32" else 0.5)


def weighted(
    model: ModelBuilder, dtype: str, shape: tuple[int, ...], axis: int, units: int
) -> list[int]:
    random = np.random.default_rng(1)
    if dtype == "float32":
        w = model.tensor("w", shape, dtype, data=random.normal(size=shape))
        return [w, model.tensor("b", (units,), dtype, data=random.normal(size=units))]
    scale = 0.25 if len(shape) == 2 else [0.25] * units
    w = model.tensor("w", shape, "int8", scale, axis=axis, data=random.integers(-127, 128, shape))
    bias = [0.125] * units if len(shape) == 4 else 0.125
    return [w, model.tensor("b", (units,), "int32", bias, axis=0, data=np.arange(units))]


def conv(model: ModelBuilder, dtype: str) -> tuple[list[int], int]:
    x = value(model, "x", IMAGE, dtype)
    y = value(model, "y", (1, 3, 3, 2), dtype)
    weights = weighted(model, dtype, (2, 3, 2, 4), 0, 2)
    model.op("CONV_2D", [x, *weights], [y], padding="SAME", stride=2, activation="RELU6")
    return [x], y


def dilated(model: ModelBuilder, dtype: str) -> tuple[list[int], int]:
    x = value(model, "x", (1, 9, 9, 1), dtype)
    y = value(model, "y", (1, 9, 9, 2), dtype)
    weights = weighted(model, dtype, (1, 3, 2, 2), 3, 2)
    model.op("DEPTHWISE_CONV_2D", [x, *weights], [y], padding="SAME", dilation=(3, 2))
    return [x], y


def dense(model: ModelBuilder, dtype: str) -> tuple[list[int], int]:
    x = value(model, "x", (2, 3, 4), dtype)
    y = value(model, "y", (2, 3, 5), dtype)
    weights = weighted(model, dtype, (5, 4), 0, 5)
    model.op("FULLY_CONNECTED", [x, *weights], [y], keep_num_dims=True, activation="RELU_N1_TO_1")
    return [x], y


def dense_without_bias(model: ModelBuilder, dtype: str) -> tuple[list[int], int]:
    x = value(model, "x", (2, 3, 4), dtype)
    y = value(model, "y", (2, 5), dtype)
    weights, _ = weighted(model, dtype, (5, 12), 0, 5)
    model.op("FULLY_CONNECTED", [x, weights, None], [y])
    return [x], y


def pool(code: str) -> Callable[[ModelBuilder, str], tuple[list[int], int]]:
    def build(model: ModelBuilder, dtype: str) -> tuple[list[int], int]:
        x, y = value(model, "x", IMAGE, dtype), value(model, "y", (1, 3, 5, 4), dtype)
        model.op(code, [x], [y], window=(3, 2), stride=(2, 1), padding="SAME", activation="RELU")
        return [x], y

    return build


def binary(code: str) -> Callable[[ModelBuilder, str], tuple[list[int], int]]:
    def build(model: ModelBuilder, dtype: str) -> tuple[list[int], int]:
        x, c = value(model, "x", IMAGE, dtype), value(model, "c", (5, 1), dtype)
        y = value(model, "y", IMAGE, dtype)
        model.op(code, [x, c], [y], activation="RELU")
        return [x, c], y

    return build


def reshape(model: ModelBuilder, dtype: str) -> tuple[list[int], int]:
    x, y = value(model, "x", IMAGE, dtype), value(model, "y", (1, 120), dtype)
    shape = model.tensor("shape", (2,), "int32", data=[1, -1])
    model.op("RESHAPE", [x, shape], [y], options_kind=None)
    return [x], y


def squeeze(model: ModelBuilder, dtype: str) -> tuple[list[int], int]:
    x, y = value(model, "x", (1, 1, 3), dtype), value(model, "y", (3,), dtype)
    model.op("SQUEEZE", [x], [y])
    return [x], y


def expand(model: ModelBuilder, dtype: str) -> tuple[list[int], int]:
    x, y = value(model, "x", (3,), dtype), value(model, "y", (3, 1), dtype)
    axis = model.tensor("axis", (), "int32", data=-1)
    model.op("EXPAND_DIMS", [x, axis], [y])
    return [x], y


def pad(model: ModelBuilder, dtype: str) -> tuple[list[int], int]:
    x, y = value(model, "x", IMAGE, dtype), value(model, "y", (1, 9, 5, 5), dtype)
    amounts = [[0, 0], [1, 2], [0, 0], [0, 1]]
    model.op("PAD", [x, model.tensor("p", (4, 2), "int32", data=amounts)], [y])
    return [x], y


def mean(model: ModelBuilder, dtype: str) -> tuple[list[int], int]:
    x, y = value(model, "x", IMAGE, dtype), value(model, "y", (1, 1, 1, 4), dtype)
    model.op("MEAN", [x, model.tensor("a", (2,), "int32", data=[-2, 1])], [y], keep_dims=True)
    return [x], y


def reduced(code: str) -> Callable[[ModelBuilder, str], tuple[list[int], int]]:
    def build(model: ModelBuilder, dtype: str) -> tuple[list[int], int]:
        x, y = value(model, "x", IMAGE, dtype), value(model, "y", (6, 4), dtype)
        model.op(code, [x, model.tensor("a", (3,), "int32", data=[-2, 0, 2])], [y])
        return [x], y

    return build


def truth(code: str) -> Callable[[ModelBuilder, str], tuple[list[int], int]]:
    def build(model: ModelBuilder, dtype: str) -> tuple[list[int], int]:
        x, y = model.tensor("x", (2, 3), dtype), model.tensor("y", (2, 1), dtype)
        model.op(code, [x, model.tensor("a", (), "int32", data=-1)], [y], keep_dims=True)
        return [x], y

    return build


def position(code: str) -> Callable[[ModelBuilder, str], tuple[list[int], int]]:
    def build(model: ModelBuilder, dtype: str) -> tuple[list[int], int]:
        x, y = value(model, "x", (2, 3), dtype), model.tensor("y", (2,), "int64")
        axis = model.tensor("a", (1,), "int64", data=[-1])
        model.op(code, [x, axis], [y], output_type="INT64")
        return [x], y

    return build


def top_k(model: ModelBuilder, dtype: str) -> tuple[list[int], int]:
    x, y = value(model, "x", (2, 3), dtype), value(model, "y", (2, 2), dtype)
    count, places = model.tensor("k", (), "int32", data=2), model.tensor("p", (2, 2), "int32")
    model.op("TOPK_V2", [x, count], [y, places])
    return [x], y


def cumsum(model: ModelBuilder, dtype: str) -> tuple[list[int], int]:
    x, y = model.tensor("x", (2, 3), dtype), model.tensor("y", (2, 3), dtype)
    model.op("CUMSUM", [x, model.tensor("a", (1,), "int32", data=[-1])], [y], reverse=True)
    return [x], y


def concat(model: ModelBuilder, dtype: str) -> tuple[list[int], int]:
    parts = [value(model, f"x{i}", (1, 2, i), dtype) for i in (1, 2, 3)]
    y = value(model, "y", (1, 2, 6), dtype)
    model.op("CONCATENATION", parts, [y], axis=-1)
    return parts, y


def unary(
    code: str, scale: float = 0.5, zero_point: int = 0, **options: float
) -> Callable[[ModelBuilder, str], tuple[list[int], int]]:
    def build(model: ModelBuilder, dtype: str) -> tuple[list[int], int]:
        x = value(model, "x", (2, 7), dtype)
        real = dtype == "float32"
        y = model.tensor("y", (2, 7), dtype, None if real else scale, zero_point)
        model.op(code, [x], [y], **options)
        return [x], y

    return build


def quantize(model: ModelBuilder, dtype: str) -> tuple[list[int], int]:
    x = value(model, "x", (2, 7), dtype)
    y = model.tensor("y", (2, 7), "int8", 0.25, 3)
    model.op("QUANTIZE", [x], [y])
    return [x], y


def dequantize(model: ModelBuilder, dtype: str) -> tuple[list[int], int]:
    x = value(model, "x", (2, 7), dtype)
    y = model.tensor("y", (2, 7), "float32")
    model.op("DEQUANTIZE", [x], [y])
    return [x], y


RELU = Activation.RELU
POOLED = ((3, 2), (2, 1), Padding2D(0, 1, 0, 1), RELU)
CASES = (
    Case("CONV_2D", conv, Conv2D((2, 2), (1, 1), Padding2D(0, 1, 0, 1), Activation.RELU6)),
    Case("DEPTHWISE_CONV_2D", dilated, DepthwiseConv2D(2, (1, 1), (3, 2), Padding2D(3, 3, 1, 1))),
    Case("FULLY_CONNECTED", dense, FullyConnected(True, Activation.RELU_N1_TO_1)),
    Case("FULLY_CONNECTED", dense_without_bias, FullyConnected()),
    Case("AVERAGE_POOL_2D", pool("AVERAGE_POOL_2D"), AveragePool2D(*POOLED)),
    Case("MAX_POOL_2D", pool("MAX_POOL_2D"), MaxPool2D(*POOLED)),
    Case("ADD", binary("ADD"), Add(RELU)),
    Case("SUB", binary("SUB"), Sub(RELU)),
    Case("MUL", binary("MUL"), Mul(RELU)),
    Case("RESHAPE", reshape, Reshape((1, 120))),
    Case("SQUEEZE", squeeze, Reshape((3,))),
    Case("EXPAND_DIMS", expand, Reshape((3, 1))),
    Case("PAD", pad, Pad(((0, 0), (1, 2), (0, 0), (0, 1)))),
    Case("MEAN", mean, Mean((1, 2), True)),
    Case("SUM", reduced("SUM"), Sum((0, 2))),
    Case("REDUCE_MAX", reduced("REDUCE_MAX"), ReduceMax((0, 2))),
    Case("REDUCE_MIN", reduced("REDUCE_MIN"), ReduceMin((0, 2))),
    Case("REDUCE_PROD", reduced("REDUCE_PROD"), ReduceProd((0, 2))),
    Case("REDUCE_ANY", truth("REDUCE_ANY"), ReduceAny((1,), True), ("bool",)),
    Case("REDUCE_ALL", truth("REDUCE_ALL"), ReduceAll((1,), True), ("bool",)),
    Case("ARG_MAX", position("ARG_MAX"), ArgMax(1)),
    Case("ARG_MIN", position("ARG_MIN"), ArgMin(1)),
    Case("TOPK_V2", top_k, TopK(1, 2)),
    Case("CUMSUM", cumsum, CumSum(1, reverse=True), ("float32", "int32")),
    Case("CONCATENATION", concat, Concatenation(2)),
    Case("SOFTMAX", unary("SOFTMAX", 1 / 256, -128, beta=2.0), Softmax(2.0)),
    Case("LOGISTIC", unary("LOGISTIC", 1 / 256, -128), Logistic()),
    Case("TANH", unary("TANH", 1 / 128), Tanh()),
    Case("RELU", unary("RELU"), Relu()),
    Case("RELU6", unary("RELU6"), Relu6()),
    Case("QUANTIZE", quantize, Quantize()),
    Case("DEQUANTIZE", dequantize, Dequantize(), ("int8",)),
)
RUNS = [
    pytest.param(case, dtype, id=f"{case.build.__name__}-{case.name}-{dtype}")
    for case in CASES
    for dtype in case.dtypes
]


def imported(tmp_path: Path, content: bytes) -> Graph:
    path = tmp_path / "net.tflite"
    path.write_bytes(content)
    return load(path)


@pytest.mark.parametrize(("case", "dtype"), RUNS)
def test_operator_imports_with_its_attributes(case: Case, dtype: str, tmp_path: Path) -> None:
    model = ModelBuilder()
    inputs, output = case.build(model, dtype)
    graph = imported(tmp_path, model.build(inputs, [output]))
    assert [node.op for node in graph.nodes] == [case.op]
    assert graph.nodes[0].origin == f"operator 0 ({case.name})"
    assert graph.nodes[0].name == "y"
    assert [graph.tensors[i].name for i in graph.outputs] == ["y"]


@pytest.mark.parametrize(("case", "dtype"), RUNS)
def test_declared_shape_is_what_the_reference_runtime_computes(case: Case, dtype: str) -> None:
    model = ModelBuilder()
    inputs, output = case.build(model, dtype)
    tensors = model._tensors
    given = [np.ones(tensors[i].shape, tensors[i].dtype) for i in inputs]
    (result,) = run_reference(model.build(inputs, [output]), *given)
    assert (result.shape, result.dtype) == (tensors[output].shape, tensors[output].dtype)


class Incomplete(ModelBuilder):
    """Operators without their inputs or results, as damaged files have them."""

    def __init__(self, lacks: str) -> None:
        super().__init__()
        self._lacks = lacks

    def op(
        self, code: str, inputs: Sequence[int | None], outputs: Sequence[int], **more: Any
    ) -> int:
        number = super().op(code, inputs, outputs, **more)
        whole = self._operators[number]
        self._operators[number] = (
            replace(whole, inputs=()) if self._lacks == "inputs" else replace(whole, outputs=())
        )
        return number


@pytest.mark.parametrize("lacks", ["inputs", "results"])
@pytest.mark.parametrize(("case", "dtype"), RUNS)
def test_an_operator_that_lacks_something_is_refused(
    case: Case, dtype: str, lacks: str, tmp_path: Path
) -> None:
    model = Incomplete(lacks)
    inputs, output = case.build(model, dtype)
    with pytest.raises(CrtExportError):
        imported(tmp_path, model.build(inputs, [output]))


_ELSEWHERE = {"DENSIFY"}
"""Of sparse constants, which test_sparse.py compares."""


def test_every_decoder_has_a_case(tmp_path: Path) -> None:
    """Here, or among the networks that are compared with the reference."""
    import tflite

    path = tmp_path / "model.tflite"
    found = {case.name for case in CASES}
    for name, dtype in PAIRS:
        path.write_bytes(NETWORKS[name](SeededDraw(0), dtype).content)
        found |= {node.origin.partition("(")[2].rstrip(")") for node in load(path).nodes}
    names = constant_names(tflite.BuiltinOperator)
    assert {names[code] for code in DECODERS} <= found | _ELSEWHERE


# The runtime takes no stride together with dilation.
STEPS = [(1, 1, 1), (2, 1, 1), (3, 1, 1), (1, 2, 3), (2, 2, 1), (3, 2, 1), (3, 1, 2), (4, 3, 1)]


@pytest.mark.parametrize("size", range(1, 12))
@pytest.mark.parametrize(("window", "stride", "dilation"), STEPS)
def test_same_padding_places_windows_as_the_runtime_does(
    size: int, window: int, stride: int, dilation: int, tmp_path: Path
) -> None:
    """A filter of distinct powers of two on ones shows which taps fell into the padding."""
    taps = 2.0 ** np.arange(window)
    count = -(-size // stride)
    model = ModelBuilder()
    x = model.tensor("x", (1, size, 1, 1))
    w = model.tensor("w", (1, window, 1, 1), data=taps)
    b = model.tensor("b", (1,), data=[0.0])
    y = model.tensor("y", (1, count, 1, 1))
    steps = {"stride": (stride, 1), "dilation": (dilation, 1)}
    model.op("CONV_2D", [x, w, b], [y], padding="SAME", **steps)
    content = model.build([x], [y])
    (expected,) = run_reference(content, np.ones((1, size, 1, 1), np.float32))
    op = imported(tmp_path, content).nodes[0].op
    assert isinstance(op, Conv2D)
    padded = np.pad(np.ones(size), (op.padding.top, op.padding.bottom))
    found = [
        sum(taps[k] * padded[i * stride + k * dilation] for k in range(window))
        for i in range(count)
    ]
    assert found == expected.reshape(-1).tolist()

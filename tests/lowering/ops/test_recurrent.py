"""Rules of SVDF and LSTM kernels: each says its sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from crtexport.importers import load
from crtexport.ir.graph import Graph, Tensor, Variable
from crtexport.ir.ops import Activation, Svdf
from crtexport.ir.types import ConstantRef, DType, Quantization
from crtexport.kir.builder import KernelBuilder, cast
from crtexport.kir.builder import load as element
from crtexport.kir.interpreter import run
from crtexport.kir.language import Scalar
from crtexport.kir.verifier import verify
from crtexport.lowering.numerics import fixed16
from crtexport.lowering.operator_table import check
from crtexport.lowering.registry import Context
from tests.differential.cases_recurrent import CASES
from tests.differential.draw import SeededDraw

LSTM = "unidirectional_sequence_lstm"


def network(name: str, dtype: str, folder: Path) -> Graph:
    path = folder / "net.tflite"
    path.write_bytes(CASES[name](SeededDraw(1), dtype).content)
    return load(path)


def changed(position: int, change: Callable[[Tensor], Tensor]) -> Callable[[Graph], Graph]:
    """The graph with another tensor as input ``position`` of its node."""

    def apply(graph: Graph) -> Graph:
        tensors = list(graph.tensors)
        number = graph.required(graph.nodes[0], position)
        tensors[number] = change(tensors[number])
        return replace(graph, tensors=tuple(tensors))

    return apply


def typed(dtype: DType) -> Callable[[Tensor], Tensor]:
    return lambda t: replace(t, type=replace(t.type, dtype=dtype))


def quantized(scale: float, zero: int = 0) -> Callable[[Tensor], Tensor]:
    return lambda t: replace(t, type=replace(t.type, quant=Quantization((scale,), (zero,))))


def unscaled(tensor: Tensor) -> Tensor:
    return replace(tensor, type=replace(tensor.type, quant=None))


def computed(tensor: Tensor) -> Tensor:
    return replace(tensor, constant=None)


def starting(tensor: Tensor) -> Tensor:
    values = np.arange(tensor.type.elements) + 1
    start = ConstantRef.of(values.astype(tensor.type.dtype.numpy))
    return replace(tensor, variable=Variable(start))


def without_relu(graph: Graph) -> Graph:
    op = graph.nodes[0].op
    assert isinstance(op, Svdf)
    return graph.with_nodes((replace(graph.nodes[0], op=replace(op, activation=Activation.NONE)),))


@pytest.mark.parametrize(
    ("name", "dtype", "change", "sentence"),
    [
        ("svdf", "int8", changed(3, typed(DType.INT32)), "time weights and state both int16"),
        ("svdf", "float32", changed(1, typed(DType.FLOAT16)), "All must be float32"),
        ("svdf", "float32", changed(2, computed), "Weights and bias must be constants"),
        ("svdf", "int8", changed(2, unscaled), "each tensor must have one scale"),
        ("svdf", "int8", changed(1, quantized(0.5, 1)), "zero points of weights and of an int16"),
        ("svdf", "float32", changed(3, starting), "The state must start as zeros"),
        ("svdf", "int8", without_relu, "the activation must be relu"),
        (LSTM, "int8", changed(14, typed(DType.INT32)), "the cell state int16"),
        (LSTM, "float32", changed(12, computed), "Weights and biases must be constants"),
        (LSTM, "int8", changed(8, unscaled), "each tensor must have one scale"),
        (LSTM, "int8", changed(1, quantized(0.5, 1)), "found another zero point"),
        (LSTM, "int8", changed(14, quantized(0.001)), "found 0.001 for the cell state"),
        (LSTM, "float32", changed(14, starting), "The states must start as zeros"),
        (LSTM, "int8", changed(13, starting), "or all as the same value"),
    ],
)
def test_what_no_kernel_takes_is_said(
    name: str, dtype: str, change: Callable[[Graph], Graph], sentence: str, tmp_path: Path
) -> None:
    graph = network(name, dtype, tmp_path)
    assert check(Context(graph, graph.nodes[0])) == []
    graph = change(graph)
    (broken,) = check(Context(graph, graph.nodes[0]))
    assert sentence in broken


@pytest.mark.parametrize(
    ("function", "real", "integer_bits"),
    [
        (fixed16.logistic, lambda x: 1 / (1 + np.exp(-x)), 3),
        (fixed16.tanh, np.tanh, 0), (fixed16.tanh, np.tanh, 3), (fixed16.tanh, np.tanh, 6),
    ],
)
def test_fixed_point_functions_are_close_to_the_real_ones(
    function: Callable[..., object], real: Callable[..., object], integer_bits: int
) -> None:
    inputs = np.arange(-(2**15), 2**15, 37, dtype=np.int16)
    b = KernelBuilder("map")
    x = b.buffer("x", Scalar.I16, inputs.size)
    y = b.buffer("y", Scalar.I16, inputs.size, writable=True)
    with b.loop("i", inputs.size) as i:
        value = b.let("value", cast(element(x, i), Scalar.I32))
        b.store(y, i, cast(function(b, value, integer_bits), Scalar.I16))
    kernel = b.finish()
    verify(kernel)
    outputs = np.zeros_like(inputs)
    run(kernel, [inputs, outputs])
    expected = real(inputs / 2.0 ** (15 - integer_bits))
    np.testing.assert_allclose(outputs / 2.0**15, expected, rtol=0, atol=2.0**-11)

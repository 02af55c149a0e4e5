"""Graphs that are no networks are refused with the node or tensor; dumps are stable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import (
    Activation,
    Add,
    Concatenation,
    DepthwiseConv2D,
    FullyConnected,
    Op,
    Padding2D,
    Relu,
    Reshape,
)
from crtexport.ir.text import dump
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType
from crtexport.ir.verify import check_type, verify
from crtexport.support.errors import CrtExportError

F32, I8, I32 = DType.FLOAT32, DType.INT8, DType.INT32
X, W, B, Y = range(4)


def q(scale: float, zero: int = 0) -> Quantization:
    return Quantization((scale,), (zero,))


def per_unit(*scales: float, axis: int = 0) -> Quantization:
    return Quantization(scales, (0,) * len(scales), axis)


def dense() -> Graph:
    """An int8 dense layer, 3 to 2."""
    weights = ConstantRef.of(np.array([[1, 2, 3], [4, 5, 6]], np.int8))
    bias = ConstantRef.of(np.array([7, 8], np.int32))
    tensors = (
        Tensor("x", TensorType(I8, (1, 3), q(0.5, -1))),
        Tensor("w", TensorType(I8, (2, 3), q(0.25)), weights),
        Tensor("b", TensorType(I32, (2,), q(0.125)), bias),
        Tensor("y\n", TensorType(I8, (1, 2), q(0.5))),
    )
    node = Node(FullyConnected(), (X, W, B), (Y,), "dense", "operator 0 (FULLY_CONNECTED)")
    return Graph("g", tensors, (node,), (X,), (Y,), source="g.tflite")


def with_type(index: int, **changes: object) -> Graph:
    """The layer with one tensor's type changed."""
    graph = dense()
    tensor = graph.tensors[index]
    tensors = list(graph.tensors)
    tensors[index] = replace(tensor, type=replace(tensor.type, **changes))
    return replace(graph, tensors=tuple(tensors))


def with_constant(index: int, constant: ConstantRef) -> Graph:
    graph = dense()
    tensors = list(graph.tensors)
    tensors[index] = replace(tensors[index], constant=constant)
    return replace(graph, tensors=tuple(tensors))


def with_node(**changes: object) -> Graph:
    graph = dense()
    return replace(graph, nodes=(replace(graph.nodes[0], **changes),))


def simple(op: Op, *tensors: TensorType) -> Graph:
    """One operator: the last tensor is computed from the others."""
    named = tuple(Tensor(f"t{i}", type_) for i, type_ in enumerate(tensors))
    inputs = tuple(range(len(tensors) - 1))
    node = Node(op, inputs, (len(inputs),))
    return Graph("g", named, (node,), inputs, (len(inputs),))


def depthwise(quant: Quantization) -> Graph:
    types = (
        TensorType(I8, (1, 2, 2, 2), q(0.5)),
        TensorType(I8, (1, 2, 1, 2), quant),
        TensorType(I8, (1, 1, 2, 2), q(0.5)),
    )
    graph = simple(DepthwiseConv2D(), *types)
    weights = replace(graph.tensors[1], constant=ConstantRef(4, b"\1\2\3\4"))
    tensors = (graph.tensors[0], weights, graph.tensors[2])
    return replace(graph, inputs=(0,), tensors=tensors)


VALID: dict[str, Graph] = {
    "dense": dense(),
    "scale per unit": with_type(W, quant=per_unit(0.25, 0.25)),
    "bias without a scale": with_type(B, quant=None),
    "bias scale nearly right": with_type(B, quant=q(0.1255)),
    "bias scale off by less than the output shows": with_type(B, quant=q(0.134)),
    "output twice": replace(dense(), outputs=(Y, Y)),
    "input as output": replace(dense(), outputs=(Y, X)),
    "depthwise scales": depthwise(per_unit(0.5, 0.25, axis=3)),
    "no elements": simple(Relu(), TensorType(F32, (0, 3)), TensorType(F32, (0, 3))),
    "plain integers": simple(Reshape((4,)), TensorType(I8, (2, 2)), TensorType(I8, (4,))),
    "int32 sum": simple(Add(), *[TensorType(I32, (2,))] * 3),
}


@pytest.mark.parametrize("graph", VALID.values(), ids=VALID.keys())
def test_valid_graph(graph: Graph) -> None:
    verify(graph)


int8 = TensorType(I8, (2,))
scaled = TensorType(I8, (2,), q(0.5))
INVALID: dict[str, tuple[Callable[[], Graph], str]] = {
    "no output": (lambda: replace(dense(), outputs=()), "^g.tflite: the graph has no output$"),
    "unknown output": (
        lambda: replace(dense(), outputs=(4,)),
        "g.tflite → graph output 0: there is no tensor 4; the graph has 4",
    ),
    "negative id": (lambda: replace(dense(), outputs=(-1,)), "there is no tensor -1"),
    "unknown graph input": (lambda: replace(dense(), inputs=(9,)), "graph input 0: .* tensor 9"),
    "constant as input": (
        lambda: replace(dense(), inputs=(X, W)),
        "graph input 1: tensor 1 'w' is a constant",
    ),
    "input twice": (lambda: replace(dense(), inputs=(X, X)), "'x' is already a graph input"),
    "undefined": (
        lambda: replace(dense(), inputs=()),
        r"operator 0 \(FULLY_CONNECTED\) → input 0: tensor 0 'x' is computed by nothing",
    ),
    "output of nothing": (
        lambda: replace(dense(), nodes=()),
        r"graph output 0: nothing computes tensor 3 'y\\n'",
    ),
    "defined twice": (
        lambda: replace(dense(), nodes=dense().nodes * 2),
        "output 0: tensor 3 .* is defined a second time",
    ),
    "constant computed": (lambda: with_node(outputs=(W,)), "'w' is defined a second time"),
    "input computed": (lambda: with_node(outputs=(X,)), "'x' is defined a second time"),
    "unknown node input": (lambda: with_node(inputs=(X, 7)), "→ input 1: there is no tensor 7"),
    "unknown node output": (lambda: with_node(outputs=(7,)), "→ output 0: there is no tensor 7"),
    "arity": (lambda: with_node(inputs=(X,)), r"\(FULLY_CONNECTED\): expected 2 or 3 inputs"),
    "required": (lambda: with_node(inputs=(X, None)), "input 1 is missing"),
    "no node output": (
        lambda: replace(with_node(outputs=()), outputs=(X,)),
        "expected 1 output, found 0",
    ),
    "two outputs": (
        lambda: replace(with_node(outputs=(Y, 4)), tensors=(*dense().tensors, Tensor("z", scaled))),
        "expected 1 output, found 2",
    ),
    "shape": (
        lambda: with_type(Y, shape=(2,)),
        r"tensor 3 'y\\n' is int8\[2\], but the operator gives int8\[1x2\]",
    ),
    "dtype": (lambda: with_type(Y, dtype=F32, quant=None), "but the operator gives int8"),
    "dynamic": (
        lambda: with_type(X, shape=(-1, 3)),
        r"g.tflite → tensor 0 'x': the shape \[-1, 3\] is not static",
    ),
    "huge": (lambda: with_type(X, shape=(2**20, 2**20, 2)), "a tensor of more than"),
    "astronomic": (lambda: with_type(X, shape=(10**1000,) * 8), "a tensor of more than"),
    "rank": (lambda: with_type(X, shape=(1,) * 9), "9 dimensions; the most is 8"),
    "real scale": (lambda: with_type(X, dtype=F32), "float32 can't have quantization"),
    "zero scale": (lambda: with_type(X, quant=q(0.0)), "the scale 0.0 is not positive and finite"),
    "nan scale": (lambda: with_type(X, quant=q(float("nan"))), "the scale nan is not positive"),
    "infinite scale": (lambda: with_type(X, quant=q(float("inf"))), "the scale inf is not"),
    "zero point": (lambda: with_type(X, quant=q(1.0, 128)), "zero point 128 is outside of int8"),
    "no scales": (lambda: with_type(X, quant=Quantization((), ())), "0 scales with 0 zero points"),
    "counts": (
        lambda: with_type(W, quant=Quantization((1.0, 1.0), (0,), 0)),
        "2 scales with 1 zero points",
    ),
    "no axis": (
        lambda: with_type(W, quant=Quantization((1.0, 1.0), (0, 0))),
        "2 scales without an axis",
    ),
    "axis": (lambda: with_type(W, quant=per_unit(1, 1, axis=2)), "quantized along axis 2 of int8"),
    "axis length": (
        lambda: with_type(W, quant=per_unit(1, 1, 1)),
        r"3 scales for axis 0 of int8\[2x3\]",
    ),
    "computed per slice": (
        lambda: with_type(Y, quant=per_unit(1, 1, axis=1)),
        "'y.*': only constants can have a scale per slice",
    ),
    "input per slice": (
        lambda: with_type(X, quant=per_unit(1, 1, 1, axis=1)),
        "'x': only constants can have a scale per slice",
    ),
    "weights axis": (
        lambda: with_type(W, quant=per_unit(1, 1, 1, axis=1)),
        "scales of these weights go along axis 0, found 1",
    ),
    "depthwise axis": (
        lambda: depthwise(per_unit(0.5, 0.25, axis=1)),
        "scales of these weights go along axis 3, found 1",
    ),
    "weights zero point": (
        lambda: depthwise(q(0.25, 1)),
        "int8 weights must have zero point 0",
    ),
    "bias zero point": (
        lambda: with_type(B, quant=q(0.125, 1)),
        "an integer bias must have zero point 0",
    ),
    "bias scale": (
        lambda: with_type(B, quant=q(0.25)),
        "the bias of unit 0 has scale 0.25, but input and weights give 0.125",
    ),
    "bias scales": (
        lambda: with_type(B, quant=per_unit(0.125, 0.2)),
        "the bias of unit 1 has scale 0.2, but input and weights give 0.125",
    ),
    "no scale": (lambda: with_type(X, quant=None), r"int8\[1x3\] has no scale and zero point"),
    "some scales": (
        lambda: simple(Concatenation(0), scaled, int8, TensorType(I8, (4,), q(0.5))),
        "some of the integer tensors have scales and others have none",
    ),
    "constant size": (
        lambda: with_constant(W, ConstantRef(5, bytes(5))),
        r"tensor 1 'w': int8\[2x3\] takes 6 bytes, the constant has 5",
    ),
    "constant claim": (
        lambda: with_constant(W, ConstantRef(6, bytes(5))),
        "takes 6 bytes, the constant has 5",
    ),
    "constant without bytes": (lambda: with_constant(W, ConstantRef(6)), "either bytes or a file"),
    "constant with both": (
        lambda: with_constant(W, ConstantRef(6, bytes(6), Path("w.bin"))),
        "either bytes or a file",
    ),
}


@pytest.mark.parametrize(("make", "message"), INVALID.values(), ids=INVALID.keys())
def test_invalid_graph_is_named(make: Callable[[], Graph], message: str) -> None:
    with pytest.raises(CrtExportError) as caught:
        verify(make())
    caught.match(message)


def test_check_type_has_a_hint_for_dynamic_shapes() -> None:
    with pytest.raises(CrtExportError) as caught:
        check_type(TensorType(F32, (-1,)))
    assert "fixed, non-negative size" in str(caught.value)


def test_dump() -> None:
    graph = replace(dense(), numerics=Numerics.LITERT, outputs=(Y, Y))
    node = replace(graph.nodes[0], op=FullyConnected(activation=Activation.RELU))
    attributes = "{keep_num_dims=False, activation=relu}"
    origin = "'dense'  # operator 0 (FULLY_CONNECTED)"
    assert dump(graph.with_nodes((node,))).splitlines() == [
        "graph 'g' numerics=litert",
        "  input %0 'x': int8[1x3] q(0.5@-1)",
        "  constant %1 'w': int8[2x3] q(0.25@0) 6 bytes",
        "  constant %2 'b': int32[2] q(0.125@0) 8 bytes",
        f"  %3 'y\\n': int8[1x2] q(0.5@0) = FullyConnected(%0, %1, %2) {attributes} {origin}",
        "  output %3, %3",
    ]


def test_dump_shortens_scales_and_shows_nested_attributes() -> None:
    quant = per_unit(1.0, 2.0, 3.0, 4.0, 5.0)
    graph = with_type(W, shape=(5, 3), quant=quant)
    assert "q(1.0@0, 2.0@0, 3.0@0, 4.0@0, … 5 axis=0)" in dump(graph)
    op = DepthwiseConv2D(padding=Padding2D(1, 2, 3, 4))
    text = dump(with_node(op=op, inputs=(X, W, None), name="", origin=""))
    assert "(%0, %1, none) {depth_multiplier=1, stride=(1, 1), dilation=(1, 1)," in text
    assert "padding={top=1, bottom=2, left=3, right=4}, activation=none}\n" in text

"""Each pass keeps the meaning of a network and does what it says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from crtexport import passes
from crtexport.ir.graph import Graph, Tensor
from crtexport.ir.ops import (
    Activation,
    Add,
    Concatenation,
    Conv2D,
    DepthwiseConv2D,
    Dequantize,
    FullyConnected,
    MaxPool2D,
    Op,
    Pad,
    Padding2D,
    Relu,
    Relu6,
    ReluN1To1,
    Reshape,
    Softmax,
    Sub,
    Tanh,
)
from crtexport.ir.types import DType, Quantization, TensorType
from crtexport.ir.verify import verify
from crtexport.passes.copy_outputs import copy_outputs
from crtexport.passes.drop_dead import drop_dead
from crtexport.passes.fold_constants import fold_constants
from crtexport.passes.fuse_activation import fuse_activation
from crtexport.passes.fuse_pad import fuse_pad
from crtexport.plan import plan
from crtexport.plan.check import check
from crtexport.support.errors import CrtExportError
from tests.lowered import without_kernels
from tests.plan.execute import execute, execute_planned
from tests.plan.graphs import GraphBuilder, networks

RNG = np.random.default_rng(7)
Q1, Q2 = Quantization((0.05,), (-7,)), Quantization((0.07,), (-20,))


def same_results(before: Graph, after: Graph, *, exact: bool = True) -> None:
    """Both graphs are valid, have equal interfaces and compute the same."""
    for graph in (before, after):
        verify(graph)
    for ids in ("inputs", "outputs"):
        tensors = [[g.tensors[t] for t in getattr(g, ids)] for g in (before, after)]
        assert [(t.name, t.type) for t in tensors[0]] == [(t.name, t.type) for t in tensors[1]]
    inputs = []
    for t in before.inputs:
        type_ = before.type(t)
        inputs.append(
            RNG.normal(size=type_.shape).astype(np.float32) * 4 if type_.dtype.is_float
            else RNG.integers(*type_.dtype.limits, type_.shape, type_.dtype.numpy, endpoint=True)
        )
    for expected, found in zip(execute(before, inputs), execute(after, inputs), strict=True):
        if exact:
            np.testing.assert_array_equal(found, expected, strict=True)
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def ops(graph: Graph) -> list[Op]:
    return [node.op for node in graph.nodes]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks(), st.integers(0, 100))
def test_all_passes_together_change_nothing(network: Graph, seed: int) -> None:
    simplified = passes.run(network)
    rng = np.random.default_rng(seed)
    inputs = [rng.normal(size=network.type(t).shape).astype(np.float32) for t in network.inputs]
    result = plan(without_kernels(simplified))
    check(simplified, result)
    for found, expected in zip(
        execute_planned(simplified, result, inputs), execute(network, inputs), strict=True
    ):
        np.testing.assert_array_equal(found, expected, strict=True)
    assert passes.run(simplified) == simplified


def test_readers_without_use_do_not_keep_clamps_from_being_fused() -> None:
    b = GraphBuilder()
    x = b.input(2, 4)
    total = b.node(Add(), x, x)
    b.node(Tanh(), total)
    graph = b.finish(b.node(Relu(), total))
    simplified = passes.run(graph)
    assert ops(simplified) == [Add(Activation.RELU)]
    same_results(graph, simplified)


def test_a_pass_that_breaks_a_graph_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    b = GraphBuilder()
    graph = b.finish(b.node(Softmax(), b.input(1, 8)))

    def lose_nodes(graph: Graph) -> Graph:
        return graph.with_nodes(())

    monkeypatch.setattr(passes, "PIPELINE", (drop_dead, lose_nodes))
    with pytest.raises(CrtExportError, match=r"pass lose_nodes.*nothing computes"):
        passes.run(graph)


def test_an_invalid_graph_is_refused_first() -> None:
    b = GraphBuilder()
    graph = b.finish(b.node(Softmax(), b.input(1, 8)))
    with pytest.raises(CrtExportError, match=r"^graph output 0: there is no tensor 9"):
        passes.run(replace(graph, outputs=(9,)))


# ---- fold_constants ------------------------------------------------------------------------------


def test_half_precision_weights_become_float32() -> None:
    b = GraphBuilder()
    x = b.input(2, 4)
    half = RNG.normal(size=(3, 4)).astype(np.float16)
    weights = b.node(Dequantize(), b.constant(half))
    graph = b.finish(b.node(FullyConnected(), x, weights))
    folded = drop_dead(fold_constants(graph))
    assert ops(folded) == [FullyConnected()]
    tensor = folded.tensors[folded.required(folded.nodes[0], 1)]
    assert tensor.constant is not None
    np.testing.assert_array_equal(tensor.constant.array(tensor.type), half.astype(np.float32))


def weights_of(shape: tuple[int, ...], axis: int | None) -> tuple[np.ndarray, Quantization]:
    count = 1 if axis is None else shape[axis]
    scales = tuple(float(np.float32(0.01 * (i + 1))) for i in range(count))
    values = RNG.integers(-127, 128, shape).astype(np.int8)
    return values, Quantization(scales, (0,) * count, axis)


@pytest.mark.parametrize(("op", "image", "shape", "axis"), [
    (FullyConnected(), (2, 4), (3, 4), None),
    (FullyConnected(), (2, 4), (3, 4), 0),
    (Conv2D(), (1, 4, 4, 2), (3, 2, 2, 2), 0),
    (DepthwiseConv2D(), (1, 4, 4, 2), (1, 2, 2, 2), 3),
])
def test_int8_weights_of_float_operators_stay_int8(
    op: Op, image: tuple[int, ...], shape: tuple[int, ...], axis: int | None
) -> None:
    b = GraphBuilder()
    values, quant = weights_of(shape, axis)
    stored = b.constant(values, quant)
    graph = b.finish(b.node(op, b.input(*image), b.node(Dequantize(), stored)))
    folded = fold_constants(graph)
    assert ops(folded) == [op]
    assert folded.nodes[0].inputs[1] == stored
    # The reference reads float weights.
    real = (values * np.array(quant.scale, np.float32).reshape(
        [-1 if i == axis else 1 for i in range(len(shape))]
    )).astype(np.float32)
    b = GraphBuilder()
    expected = b.finish(b.node(op, b.input(*image), b.constant(real)))
    renamed = replace(folded, tensors=tuple(
        replace(t, name=expected.tensors[expected.outputs[0]].name)
        if i == folded.outputs[0] else t for i, t in enumerate(folded.tensors)
    ))
    same_results(
        replace(expected, tensors=(replace(expected.tensors[0], name=folded.tensors[
            folded.inputs[0]].name), *expected.tensors[1:])), renamed, exact=False,
    )


def test_int8_constants_read_otherwise_become_floats() -> None:
    b = GraphBuilder()
    values, quant = weights_of((2, 4), None)
    real = b.node(Dequantize(), b.constant(values, quant))
    x = b.input(2, 4)
    graph = b.finish(b.node(FullyConnected(), x, real), b.node(Add(), x, real))
    folded = fold_constants(graph)
    assert ops(folded) == [FullyConnected(), Add()]
    assert folded.type(folded.required(folded.nodes[0], 1)).dtype is DType.INT8
    addend = folded.tensors[folded.required(folded.nodes[1], 1)]
    assert addend.constant is not None
    np.testing.assert_array_equal(
        addend.constant.array(addend.type), values * np.float32(quant.scale[0])
    )


def test_weights_that_kernels_cannot_scale_become_floats() -> None:
    b = GraphBuilder()
    values, _ = weights_of((3, 4), None)
    quant = Quantization((0.5, 1.0, 2.0, 4.0), (0, 1, 0, -1), 1)
    real = b.node(Dequantize(), b.constant(values, quant))
    graph = b.finish(b.node(FullyConnected(), b.input(2, 4), real))
    folded = fold_constants(graph)
    assert ops(folded) == [FullyConnected()]
    weights = folded.tensors[folded.required(folded.nodes[0], 1)]
    assert weights.constant is not None
    np.testing.assert_array_equal(
        weights.constant.array(weights.type),
        (values - np.array([0, 1, 0, -1])) * np.array([0.5, 1, 2, 4], np.float32),
    )


def test_reshaped_constants_fold_to_the_same_bytes() -> None:
    b = GraphBuilder()
    constant = b.constant(np.arange(8, dtype=np.float32))
    graph = b.finish(
        b.node(Add(), b.input(1, 4),
               b.node(Reshape((2, 4)), b.node(Reshape((4, 2)), constant)))
    )
    folded = fold_constants(graph)
    assert ops(folded) == [Add()]
    operand = folded.required(folded.nodes[0], 1)
    assert folded.constant(operand) is graph.constant(constant)
    same_results(graph, folded)


def test_a_constant_output_is_copied() -> None:
    b = GraphBuilder()
    b.input(1)
    graph = b.finish(b.node(Reshape((4, 2)), b.constant(np.arange(8, dtype=np.float32))))
    simplified = passes.run(graph)
    assert ops(simplified) == [Reshape((4, 2))]
    same_results(graph, simplified)


# ---- fuse_activation -----------------------------------------------------------------------------


def conv(b: GraphBuilder, x: int, quant: Quantization | None = None, **attributes: object) -> int:
    if quant is None:
        weights = b.constant(RNG.normal(size=(3, 2, 2, 2)).astype(np.float32))
        return b.node(Conv2D(**attributes), x, weights)  # type: ignore[arg-type]
    values = RNG.integers(-127, 128, (3, 2, 2, 2)).astype(np.int8)
    weights = b.constant(values, Quantization((0.02,), (0,)))
    return b.node(Conv2D(**attributes), x, weights, quant=quant)  # type: ignore[arg-type]


@pytest.mark.parametrize(("clamp", "activation"), [
    (Relu(), Activation.RELU), (Relu6(), Activation.RELU6),
    (ReluN1To1(), Activation.RELU_N1_TO_1),
])
@pytest.mark.parametrize("quant", [None, Q1])
def test_clamps_are_fused(clamp: Op, activation: Activation, quant: Quantization | None) -> None:
    b = GraphBuilder()
    x = b.input(1, 4, 4, 2, dtype=DType.INT8 if quant else DType.FLOAT32, quant=quant)
    y = b.node(clamp, conv(b, x, quant), quant=quant)
    graph = b.finish(b.node(clamp, b.node(Add(), y, y, quant=quant), quant=quant))
    fused = fuse_activation(graph)
    assert ops(fused) == [Conv2D(activation=activation), Add(activation=activation)]
    same_results(graph, fused)


def test_only_the_first_of_two_clamps_is_fused() -> None:
    b = GraphBuilder()
    x = b.input(2, 4)
    graph = b.finish(b.node(Relu6(), b.node(Relu(), b.node(Sub(), x, b.input(2, 4)))))
    fused = fuse_activation(graph)
    assert ops(fused) == [Sub(Activation.RELU), Relu6()]
    same_results(graph, fused)


def test_clamps_that_change_the_scale_stay() -> None:
    b = GraphBuilder()
    x = b.input(1, 4, 4, 2, dtype=DType.INT8, quant=Q1)
    graph = b.finish(b.node(Relu(), conv(b, x, Q1), quant=Q2))
    assert fuse_activation(graph) == graph


def test_results_that_others_read_are_not_clamped() -> None:
    b = GraphBuilder()
    x = b.input(2, 4)
    total = b.node(Add(), x, x)
    clamped = b.node(Relu(), total)
    shared = b.finish(b.node(Concatenation(0), total, clamped))
    output = b.finish(total, clamped)
    for graph in (shared, output):
        assert fuse_activation(graph) == graph


def test_operators_without_activation_keep_their_clamps() -> None:
    b = GraphBuilder()
    x = b.input(2, 4)
    graph = b.finish(
        b.node(Relu(), b.node(Concatenation(0), x, b.node(Relu(), b.node(Tanh(), b.node(
            Relu(), x)))))
    )
    assert fuse_activation(graph) == graph


# ---- fuse_pad ------------------------------------------------------------------------------------

FRAME = Pad(((0, 0), (1, 2), (0, 1), (0, 0)))


@pytest.mark.parametrize("quant", [None, Q1])
def test_pads_become_padding_of_the_convolution(quant: Quantization | None) -> None:
    b = GraphBuilder()
    x = b.input(1, 4, 4, 2, dtype=DType.INT8 if quant else DType.FLOAT32, quant=quant)
    twice = b.node(FRAME, b.node(FRAME, x, quant=quant), quant=quant)
    graph = b.finish(conv(b, twice, quant, stride=(2, 1), padding=Padding2D(1, 0, 1, 0)))
    fused = drop_dead(fuse_pad(graph))
    assert ops(fused) == [Conv2D((2, 1), padding=Padding2D(3, 4, 1, 2))]
    same_results(graph, fused)


def test_depthwise_convolutions_take_pads_that_others_read_too() -> None:
    b = GraphBuilder()
    padded = b.node(FRAME, b.input(1, 4, 4, 2))
    weights = b.constant(RNG.normal(size=(1, 2, 2, 2)).astype(np.float32))
    graph = b.finish(b.node(DepthwiseConv2D(), padded, weights), b.node(Relu(), padded))
    fused = drop_dead(fuse_pad(graph))
    assert ops(fused) == [FRAME, DepthwiseConv2D(padding=Padding2D(1, 2, 0, 1)), Relu()]
    same_results(graph, fused)


def test_pads_that_are_not_padding_stay() -> None:
    b = GraphBuilder()
    channels = b.finish(conv(b, b.node(Pad(((0, 0), (1, 0), (0, 0), (0, 0))), b.node(
        Pad(((0, 0), (0, 0), (0, 0), (1, 0))), b.input(1, 4, 4, 1)))))
    assert ops(drop_dead(fuse_pad(channels))) == [
        Pad(((0, 0), (0, 0), (0, 0), (1, 0))), Conv2D(padding=Padding2D(1, 0, 0, 0))
    ]
    b = GraphBuilder()
    pooled = b.finish(b.node(MaxPool2D((2, 2)), b.node(FRAME, b.input(1, 4, 4, 2))))
    assert fuse_pad(pooled) == pooled
    b = GraphBuilder()
    x = b.input(1, 4, 4, 2, dtype=DType.INT8, quant=Q1)
    rescaled = b.finish(conv(b, b.node(FRAME, x, quant=Q2), Q2))
    assert fuse_pad(rescaled) == rescaled


# ---- drop_dead and copy_outputs ------------------------------------------------------------------


def test_dead_nodes_and_tensors_go_and_inputs_stay() -> None:
    b = GraphBuilder()
    unused, x = b.input(3), b.input(1, 8)
    b.constant(np.zeros(5, np.float32))
    b.node(Relu(), b.node(Tanh(), x))
    graph = b.finish(b.node(Softmax(), x))
    alive = drop_dead(graph)
    assert [t.name for t in alive.tensors] == [
        graph.tensors[t].name for t in (unused, x, graph.outputs[0])
    ]
    assert ops(alive) == [Softmax()]
    assert (alive.inputs, alive.outputs) == ((0, 1), (2,))
    same_results(graph, alive)
    assert drop_dead(alive) == alive


def test_left_out_inputs_stay_left_out() -> None:
    b = GraphBuilder()
    b.constant(np.zeros(5, np.float32))
    x, weights = b.input(1, 4), b.constant(np.ones((2, 4), np.float32))
    graph = b.finish(b.node(FullyConnected(), x, weights, None))
    assert drop_dead(graph).nodes[0].inputs == (0, 1, None)


def test_outputs_get_nodes_of_their_own() -> None:
    b = GraphBuilder()
    x, constant = b.input(1, 4), b.constant(np.arange(3, dtype=np.float32))
    y = b.node(Softmax(), x)
    graph = b.finish(x, y, y, constant)
    copied = copy_outputs(graph)
    assert copied.outputs == (3, y, 4, 5)
    assert [str(n) for n in copied.nodes[1:]] == [f"copy to output {i}" for i in (0, 2, 3)]
    assert [copied.tensors[t].name for t in copied.outputs] == ["t0", "t2", "t2_2", "t1"]
    assert copied.tensors[5] == Tensor("t1", TensorType(DType.FLOAT32, (3,)))
    renamed = [replace(t, name="t2") if t.name == "t2_2" else t for t in copied.tensors]
    same_results(graph, replace(copied, tensors=tuple(renamed)))
    assert copy_outputs(copied) == copied

"""Channels that tell the outputs nothing go, and outputs stay bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import crtexport
from crtexport import passes
from crtexport.ir.graph import Graph
from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import (
    Activation,
    Add,
    AveragePool2D,
    Concatenation,
    Conv2D,
    DepthwiseConv2D,
    FullyConnected,
    HardSwish,
    MaxPool2D,
    Mean,
    Op,
    Pad,
    Padding2D,
    Reshape,
    Softmax,
)
from crtexport.ir.types import DType, Quantization, TensorType
from crtexport.ir.verify import verify
from crtexport.passes.all_outputs import with_all_outputs
from crtexport.passes.channels import remove_channels
from crtexport.passes.channels.known import channel_facts
from crtexport.passes.channels.needs import needed_channels
from crtexport.passes.drop_dead import drop_dead
from crtexport.simulation.tflite_writer import to_tflite
from tests.differential.network import interpret
from tests.helpers import shared_model
from tests.plan.graphs import GraphBuilder
from tests.tflite_builder import run_reference

Array = npt.NDArray[Any]

_ACTIVATIONS = (Activation.NONE, Activation.RELU, Activation.RELU6, Activation.RELU_N1_TO_1)
_WIDE = {DType.INT8: DType.INT32, DType.UINT8: DType.INT32, DType.INT16: DType.INT64}


class Planted:
    """Grows networks of integers in which some channels are zero, saturated, or read by nobody."""

    def __init__(self, seed: int, dtype: DType = DType.INT8) -> None:
        self.rng, self.b, self.dtype = np.random.default_rng(seed), GraphBuilder(), dtype

    def quant(self) -> Quantization:
        low, high = self.dtype.limits
        zero = 0 if self.dtype is DType.INT16 else int(
            self.rng.choice([low, high, low + 128, self.rng.integers(low, high + 1)])
        )
        return Quantization((float(np.float32(self.rng.uniform(0.01, 0.1))),), (zero,))

    def type(self, tensor: int) -> TensorType:
        return self.b.tensors[tensor].type

    def input(self, *shape: int) -> int:
        return self.b.input(*shape, dtype=self.dtype, quant=self.quant())

    def layer(self, op: Op, x: int, shape: tuple[int, ...], axis: int) -> int:
        """A layer with weights of ``shape``, whose output channels lie along ``axis``."""
        outputs, unsigned = shape[axis], self.dtype is DType.UINT8
        many = outputs if self.rng.random() < 0.7 and not unsigned else 1
        scales = tuple(float(s) for s in self.rng.uniform(0.002, 0.02, many).astype(np.float32))
        zero = int(self.rng.integers(0, 256)) if unsigned else 0
        weights = self.rng.integers(*((0, 256) if unsigned else (-127, 128)), shape)
        along = np.moveaxis(weights, axis, 0)
        along[self.rng.random(outputs) < 0.35] = zero
        if axis != 3 and self.rng.random() < 0.5:
            along[..., self.rng.random(along.shape[-1]) < 0.3] = zero
        bias = self.rng.integers(-3000, 3000, outputs)
        loud = self.rng.random(outputs) < 0.2
        bias[loud] = self.rng.choice([-1, 1], int(loud.sum())) * 40_000_000
        bias[self.rng.random(outputs) < 0.2] = 0
        if outputs > 2 and self.rng.random() < 0.5:
            along[-1], bias[-1], scales = along[0], bias[0], (*scales[:-1], scales[0])
        data = self.type(x).quant
        assert data is not None
        stored = weights.astype(np.uint8 if unsigned else np.int8)
        quant = Quantization(scales, (zero,) * many, axis if many > 1 else None)
        inputs: list[int | None] = [x, self.b.constant(stored, quant)]
        if self.rng.random() < 0.8:
            inputs.append(self.b.constant(
                bias.astype(_WIDE[self.dtype].numpy),
                Quantization(tuple(data.scale[0] * s for s in scales), (0,) * many,
                             0 if many > 1 else None),
            ))
        return self.b.node(op, *inputs, quant=self.quant(), quantized=self.dtype)

    def activation(self) -> Activation:
        return _ACTIVATIONS[self.rng.integers(len(_ACTIVATIONS))]

    def padding(self, window: int) -> Padding2D:
        """As TensorFlow Lite can say it for stride 1: none, or "same"."""
        if window == 1 or self.rng.random() < 0.4:
            return Padding2D()
        return Padding2D(window // 2, window // 2, window // 2, window // 2)

    def conv(self, x: int, outputs: int | None = None, window: int | None = None) -> int:
        kernel = window or int(self.rng.choice([1, 1, 3]))
        kernel = kernel if min(self.type(x).shape[1:3]) >= kernel else 1
        units = outputs or int(self.rng.integers(1, 9))
        op = Conv2D(padding=self.padding(kernel), activation=self.activation())
        return self.layer(op, x, (units, kernel, kernel, self.type(x).shape[3]), 0)

    def depthwise(self, x: int) -> int:
        kernel = 3 if min(self.type(x).shape[1:3]) >= 3 else 1
        multiplier = int(self.rng.choice([1, 1, 1, 2]))
        op = DepthwiseConv2D(multiplier, padding=self.padding(kernel), activation=self.activation())
        return self.layer(op, x, (1, kernel, kernel, self.type(x).shape[3] * multiplier), 3)

    def dense(self, x: int, units: int | None = None) -> int:
        depth = int(np.prod(self.type(x).shape[1:]))
        count = units or int(self.rng.integers(1, 9))
        return self.layer(FullyConnected(activation=self.activation()), x, (count, depth), 0)

    def pool(self, x: int) -> int:
        kind = AveragePool2D if self.rng.random() < 0.5 else MaxPool2D
        window = min(2, *self.type(x).shape[1:3])
        return self.b.node(
            kind((window, window), (1, 1), activation=self.activation()), x,
            quant=self.type(x).quant, quantized=self.dtype,
        )

    def residual(self, x: int) -> int:
        units, window = int(self.rng.integers(1, 9)), 1
        pair = self.conv(x, units, window), self.conv(x, units, window)
        return self.b.node(Add(self.activation()), *pair, quant=self.quant(), quantized=self.dtype)

    def pad(self, x: int) -> int:
        sides = tuple((int(a), int(c)) for a, c in self.rng.integers(0, 3, (2, 2)))
        return self.b.node(
            Pad(((0, 0), sides[0], (0, 0), sides[1])), x, quant=self.type(x).quant,
            quantized=self.dtype,
        )

    def join(self, x: int) -> int:
        other = self.conv(x, window=1)
        quant = self.type(x).quant
        self.b.tensors[other] = type(self.b.tensors[other])(
            self.b.tensors[other].name,
            TensorType(self.dtype, self.type(other).shape, quant),
        )
        return self.b.node(Concatenation(3), x, other, quant=quant, quantized=self.dtype)

    def mean(self, x: int) -> int:
        quant = self.quant()
        return self.b.node(Mean((1, 2), keep_dims=True), x, quant=quant, quantized=self.dtype)

    def swish(self, x: int) -> int:
        return self.b.node(HardSwish(), x, quant=self.quant(), quantized=self.dtype)


_STEPS: tuple[Callable[[Planted, int], int], ...] = (
    Planted.conv, Planted.conv, Planted.depthwise, Planted.depthwise, Planted.pool,
    Planted.residual, Planted.pad, Planted.join, Planted.mean, Planted.swish,
)


def network(seed: int, dtype: DType, steps: Sequence[int], numerics: Numerics) -> Graph:
    """A random network; int16 has the operators that TensorFlow Lite has for it."""
    made = Planted(seed, dtype)
    tensor = made.input(1, 4, 3, int(made.rng.integers(1, 4)))
    for step in steps:
        chosen = _STEPS[step]
        if dtype is not DType.INT8 and chosen in (Planted.swish, Planted.mean, Planted.pad):
            chosen = Planted.conv
        tensor = chosen(made, tensor)
    flat = int(np.prod(made.type(tensor).shape))
    if made.rng.random() < 0.5:
        tensor = made.b.node(
            Reshape((1, flat)), tensor, quant=made.type(tensor).quant, quantized=dtype
        )
    if made.rng.random() < 0.7:
        tensor = made.dense(tensor)
    graph = made.b.finish(tensor)
    return replace(graph, numerics=numerics)


def inputs_of(graph: Graph, seed: int) -> list[list[Array]]:
    """Noise, and both ends of what the input can be."""
    rng, type_ = np.random.default_rng(seed), graph.type(graph.inputs[0])
    low, high = type_.dtype.limits
    noise = rng.integers(low, high, type_.shape, endpoint=True)
    samples = noise, np.full(type_.shape, low), np.full(type_.shape, high)
    return [[sample.astype(type_.dtype.numpy)] for sample in samples]


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**32), st.sampled_from([DType.INT8, DType.INT8, DType.UINT8, DType.INT16]),
    st.lists(st.integers(0, len(_STEPS) - 1), min_size=1, max_size=6),
)
def test_outputs_are_those_that_the_reference_computes_of_the_whole_network(
    seed: int, dtype: DType, steps: list[int]
) -> None:
    graph = network(seed, dtype, steps, Numerics.TFLITE)
    smaller = passes.run(graph)
    content = to_tflite(graph)
    for inputs in inputs_of(graph, seed):
        (expected,), (found,) = run_reference(content, *inputs), interpret(smaller, inputs)
        np.testing.assert_array_equal(found, expected, strict=True)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(0, len(_STEPS) - 1), min_size=1, max_size=6))
def test_single_rounding_is_kept(seed: int, steps: list[int]) -> None:
    graph = network(seed, DType.INT8, steps, Numerics.LITERT)
    smaller = passes.run(graph)
    for inputs in inputs_of(graph, seed):
        (expected,), (found,) = interpret(graph, inputs), interpret(smaller, inputs)
        np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_exported_code_computes_what_the_reference_does(emit: str, tmp_path: Path) -> None:
    graph = network(12, DType.INT8, [0, 2, 5, 4, 1], Numerics.TFLITE)
    assert channels_of(passes.run(graph)) < channels_of(graph)
    package = tmp_path / "model.tar"
    crtexport.export(graph, output=package, emit=emit)
    for inputs in inputs_of(graph, 1):
        (expected,) = run_reference(to_tflite(graph), *inputs)
        ((found,),) = (row.values() for row in crtexport.simulate(package, {"t0": inputs[0][None]}))
        np.testing.assert_array_equal(found, expected, strict=True)


def channels_of(graph: Graph) -> int:
    return sum(graph.type(node.outputs[0]).shape[-1] for node in graph.nodes)


# ---- one thing at a time -----------------------------------------------------------------------


@dataclass
class Net:
    """int8 layers with one scale of 1 everywhere, so that numbers are what they seem."""

    def __post_init__(self) -> None:
        self.b = GraphBuilder()

    def input(self, *shape: int) -> int:
        return self.b.input(*shape, dtype=DType.INT8, quant=Quantization((1.0,), (0,)))

    def layer(
        self, op: Op, x: int, weights: npt.ArrayLike, bias: Sequence[int] | None = None,
        zero: int = 0,
    ) -> int:
        array = np.asarray(weights, np.int8)
        one = Quantization((1.0,), (0,))
        inputs = [x, self.b.constant(array, one)]
        if bias is not None:
            inputs.append(self.b.constant(np.array(bias, np.int32), one))
        return self.b.node(op, *inputs, quant=Quantization((1.0,), (zero,)))


def shapes(graph: Graph) -> list[tuple[int, ...]]:
    return [graph.type(node.outputs[0]).shape for node in graph.nodes]


def removed(graph: Graph) -> Graph:
    smaller = drop_dead(remove_channels(graph))
    verify(smaller)
    for inputs in inputs_of(graph, 0):
        np.testing.assert_array_equal(interpret(smaller, inputs), interpret(graph, inputs))
    return smaller


def bias_of(graph: Graph, node: int) -> list[int]:
    tensor = graph.tensors[graph.required(graph.nodes[node], 2)]
    assert tensor.constant is not None
    return [int(value) for value in tensor.constant.array(tensor.type)]


def test_what_a_constant_adds_goes_into_the_next_bias() -> None:
    net = Net()
    hidden = net.layer(FullyConnected(), net.input(1, 2), [[1, 1], [0, 0], [1, -1]], [0, 7, 0])
    smaller = removed(net.b.finish(
        net.layer(FullyConnected(), hidden, [[1, 2, 3], [4, 5, 6]], [100, 200])
    ))
    assert shapes(smaller) == [(1, 2), (1, 2)]
    assert bias_of(smaller, 1) == [100 + 2 * 7, 200 + 5 * 7]


def test_a_result_that_is_always_clamped_is_constant() -> None:
    net = Net()
    # 2 * 127 at most: 300 stays above 127, and -300 below 0.
    hidden = net.layer(
        FullyConnected(activation=Activation.RELU), net.input(1, 2), [[1, 1], [1, 1], [1, 1]],
        [400, -300, -200],
    )
    smaller = removed(net.b.finish(net.layer(FullyConnected(), hidden, [[1, 1, 1]], [5])))
    assert shapes(smaller) == [(1, 1), (1, 1)]
    assert bias_of(smaller, 1) == [5 + 127]


def test_what_only_constants_read_goes_too() -> None:
    net = Net()
    hidden = net.layer(FullyConnected(), net.input(1, 2), np.ones((4, 2)))
    # Of four units only the first is read by one that isn't constant.
    middle = net.layer(FullyConnected(), hidden, [[1, 0, 0, 0], [0, 0, 0, 0]], [0, 3])
    smaller = removed(net.b.finish(net.layer(FullyConnected(), middle, [[1, 1]])))
    assert shapes(smaller) == [(1, 1), (1, 1), (1, 1)]


@pytest.mark.parametrize(("zero", "left"), [(9, 1), (4, 2)])
def test_a_constant_passes_padding_only_as_the_zero_point(zero: int, left: int) -> None:
    net = Net()
    first = net.layer(
        Conv2D(), net.input(1, 3, 3, 1), np.reshape([1, 0], (2, 1, 1, 1)), [0, 9 - zero], zero
    )
    same = Padding2D(1, 1, 1, 1)
    smaller = removed(net.b.finish(
        net.layer(Conv2D(padding=same), first, np.ones((1, 3, 3, 2)), [1])
    ))
    assert shapes(smaller)[0] == (1, 3, 3, left)


def test_a_constant_goes_through_depthwise_layers_pools_and_reshapes() -> None:
    net = Net()
    hidden = net.layer(
        Conv2D(), net.input(1, 4, 4, 1), np.reshape([1, 0, 2], (3, 1, 1, 1)), [0, 5, 0]
    )
    hidden = net.layer(DepthwiseConv2D(), hidden, np.ones((1, 2, 2, 3)), [1, 1, 1])
    one = Quantization((1.0,), (0,))
    hidden = net.b.node(MaxPool2D((2, 2), (1, 1)), hidden, quant=one)
    hidden = net.b.node(Reshape((1, 12)), hidden, quant=one)
    smaller = removed(net.b.finish(net.layer(FullyConnected(), hidden, np.ones((2, 12)))))
    assert shapes(smaller) == [(1, 4, 4, 2), (1, 3, 3, 2), (1, 2, 2, 2), (1, 8), (1, 2)]
    assert bias_of(smaller, 4) == [4 * 21] * 2


def test_both_sides_of_a_sum_keep_the_same_channels() -> None:
    net = Net()
    x = net.input(1, 1, 1, 2)
    left = net.layer(Conv2D(), x, np.reshape([1, 1, 0, 0, 0, 0], (3, 1, 1, 2)), [0, 1, 2])
    right = net.layer(Conv2D(), x, np.reshape([0, 0, 1, 1, 0, 0], (3, 1, 1, 2)), [3, 0, 4])
    total = net.b.node(Add(), left, right, quant=Quantization((1.0,), (0,)))
    smaller = removed(net.b.finish(net.layer(Conv2D(), total, np.ones((1, 1, 1, 3)))))
    assert shapes(smaller) == [(1, 1, 1, 2)] * 3 + [(1, 1, 1, 1)]
    assert bias_of(smaller, 3) == [6]


def test_equal_channels_become_one() -> None:
    net = Net()
    alike = [[1, 2], [1, 1], [1, 2], [1, 2]]
    hidden = net.layer(FullyConnected(), net.input(1, 2), alike, [4, 4, 4, 5])
    hidden = net.b.node(HardSwish(), hidden, quant=Quantization((1.0,), (0,)))
    graph = net.b.finish(net.layer(FullyConnected(), hidden, [[1, 2, 3, 4], [5, 6, -7, 8]]))
    smaller = removed(graph)
    assert shapes(smaller) == [(1, 3), (1, 3), (1, 2)]
    weights = smaller.tensors[smaller.required(smaller.nodes[2], 1)]
    assert weights.constant is not None
    np.testing.assert_array_equal(weights.constant.array(weights.type), [[4, 2, 4], [-2, 6, 8]])
    for inputs in inputs_of(graph, 0):
        np.testing.assert_array_equal(interpret(smaller, inputs), interpret(graph, inputs))


def test_equal_channels_stay_where_the_sum_of_weights_would_not_fit() -> None:
    net = Net()
    hidden = net.layer(FullyConnected(), net.input(1, 2), [[1, 2], [1, 2]])
    graph = net.b.finish(net.layer(FullyConnected(), hidden, [[1, 2], [64, 64]]))
    assert shapes(removed(graph)) == shapes(graph)


def test_equal_channels_that_differ_in_scale_are_not_equal() -> None:
    b = GraphBuilder()
    x = b.input(1, 2, dtype=DType.INT8, quant=Quantization((0.1,), (0,)))
    weights = b.constant(
        np.array([[1, 2], [1, 2], [1, 2]], np.int8), Quantization((0.3, 0.2, 0.3), (0, 0, 0), 0)
    )
    hidden = b.node(FullyConnected(), x, weights, quant=Quantization((0.01,), (0,)))
    last = b.constant(np.array([[1, 2, 3]], np.int8), Quantization((1.0,), (0,)))
    graph = b.finish(b.node(FullyConnected(), hidden, last, quant=Quantization((1.0,), (0,))))
    assert shapes(removed(graph)) == [(1, 2), (1, 1)]


def test_outputs_of_the_network_keep_their_constants() -> None:
    net = Net()
    graph = net.b.finish(net.layer(FullyConnected(), net.input(1, 2), [[0, 0], [1, 1]], [4, 0]))
    assert removed(graph) == graph


def test_what_does_not_keep_channels_apart_keeps_them_all() -> None:
    net = Net()
    hidden = net.layer(FullyConnected(), net.input(1, 2), [[0, 0], [1, 1]], [4, 0])
    graph = net.b.finish(net.b.node(Softmax(), hidden, quant=Quantization((1 / 256,), (-128,))))
    assert removed(graph) == graph


def test_a_bias_that_would_not_fit_stays() -> None:
    net = Net()
    hidden = net.layer(FullyConnected(), net.input(1, 2), [[0, 0], [1, 1]], [100, 0])
    graph = net.b.finish(net.layer(FullyConnected(), hidden, [[100, 1]], [2**31 - 9000]))
    smaller = drop_dead(remove_channels(graph))
    assert shapes(smaller) == shapes(graph)
    assert bias_of(smaller, 1) == [2**31 - 9000]


def test_a_scale_per_unit_stays_one_per_unit() -> None:
    """One unit alone would be scaled as if the layer had one scale: a different rounding."""
    b = GraphBuilder()
    x = b.input(1, 2, dtype=DType.INT8, quant=Quantization((0.1,), (0,)))
    scales = Quantization((0.3, 0.2, 0.1), (0, 0, 0), 0)
    weights = b.constant(np.array([[0, 0], [0, 0], [3, 5]], np.int8), scales)
    hidden = b.node(FullyConnected(), x, weights, quant=Quantization((0.7,), (0,)))
    last = b.constant(np.ones((1, 3), np.int8), Quantization((0.3,), (0,)))
    graph = b.finish(b.node(FullyConnected(), hidden, last, quant=Quantization((0.2,), (0,))))
    assert shapes(removed(graph)) == [(1, 2), (1, 1)]


def test_a_network_of_constants_keeps_one_channel_each() -> None:
    net = Net()
    hidden = net.layer(FullyConnected(), net.input(1, 2), np.zeros((3, 2)), [1, 2, 3])
    graph = net.b.finish(net.layer(FullyConnected(), hidden, np.ones((2, 3)), [0, 10]))
    assert shapes(removed(graph)) == [(1, 1), (1, 2)]


def test_weights_and_scales_of_channels_stay_together() -> None:
    b = GraphBuilder()
    x = b.input(1, 1, 1, 1, dtype=DType.INT8, quant=Quantization((1.0,), (0,)))
    weights = b.constant(
        np.reshape([1, 0, 3], (3, 1, 1, 1)).astype(np.int8),
        Quantization((0.5, 0.25, 0.125), (0, 0, 0), 0),
    )
    hidden = b.node(Conv2D(), x, weights, quant=Quantization((1.0,), (0,)))
    last = b.constant(np.ones((1, 1, 1, 3), np.int8), Quantization((1.0,), (0,)))
    graph = b.finish(b.node(Conv2D(), hidden, last, quant=Quantization((1.0,), (0,))))
    first = removed(graph).nodes[0]
    smaller = removed(graph)
    quant = smaller.type(smaller.required(first, 1)).quant
    assert quant == Quantization((0.5, 0.125), (0, 0), 0)


def test_layers_that_are_all_outputs_stay_as_they_are() -> None:
    graph = with_all_outputs(network(12, DType.INT8, [0, 2, 5, 4, 1], Numerics.TFLITE))
    assert remove_channels(graph) == graph


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(0, len(_STEPS) - 1), min_size=1, max_size=6))
def test_nothing_is_left_for_a_second_time(seed: int, steps: list[int]) -> None:
    smaller = passes.run(network(seed, DType.INT8, steps, Numerics.TFLITE))
    assert all(kept.all() for kept in needed_channels(channel_facts(smaller)).kept.values())


def test_vww96_loses_half_of_its_products_and_most_of_its_weights() -> None:
    graph = crtexport.load(shared_model("vww96_int8"))
    before, after = work(graph), work(passes.run(graph))
    assert before == (7_489_664, 208_112)
    assert after[0] <= 3_740_000
    assert after[1] <= 29_580


def work(graph: Graph) -> tuple[int, int]:
    """Multiplications of one inference, and weights."""
    products = weights = 0
    for node in graph.nodes:
        if isinstance(node.op, Conv2D | DepthwiseConv2D | FullyConnected):
            type_ = graph.type(graph.required(node, 1))
            cells = graph.type(node.outputs[0]).elements
            axis = 3 if isinstance(node.op, DepthwiseConv2D) else 0
            products += cells * (type_.elements // type_.shape[axis])
            weights += type_.elements
    return products, weights
